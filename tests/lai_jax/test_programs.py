"""A JAX model is exact whatever way its function is written."""

import jax
import jax.numpy as jnp
import lai_jax
import pytest
from jax import lax

from tests.lai_jax.oracle import drawn, ghost_error, squares


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


@pytest.mark.parametrize("outer", [(0, 1, 2, 3), (1, 0, 2, 3)])
def test_a_convolution_may_have_the_samples_inside_of_an_axis(outer):
    def apply(params, inputs):  # (n, frames, width, channels): frames before or behind the samples, merged
        maps = inputs.transpose(outer).reshape(-1, *inputs.shape[2:])
        maps = jnp.tanh(
            lax.conv_general_dilated(
                maps, params["k"], (1,), [(0, 1)], dimension_numbers=("NWC", "WIO", "NWC")
            )
        )
        frames = maps.reshape(*(inputs.shape[axis] for axis in outer[:2]), -1).transpose(outer[:3])
        return frames.reshape(inputs.shape[0], -1) @ params["w"]

    params = {"k": drawn(2, 2, 3), "w": drawn(3 * 4 * 3, 2)}
    assert ghost_error(apply, params, squares, *batches(3, 4, 2)) < 1e-12


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


def recurred(params, inputs):
    """Run a diagonal recurrence in parallel: one decay, repeated for every sample and place."""
    states = inputs @ params["w"]
    decays = jnp.broadcast_to(jax.nn.sigmoid(params["a"]), states.shape)
    joined = lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (decays, states), axis=1)
    return joined[1][:, -1] @ params["o"]


def test_a_parameter_repeated_for_every_sample_is_followed_through_slices_and_gaps():
    params, (inputs, targets) = {"w": drawn(3, 4), "a": drawn(4), "o": drawn(4, 2)}, batches(4, 3)[0]

    def traced(params):
        return lai_jax.trace(recurred, params, squares, inputs, targets)

    assert [layer.name for layer in jax.eval_shape(traced, params).layers] == ["w", "o"]


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
