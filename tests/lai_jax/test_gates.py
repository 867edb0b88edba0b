"""Gates read off a program, and gate-corrected LAI in the step, against formulas written out in numpy."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest
from jax import lax
from lai_jax._recording import gates as _gates

import lai_core as lai
from tests.lai_jax.oracle import drawn, squares
from tests.lai_jax.support import compiled
from tests.lai_jax.support import vectors as data

TX = optax.sgd(0.1)
BIASES = (1.0, 0.0, 1.0, 1.0)


def apply(params, inputs):
    """Apply a chain whose layers are followed by one, three and no elementwise functions."""
    hidden = jax.nn.gelu(inputs @ params["a"] + params["p"], approximate=False)
    hidden = jax.nn.relu((hidden @ params["b"] - params["mean"]) * params["gain"])
    return (hidden @ params["c"].T + params["q"]) @ params["d"] + params["r"]


def parameters():
    return {
        "a": drawn(4, 8),
        "p": drawn(8),
        "b": drawn(8, 6),
        "mean": drawn(6),
        "gain": 0.5 + drawn(6) ** 2,
        "c": drawn(5, 6),  # stored the other way round
        "q": drawn(5),
        "d": drawn(5, 3),
        "r": drawn(3),
    }


def explicit(params, inputs, targets):
    """Return the four layers' inputs, three gates and the last output gradients, in numpy."""
    p = {name: np.asarray(value) for name, value in params.items()}
    first = np.asarray(inputs)
    s1 = first @ p["a"] + p["p"]
    phi = 0.5 * (1 + np.vectorize(math.erf)(s1 / np.sqrt(2)))
    a2, gate1 = s1 * phi, phi + s1 * np.exp(-(s1**2) / 2) / np.sqrt(2 * np.pi)
    s2 = (a2 @ p["b"] - p["mean"]) * p["gain"]
    a3, gate2 = np.maximum(s2, 0), (s2 > 0) * p["gain"]
    a4 = a3 @ p["c"].T + p["q"]
    outputs = a4 @ p["d"] + p["r"]
    g = 2 * (outputs - np.asarray(targets)[:, None]) * np.arange(1, 4)
    return [first, a2, a3, a4], [gate1, gate2, np.ones_like(a4)], g


def expected_kernel(params, validation, batch, now=None):
    """Write the gate-corrected kernel out, pair by pair and layer by layer; `now` is for the batch."""
    (a_z, gates_z, g_z), params = explicit(params, *validation), params if now is None else now
    a_j, gates_j, g_j = explicit(params, *batch)
    weights = [np.asarray(params["b"]).T, np.asarray(params["c"]), np.asarray(params["d"]).T]
    kernel = np.zeros((len(g_z), len(g_j)))
    for z, j in np.ndindex(*kernel.shape):
        for l in range(4):
            term = a_z[l][z] @ a_j[l][j] + BIASES[l]
            for t in range(l, 3):
                norms = (weights[t] ** 2).sum(0)
                term *= (norms * gates_z[t][z] * gates_j[t][j]).sum() / weights[t].shape[0]
            kernel[z, j] += term * (g_z[z] @ g_j[j])
    return kernel


def test_gates_and_column_norms_are_those_of_the_chain():
    params, batch = parameters(), data(3)
    found = jax.jit(lambda params: lai_jax.trace_gates(apply, params, squares, *batch))(params)
    activations, gates, g = explicit(params, *batch)
    for gate, expected in zip(found.gates, gates, strict=True):
        np.testing.assert_allclose(gate, expected, rtol=1e-9, atol=1e-12)
    for layer, expected in zip(found.trace.layers, activations, strict=True):
        np.testing.assert_allclose(layer.activations, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.trace.layers[-1].output_gradients, g, rtol=1e-9)
    norms = [(params["b"] ** 2).sum(1), (params["c"] ** 2).sum(0), (params["d"] ** 2).sum(1)]
    for norm, expected in zip(found.column_norms, norms, strict=True):
        np.testing.assert_allclose(norm, expected, rtol=1e-12)


