"""What a JAX trace holds, leaves out and refuses."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.oracle import drawn, ghost_error, gradients, labels, squares
from tests.lai_jax.support import compiled


def batches(*shape):
    return [(drawn(n, *shape, seed=n), drawn(n, seed=n)) for n in (3, 4)]


def dense(params, inputs):
    for layer in params[:-1]:
        inputs = jnp.tanh(inputs @ layer["w"] + layer["b"])
    return inputs @ params[-1]["w"] + params[-1]["b"]


DENSE = [{"w": (4, 5), "b": (5,)}, {"w": (5, 5), "b": (5,)}, {"w": (5, 3), "b": (3,)}]


def dense_params():
    return jax.tree.map(lambda shape: drawn(*shape), DENSE, is_leaf=lambda x: isinstance(x, tuple))


def test_layers_of_a_chain_are_recorded_as_they_are():
    params, (inputs, targets) = dense_params(), (drawn(6, 4), drawn(6))
    trace = compiled(lai_jax.trace, dense, params, squares, inputs, targets, gradients="all")
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
    left, right = (
        compiled(lai_jax.trace, f, params, squares, *batch, gradients="all") for f in (scanned, unrolled)
    )
    np.testing.assert_allclose(lai.lai_kernel(left, left), lai.lai_kernel(right, right), rtol=1e-12)
    np.testing.assert_allclose(lai.ghost_kernel(left, left), lai.ghost_kernel(right, right), rtol=1e-12)
    assert [layer.name for layer in left.layers] == ["stack/w[0]", "stack/w[1]", "stack/w[2]", "head"]


def test_a_captured_weight_is_frozen_out_of_ghost_and_in_lai():
    frozen = drawn(4, 5)

    def apply(params, inputs):
        return jnp.tanh(inputs @ frozen) @ params

    batch = drawn(6, 4), drawn(6)
    trace = compiled(lai_jax.trace, apply, drawn(5, 2), squares, *batch, gradients="all")
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
    trace = compiled(lai_jax.trace, dense, params, squares, *batch, gradients="all")
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

    scores = jax.jit(scores)
    mapped = jax.vmap(scores)(models)
    for index, row in enumerate(mapped):
        single = scores(jax.tree.map(lambda leaf, k=index: leaf[k], models))
        np.testing.assert_allclose(row, single, rtol=1e-9)


def test_labels_pick_their_own_row():
    def loss(outputs, targets):
        return -jax.nn.log_softmax(outputs)[jnp.arange(targets.shape[0]), targets]

    sides = [(drawn(n, 4, seed=n), labels(n)) for n in (3, 4)]
    assert ghost_error(dense, dense_params(), loss, *sides) < 1e-12
