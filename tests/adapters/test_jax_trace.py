"""What a JAX trace holds, whatever way the function is written."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

import lai_core as lai
from tests.adapters.jax_oracle import drawn, ghost_error, gradients, labels, squares


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def batches(*shape):
    return [(drawn(n, *shape, seed=n), drawn(n, seed=n)) for n in (3, 4)]


PRODUCTS = {
    "nd,dk->nk": ((5,), (5, 2)),
    "nd,kd->nk": ((5,), (2, 5)),
    "nd,dk->kn": ((5,), (5, 2)),
    "ntd,dk->ntk": ((4, 5), (5, 2)),
    "ntd,dhk->nthk": ((4, 5), (5, 2, 3)),
    "nthk,hkd->ntd": ((4, 2, 3), (2, 3, 5)),
    "nhd,hdk->nhk": ((3, 5), (3, 5, 2)),
    "ntd,sd->nst": ((4, 5), (6, 5)),
    "ntd,st->nsd": ((4, 5), (6, 4)),
    "nthd,hde->nhte": ((4, 2, 5), (2, 5, 3)),
}


@pytest.mark.parametrize("spec", PRODUCTS)
def test_every_layout_of_a_product_is_exact(spec):
    data, weight = PRODUCTS[spec]

    def apply(params, inputs):
        outputs = jnp.einsum(spec, inputs, params["w"])
        outputs = jnp.moveaxis(outputs, spec.split("->")[1].index("n"), 0)
        return jnp.tanh(outputs.reshape(outputs.shape[0], -1))

    assert ghost_error(apply, {"w": drawn(*weight)}, squares, *batches(*data)) < 1e-12


def rearranged(params, inputs):
    """Use slices, halves, transposes and casts of three leaves, some of them twice."""
    big = params["big"]
    hidden = jnp.tanh(inputs @ big[:5].T)
    hidden = jnp.tanh(hidden @ big[5:].reshape(3, 5).T[:, ::-1])
    hidden = jnp.tanh(hidden @ params["square"]) @ params["square"].T
    return hidden @ params["last"].astype(jnp.float32).astype(jnp.float64)


def test_weights_may_be_reshaped_transposed_sliced_and_cast():
    params = {"big": drawn(10, 3), "square": drawn(3, 4), "last": drawn(3, 2)}
    assert ghost_error(rearranged, params, squares, *batches(3)) < 1e-7  # the cast rounds its gradient


def composed(params, inputs):
    """Use parameters that are computed from others, repeated, scaled, stacked and merged."""
    direction = params["v"] / jnp.linalg.norm(params["v"], axis=0)
    hidden = inputs @ (params["g"] * direction) + params["b"].sum() * params["b"]
    hidden = jnp.concatenate([hidden, jnp.broadcast_to(params["token"], (inputs.shape[0], 2))], axis=1)
    hidden = jnp.where(hidden > params["b"][0], hidden, jax.nn.softplus(params["slope"]) * hidden)
    hidden = hidden.at[:, 0].multiply(2.0) * jnp.exp(params["slope"])
    return hidden @ jnp.kron(params["small"], params["small"])[:6] + 0.5 * params["slope"] ** 2


def test_parameters_may_be_computed_from_others():
    params = {
        "v": drawn(3, 4),
        "g": drawn(4),
        "b": drawn(4, seed=1),
        "token": drawn(2),
        "slope": jnp.asarray(0.3),
        "small": drawn(3, 2),
    }
    assert ghost_error(composed, params, squares, *batches(3)) < 1e-12


def nested(params, inputs):
    """Run a scan of scans, one of them backwards, with weights sliced, constant and carried along."""

    def outer(carry, layer):
        state, fixed = carry

        def inner(state, weight):
            return jnp.tanh(state @ weight + state @ fixed["c"] * fixed["s"]), state.sum(-1)

        state, sums = lax.scan(inner, state, layer, reverse=True)
        return (jax.checkpoint(lambda s: jnp.tanh(s @ params["k"] + params["b"]))(state), fixed), sums

    (state, _), sums = lax.scan(outer, (inputs, {"c": params["c"], "s": params["s"]}), params["stack"])
    return jnp.concatenate([state, jnp.moveaxis(sums, 2, 0).reshape(inputs.shape[0], -1)], 1) @ params["w"]


def test_scans_may_be_nested_and_carry_parameters():
    params = {
        "stack": drawn(2, 3, 4, 4) / 2,
        "c": drawn(4, 4),
        "s": drawn(4),
        "k": drawn(4, 4),
        "b": drawn(4),
        "w": drawn(10, 2),
    }
    assert ghost_error(nested, params, squares, *batches(4)) < 1e-12


def shared_biases(params, inputs):
    """Use one bias behind two weights, and one weight before two biases."""
    hidden = jnp.tanh(inputs @ params["w"] + params["b"])
    hidden = jnp.tanh(hidden @ params["v"] + params["b"])
    return (hidden @ params["v"] + params["c"]) @ params["o"] + params["c"][:2]


def test_biases_and_weights_may_be_shared_apart():
    params = {"w": drawn(3, 4), "v": drawn(4, 4), "b": drawn(4), "c": drawn(4, seed=1), "o": drawn(4, 2)}
    assert ghost_error(shared_biases, params, squares, *batches(3)) < 1e-12


@pytest.mark.parametrize("flag", [0, 1])
def test_a_branch_or_an_iteration_may_end_in_a_parameter(flag):
    def apply(params, inputs):
        default = jnp.broadcast_to(params["default"], inputs.shape)
        hidden = lax.cond(params["flag"] > 0, lambda h: h @ params["w"], lambda _: default, inputs)

        def step(carry, _):
            state, previous = carry
            return (jnp.tanh(state + previous @ params["w"]), default), None

        (hidden, previous), _ = lax.scan(step, (hidden, inputs), None, length=3)
        return (hidden + previous) @ params["o"]

    params = {"w": drawn(4, 4), "default": drawn(4), "o": drawn(4, 2), "flag": jnp.asarray(flag)}
    assert ghost_error(apply, params, squares, *batches(4)) < 1e-12


def test_a_recurrent_cell_may_start_from_zeros():
    def apply(params, inputs):
        def cell(carry, value):
            state, memory = carry
            gates = value @ params["u"] + (state @ params["v"] + params["b"])
            keep, new = jax.nn.sigmoid(gates[:, :3]), jnp.tanh(gates[:, 3:])
            memory = keep * memory + (1 - keep) * new
            return (jnp.tanh(memory), memory), None

        zeros = jnp.zeros((inputs.shape[0], 3))
        (state, _), _ = lax.scan(cell, (zeros, zeros), jnp.swapaxes(inputs, 0, 1))
        return state @ params["o"]

    params = {"u": drawn(4, 6), "v": drawn(3, 6), "b": drawn(6), "o": drawn(3, 2)}
    assert ghost_error(apply, params, squares, *batches(5, 4)) < 1e-12


def test_random_keys_may_come_one_a_sample():
    def apply(params, inputs, keys):
        masked = jax.vmap(lambda x, key: x * jax.random.bernoulli(key, 0.5, x.shape))(inputs, keys)
        return masked @ params

    sides = [((drawn(n, 4), jax.random.split(jax.random.key(n), n)), drawn(n)) for n in (3, 4)]
    assert ghost_error(apply, drawn(4, 2), squares, *sides) < 1e-12


def test_one_bias_may_serve_every_layer_of_a_scan():
    def apply(params, inputs):
        hidden, _ = lax.scan(lambda h, w: (jnp.tanh(h @ w + params["b"]), None), inputs, params["w"])
        return hidden @ params["o"]

    params = {"w": drawn(3, 4, 4), "b": drawn(4), "o": drawn(4, 2)}
    assert ghost_error(apply, params, squares, *batches(4)) < 1e-12


def test_a_counted_loop_reads_its_weight_by_number():
    def apply(params, inputs):
        hidden = lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ params["w"][i]), inputs)
        return hidden @ params["o"]

    assert ghost_error(apply, {"w": drawn(3, 4, 4), "o": drawn(4, 2)}, squares, *batches(4)) < 1e-12


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_parameters_may_enter_a_function_with_its_own_derivative(kind):
    @(jax.custom_jvp if kind == "jvp" else jax.custom_vjp)
    def dense(weight, values):
        return jnp.tanh(values @ weight)

    if kind == "jvp":
        dense.defjvp(lambda p, t: (dense(*p), (1 - dense(*p) ** 2) * (t[1] @ p[0] + p[1] @ t[0])))
    else:

        def backward(kept, g):
            weight, values, out = kept
            g = g * (1 - out**2)
            return values.T @ g, g @ weight.T

        dense.defvjp(lambda w, v: (dense(w, v), (w, v, dense(w, v))), backward)

    def apply(params, inputs):
        return dense(params["w"], inputs) @ params["o"]

    assert ghost_error(apply, {"w": drawn(4, 4), "o": drawn(4, 2)}, squares, *batches(4)) < 1e-12


def test_a_straight_through_function_without_parameters_is_differentiated_by_its_rule():
    @jax.custom_vjp
    def rounded(values):
        return jnp.round(values)

    rounded.defvjp(lambda v: (jnp.round(v), None), lambda _, g: (g,))

    def apply(params, inputs):
        return rounded(3 * inputs @ params["w"]) @ params["o"]

    assert ghost_error(apply, {"w": drawn(4, 4), "o": drawn(4, 2)}, squares, *batches(4)) < 1e-12


def test_a_batch_may_be_merged_with_other_axes_and_split_again():
    def apply(params, inputs):
        n, t, d = inputs.shape
        flat = inputs.reshape(n * t, d) @ params["w"] + params["b"]
        flat = jnp.tanh(flat).reshape(n, t, -1)
        turned = jnp.swapaxes(flat, 0, 1).reshape(t * n, -1) @ params["v"]
        return jnp.swapaxes(turned.reshape(t, n, -1), 0, 1).reshape(n, -1)

    params = {"w": drawn(5, 4), "b": drawn(4), "v": drawn(4, 2)}
    assert ghost_error(apply, params, squares, *batches(3, 5)) < 1e-12


def test_convolutions_of_every_shape():
    def apply(params, inputs):
        options, pad = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}, ((1, 1), (0, 1))
        maps = lax.conv_general_dilated(inputs, params["up"], (1, 1), pad, lhs_dilation=(2, 1), **options)
        maps = jnp.tanh(maps + params["b"])
        maps = jax.vmap(lambda m: lax.conv_general_dilated(m, params["k"], (2, 1), "VALID", **options), 1, 1)(
            maps[:, None]
        )[:, 0]
        line = lax.conv_general_dilated(
            maps.mean(1), params["line"], (1,), ((2, 0),), (1,), (2,), dimension_numbers=("NHC", "HIO", "NHC")
        )
        return line.reshape(line.shape[0], -1) @ params["o"]

    params = {
        "up": drawn(2, 2, 3, 4),
        "b": drawn(4),
        "k": drawn(3, 2, 4, 3),
        "line": drawn(2, 3, 2),
        "o": drawn(8, 2),
    }
    assert ghost_error(apply, params, squares, *batches(3, 5, 3)) < 1e-12


def test_embeddings_out_of_range_are_read_as_jax_reads_them():
    def apply(params, ids):
        read = params["e"].at[ids].get(mode="fill", fill_value=0.0)
        return (read + params["e"].at[ids].get(mode="clip")).sum(1) @ params["o"]

    params = {"e": drawn(5, 4), "o": drawn(4, 2)}
    sides = [(jnp.asarray([[0, 7, 2], [4, 4, 9]]), drawn(2)), (jnp.asarray([[2, 4, 8]]), drawn(1))]
    assert ghost_error(apply, params, squares, *sides) < 1e-12


def dense(params, inputs):
    for layer in params[:-1]:
        inputs = jnp.tanh(inputs @ layer["w"] + layer["b"])
    return inputs @ params[-1]["w"] + params[-1]["b"]


DENSE = [{"w": (4, 5), "b": (5,)}, {"w": (5, 5), "b": (5,)}, {"w": (5, 3), "b": (3,)}]


def dense_params():
    return jax.tree.map(lambda shape: drawn(*shape), DENSE, is_leaf=lambda x: isinstance(x, tuple))


def test_layers_of_a_chain_are_recorded_as_they_are():
    params, (inputs, targets) = dense_params(), (drawn(6, 4), drawn(6))
    trace = lai_jax.trace(dense, params, squares, inputs, targets, gradients="all")
    hidden = jnp.tanh(inputs @ params[0]["w"] + params[0]["b"])
    assert [layer.name for layer in trace.layers] == ["0/w", "1/w", "2/w"]
    assert all(layer.bias for layer in trace.layers)
    np.testing.assert_allclose(trace.layers[0].activations, inputs)
    np.testing.assert_allclose(trace.layers[1].activations, hidden)
    outputs = dense(params, inputs)
    by_hand = 2 * (outputs - targets[:, None]) * jnp.arange(1.0, 4.0)
    np.testing.assert_allclose(trace.layers[-1].output_gradients, by_hand, rtol=1e-12)


def test_output_gradients_alone_differentiate_nothing_before_the_last_layer():
    params, (inputs, targets) = dense_params(), (drawn(6, 4), drawn(6))

    def traced(gradients):
        def leaves(params, inputs, targets):
            return lai_jax.trace(dense, params, squares, inputs, targets, gradients=gradients)

        text = str(jax.make_jaxpr(leaves)(params, inputs, targets))
        return text.count("dot_general"), leaves(params, inputs, targets)

    forward, trace = traced("output")
    both, full = traced("all")
    assert forward == 3  # one product a layer
    assert both == 5
    assert [layer.output_gradients is None for layer in trace.layers] == [True, True, False]
    np.testing.assert_array_equal(trace.layers[-1].output_gradients, full.layers[-1].output_gradients)


def test_a_scan_is_the_same_as_its_layers_one_by_one():
    stack, head = {"w": drawn(3, 4, 4), "b": drawn(3, 4)}, drawn(4, 2)

    def step(values, layer):
        return jnp.tanh(values @ layer["w"] + layer["b"]), None

    def scanned(params, inputs):
        return lax.scan(step, inputs, params["stack"])[0] @ params["head"]

    def unrolled(params, inputs):
        for index in range(3):
            inputs, _ = step(inputs, jax.tree.map(lambda leaf, k=index: leaf[k], params["stack"]))
        return inputs @ params["head"]

    params, batch = {"stack": stack, "head": head}, (drawn(5, 4), drawn(5))
    left, right = (lai_jax.trace(f, params, squares, *batch, gradients="all") for f in (scanned, unrolled))
    np.testing.assert_allclose(lai.lai_kernel(left, left), lai.lai_kernel(right, right), rtol=1e-12)
    np.testing.assert_allclose(lai.ghost_kernel(left, left), lai.ghost_kernel(right, right), rtol=1e-12)
    assert [layer.name for layer in left.layers] == ["stack/w[0]", "stack/w[1]", "stack/w[2]", "head"]


def test_a_captured_weight_is_frozen_out_of_ghost_and_in_lai():
    frozen = drawn(4, 5)

    def apply(params, inputs):
        return jnp.tanh(inputs @ frozen) @ params

    batch = drawn(6, 4), drawn(6)
    trace = lai_jax.trace(apply, drawn(5, 2), squares, *batch, gradients="all")
    assert lai_jax.coverage(apply, drawn(5, 2), squares, *batch).frozen == ("captured (4, 5)",)
    g, hidden = trace.layers[-1].output_gradients, jnp.tanh(batch[0] @ frozen)
    np.testing.assert_allclose(lai.ghost_kernel(trace, trace), (hidden @ hidden.T) * (g @ g.T))
    both = batch[0] @ batch[0].T + hidden @ hidden.T
    np.testing.assert_allclose(lai.lai_kernel(trace, trace), both * (g @ g.T))


def test_stop_gradient_freezes():
    def apply(params, inputs):
        return jnp.tanh(inputs @ lax.stop_gradient(params["w"])) @ params["o"]

    params = {"w": drawn(4, 5), "o": drawn(5, 2)}
    assert ghost_error(apply, params, squares, *batches(4)) < 1e-12
    assert lai_jax.coverage(apply, params, squares, drawn(5, 4), drawn(5)).frozen == ("w",)


def test_one_sample_is_a_batch():
    params, batch = dense_params(), (drawn(1, 4), drawn(1))
    trace = lai_jax.trace(dense, params, squares, *batch, gradients="all")
    exact = gradients(dense, params, squares, batch)
    assert all(layer.samples() == 1 for layer in trace.layers)
    np.testing.assert_allclose(lai.ghost_kernel(trace, trace), exact @ exact.T, rtol=1e-12)


def test_inputs_may_be_a_tuple_or_a_mapping_with_settings():
    def apply(params, first, second, *, scale=1.0):
        return (first * scale + second) @ params

    pair, targets = (drawn(5, 4), drawn(5, 4, seed=1)), drawn(5)
    left = lai_jax.trace(apply, drawn(4, 2), squares, pair, targets)
    named = {"first": pair[0], "second": pair[1], "scale": 1.0}
    right = lai_jax.trace(apply, drawn(4, 2), squares, named, targets)
    np.testing.assert_allclose(left.layers[0].activations, right.layers[0].activations)


def test_the_last_layer_is_chosen_by_name_where_there_are_several():
    def apply(params, inputs):
        return inputs @ params["a"] + inputs @ params["b"]

    params, batch = {"a": drawn(4, 2), "b": drawn(4, 2)}, (drawn(5, 4), drawn(5))
    with pytest.raises(ValueError, match=r"several: \['a', 'b'\]; pass last=NAME"):
        lai_jax.trace(apply, params, squares, *batch)
    assert lai_jax.trace(apply, params, squares, *batch, last="a").layers[-1].name == "a"
    with pytest.raises(ValueError, match="last: expected the name of one layer"):
        lai_jax.trace(apply, params, squares, *batch, last="c")


def test_traces_and_summaries_are_pytrees():
    params, batch = dense_params(), (drawn(5, 4), drawn(5))
    traced = jax.jit(lambda p, b: lai_jax.trace(dense, p, squares, *b))(params, batch)
    assert isinstance(traced, lai.Trace)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, traced)
    np.testing.assert_allclose(doubled.layers[0].activations, 2 * batch[0])
    assert doubled.layers[0].name == traced.layers[0].name
    summary = jax.jit(lambda t: lai.summarize(t, "lai"))(traced)
    assert summary.layouts == lai.summarize(traced, "lai").layouts
    np.testing.assert_allclose(lai.lai_scores(summary, traced), lai.lai_scores(traced, traced))
    np.testing.assert_allclose((summary + summary).totals[0][0], 2 * summary.totals[0][0])


def test_coverage_names_what_uses_each_parameter():
    params, batch = dense_params(), (drawn(5, 4), drawn(5))
    found = lai_jax.coverage(dense, params, squares, *batch)
    assert found.share == 1.0
    assert found.parameters == sum(leaf.size for leaf in jax.tree.leaves(params))
    assert found.explained["0/w"] == ("dot_general",)
    assert found.explained["0/b"] == ("add",)
    assert not found.unexplained


def test_selfcheck_sees_a_kernel_that_is_wrong(monkeypatch):
    params, batch = dense_params(), (drawn(3, 4), drawn(3))
    good = lai_jax.selfcheck(dense, params, squares, *batch)
    assert good.relative_error < 1e-12
    assert set(good.layers) == {"0/b+0/w", "1/b+1/w", "2/b+2/w"}
    monkeypatch.setattr(lai, "ghost_kernel", lai.lai_kernel)
    assert lai_jax.selfcheck(dense, params, squares, *batch).relative_error > 1e-2


def test_what_the_losses_do_not_need_may_mix_samples():
    def apply(params, inputs):
        hidden = inputs @ params["w"]
        jax.debug.print("mean {}", hidden.mean())
        return {"logits": jnp.tanh(hidden) @ params["o"], "statistics": hidden.mean(0)}

    def loss(outputs, targets):
        return squares(outputs["logits"], targets)

    assert ghost_error(apply, {"w": drawn(4, 5), "o": drawn(5, 2)}, loss, *batches(4)) < 1e-12


def test_a_trace_may_be_mapped_over_models():
    models, batch = {"w": drawn(3, 4, 5), "o": drawn(3, 5, 2)}, (drawn(5, 4), drawn(5))

    def apply(params, inputs):
        return jnp.tanh(inputs @ params["w"]) @ params["o"]

    def scores(params):
        trace = lai_jax.trace(apply, params, squares, *batch, gradients="all")
        return lai.ghost_scores(trace, trace)

    mapped = jax.vmap(scores)(models)
    for index, row in enumerate(mapped):
        single = scores(jax.tree.map(lambda leaf, k=index: leaf[k], models))
        np.testing.assert_allclose(row, single, rtol=1e-9)


def test_labels_pick_their_own_row():
    def loss(outputs, targets):
        return -jax.nn.log_softmax(outputs)[jnp.arange(targets.shape[0]), targets]

    sides = [(drawn(n, 4, seed=n), labels(n)) for n in (3, 4)]
    assert ghost_error(dense, dense_params(), loss, *sides) < 1e-12