@pytest.mark.parametrize("how", [{}, {"rows": 2}, {"rows": 2, "recompute": True}], ids=str)
def test_scores_in_the_step_are_the_kernels_sums(how):
    params, (inputs, targets), batch = parameters(), data(7, seed=1), data(5)
    inputs = inputs.at[3].set(jnp.nan)
    kept = jnp.array([index for index in range(7) if index != 3])
    summarize = jax.jit(
        lambda params: lai_jax.summarize(apply, params, squares, inputs, targets, estimator="gate_lai")
    )
    update = lai_jax.curated_update(apply, squares, TX, estimator="gate_lai", **how)
    given, moved = summarize(params), jax.tree.map(lambda leaf: 1.1 * leaf, params)
    report = update(params, TX.init(params), given, *batch)[2]
    expected = expected_kernel(params, (inputs[kept], targets[kept]), batch).sum(0)
    np.testing.assert_allclose(report.scores, expected, rtol=1e-9)
    # the validation side stays what it was; gates and column norms of the batch are as they are now
    later = update(moved, TX.init(params), given, *batch)[2].scores
    expected = expected_kernel(params, (inputs[kept], targets[kept]), batch, moved).sum(0)
    np.testing.assert_allclose(later, expected, rtol=1e-9)
    assert summarize._cache_size() == update._cache_size() == 1


def straight(values):
    return jnp.where(values > 0, values, 0.1 * values)


@jax.custom_vjp
def clipped(values):
    return jnp.tanh(values)


clipped.defvjp(lambda values: (jnp.tanh(values), values), lambda values, ct: (3.0 * ct * jnp.cos(values),))


@pytest.mark.parametrize(
    ("function", "derivative"),
    [
        (straight, lambda s: np.where(s > 0, 1.0, 0.1)),
        (clipped, lambda s: 3.0 * np.cos(s)),  # the rule of its own, which is what training follows
        (jax.checkpoint(lambda s: jnp.sin(s) * s), lambda s: np.sin(s) + s * np.cos(s)),
        (lambda s: s.reshape(-1, 1, 5)[:, 0].astype(jnp.float64) + jnp.exp(s), lambda s: 1 + np.exp(s)),
        (lambda s: (s.T * jnp.arange(5.0)[:, None]).T, lambda s: np.arange(5.0) + 0 * s),
    ],
    ids=["where", "custom_vjp", "checkpoint", "reshape", "transpose"],
)
@pytest.mark.parametrize("samples", [1, 5])
def test_any_function_entry_by_entry_is_followed(function, derivative, samples):
    params = {"w": drawn(4, 5), "o": drawn(5, 3)}
    inputs, targets = data(samples)
    found = compiled(
        lai_jax.trace_gates,
        lambda params, inputs: function(inputs @ params["w"]) @ params["o"],
        params,
        squares,
        inputs,
        targets,
    )
    outputs = np.asarray(inputs @ params["w"])
    np.testing.assert_allclose(found.gates[0], derivative(outputs), rtol=1e-9)


def test_a_model_that_is_mapped_over_samples_is_a_chain_too():
    layers = [eqx.nn.Linear(*sizes, key=jax.random.key(sizes[0])) for sizes in ((4, 6), (6, 5), (5, 3))]
    params, static = eqx.partition(layers, eqx.is_inexact_array)

    def single(layers, values):
        return layers[2](jnp.tanh(layers[1](jnp.sin(layers[0](values)))))

    def mapped(params, inputs):
        return jax.vmap(lambda values: single(eqx.combine(params, static), values))(inputs)

    inputs, targets = data(5)
    found = compiled(lai_jax.trace_gates, mapped, params, squares, inputs, targets)
    first = jax.vmap(layers[0])(inputs)
    second = jax.vmap(layers[1])(jnp.sin(first))
    np.testing.assert_allclose(found.gates[0], jnp.cos(first), rtol=1e-9)
    np.testing.assert_allclose(found.gates[1], 1 - jnp.tanh(second) ** 2, rtol=1e-9)
    for norms, layer in zip(found.column_norms, layers[1:], strict=True):
        np.testing.assert_allclose(norms, (layer.weight**2).sum(0))


ALONE = "does not come from the output of layer 'b' alone"
MIXED = "is no function entry by entry .{}. of the output of layer 'a'"


def residual(params, x):
    first = jnp.tanh(x @ params["a"])
    return (first + jnp.tanh(first @ params["b"])) @ params["c"]


def detached(params, x):
    return lax.stop_gradient(jnp.tanh(x @ params["a"]) @ params["b"]) @ params["c"]


def through(function):
    return lambda params, x: function(x @ params["a"]) @ params["b"]


def normalised(s):
    return (s - s.mean(1, keepdims=True)) / jnp.sqrt(s.var(1, keepdims=True) + 1e-5)


def iterated(s):
    return lax.scan(lambda carry, _: (jnp.sin(carry), None), s, None, length=2)[0]


def looped(params, x):
    return lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, params["stack"])[0] @ params["a"]


def convolved(params, x):
    maps = lax.conv_general_dilated(
        x[..., None], params["k"], (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
    )
    return jnp.tanh(maps).reshape(x.shape[0], -1) @ params["o"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (residual, f"layer 'c': .* its input {ALONE}"),
        (detached, f"layer 'c': .* its input {ALONE}"),
        (through(normalised), "layer 'b': .* " + MIXED.format("reduce_sum")),
        (through(jax.nn.softmax), "layer 'b': .* " + MIXED.format("reduce_sum")),
        (through(lambda s: s[:, ::-1]), "layer 'b': .* " + MIXED.format("rev")),
        (through(lambda s: jnp.cumsum(s, 1)), "layer 'b': .* " + MIXED.format("cumsum")),
        (
            through(lambda s: jnp.concatenate([s[:, :2] * s[:, 2:]] * 2, 1)),
            "layer 'b': .* " + MIXED.format(".*"),
        ),
        (
            through(lambda s: s.reshape(-1, 2, 2).swapaxes(1, 2).reshape(-1, 4)),
            "layer 'b': .* " + MIXED.format("reshape"),
        ),
        (through(iterated), "layer 'b': .* " + MIXED.format("scan")),
        (looped, "layer 'stack.0.': .* its input is inside a loop, a branch or a recomputation"),
        (
            lambda p, x: jnp.tanh(x[..., None] @ p["one"]).reshape(5, -1) @ p["o"],
            r"layer 'one': .* has shape \(.*\), not \(n, d\)",
        ),
        (
            lambda p, x: jnp.tanh(x.reshape(-1, 2) @ p["pairs"]).reshape(5, -1) @ p["a"],
            r"layer 'pairs': .* its input has shape \(10, 2\), not \(n, d\)",
        ),
        (
            lambda p, x: jnp.einsum("ng,go->ngo", jnp.tanh(x @ p["a"]), p["c"]),
            "layer 'c': .* its input meets several matrices side by side",
        ),
        (convolved, "layer 'k': .* its input goes into a convolution"),
        (
            lambda p, x: jnp.einsum("ngi,gio->ngo", x.reshape(5, 2, 2), p["stack"]).reshape(5, -1) @ p["a"],
            r"layer 'stack': .* its input has shape \(5, 2, 2\), not \(n, d\)",
        ),
    ],
)
def test_what_is_no_chain_is_refused_by_name(model, message):
    params = {"a": drawn(4, 4), "b": drawn(4, 4), "c": drawn(4, 3), "o": drawn(8, 3)}
    params |= {"pairs": drawn(2, 2), "one": drawn(1, 2), "k": drawn(1, 1, 2), "stack": drawn(2, 2, 2)}
    if model is looped:
        params["stack"] = drawn(2, 4, 4)
    with pytest.raises(ValueError, match=message + ".*; use estimator='lai', or 'ghost'"):
        lai_jax.trace_gates(model, params, squares, *data(5))


def test_entries_that_meet_others_by_turning_are_not_taken_for_elementwise():
    """Reading a model already refuses this where samples turn into features, and is not leant on."""
    turned = jax.make_jaxpr(lambda cotangent: cotangent + cotangent.T)(jnp.ones((3, 3))).jaxpr
    with pytest.raises(_gates._MixesError, match="add"):
        _gates._through(turned, [("samples", "features")])


def test_a_shared_matrix_is_refused():
    params, batch = {"a": drawn(4, 4), "o": drawn(4, 3)}, data(5)

    def shared(params, inputs):
        return jnp.tanh(jnp.tanh(inputs @ params["a"]) @ params["a"]) @ params["o"]

    update = lai_jax.curated_update(shared, squares, TX, estimator="gate_lai")
    given = compiled(lai_jax.summarize, shared, params, squares, *batch, estimator="gate_lai")
    with pytest.raises(ValueError, match=r"\('a'\): expected a matrix of its own"):
        update(params, TX.init(params), given, *batch)


def test_a_gate_trace_is_a_pytree():
    found = compiled(lai_jax.trace_gates, apply, parameters(), squares, *data(3))
    leaves, tree = jax.tree.flatten(found)
    assert len(leaves) == 4 + 1 + 3 + 3
    again = jax.tree.unflatten(tree, leaves)
    assert isinstance(again, lai_jax.GateTrace)
    assert isinstance(again.trace, lai.Trace)
