"""Gates read off a program, against derivatives, and gate-corrected LAI in the step, against the core's."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

from lai_core.estimators.gates import gate_lai_scores
from tests.lai_jax.support import computed, ruled_by, squares, stepped, weights
from tests.lai_jax.support import vectors as data


def apply(params, inputs):
    """Apply a chain whose layers are followed by one, three and no elementwise functions."""
    hidden = jax.nn.gelu(inputs @ params["a"] + params["p"], approximate=False)
    hidden = jax.nn.relu((hidden @ params["b"] - params["mean"]) * params["gain"])
    return (hidden @ params["c"].T + params["q"]) @ params["d"] + params["r"]


PARAMS = weights(a=(4, 8), p=(8,), b=(8, 6), mean=(6,), gain=(6,), c=(5, 6), q=(5,), d=(5, 3), r=(3,))
PARAMS["gain"] = 0.5 + PARAMS["gain"] ** 2  # and c is stored the other way round


@pytest.mark.parametrize("how", [{}, {"rows": 2}], ids=str)
def test_step_scores_are_the_cores(how):
    (inputs, targets), batch = data(7, seed=1), data(5)
    inputs, kept = inputs.at[3].set(jnp.nan), np.arange(7) != 3
    given = computed(lai_jax.summarize, apply, PARAMS, squares, inputs, targets, estimator="gate_lai")
    assert isinstance(given.side, lai_jax.GateTrace)  # a pytree
    assert len(jax.tree.leaves(given.side)) == 4 + 1 + 3 + 3
    held_out = computed(lai_jax.trace_gates, apply, PARAMS, squares, inputs[kept], targets[kept])
    assert [layer.bias for layer in held_out.trace.layers] == [True, False, True, True]
    # the validation side stays what it was; gates and column norms of the batch are as they are now
    for params in (PARAMS, jax.tree.map(lambda leaf: 1.1 * leaf, PARAMS)):
        report = stepped((apply, params, squares), given, batch, estimator="gate_lai", **how)[2]
        now = computed(lai_jax.trace_gates, apply, params, squares, *batch)
        np.testing.assert_allclose(report.scores, gate_lai_scores(held_out, now), rtol=1e-9)


@ruled_by(lambda values, _, ct: (3.0 * ct * jnp.cos(values),))
def clipped(values):
    return jnp.tanh(values)


def iterated(s):
    return lax.scan(lambda carry, _: (jnp.sin(carry), None), s, None, length=2)[0]


@pytest.mark.parametrize(
    ("function", "derivative"),
    [
        (lambda s: jnp.where(s > 0, s, 0.1 * s), lambda s: np.where(s > 0, 1.0, 0.1)),
        (clipped, lambda s: 3.0 * np.cos(s)),  # the rule of its own, which is what training follows
        (jax.checkpoint(lambda s: jnp.sin(s) * s), lambda s: np.sin(s) + s * np.cos(s)),
        (lambda s: s.reshape(-1, 1, 5)[:, 0].astype(jnp.float64) + jnp.exp(s), lambda s: 1 + np.exp(s)),
        (lambda s: (s.T * jnp.arange(5.0)[:, None]).T, lambda s: np.arange(5.0) + 0 * s),
        (iterated, lambda s: np.cos(s) * np.cos(np.sin(s))),
    ],
    ids=["where", "custom_vjp", "checkpoint", "reshape", "transpose", "scan"],
)
@pytest.mark.parametrize("samples", [1, 5])
def test_entrywise_functions_are_followed(function, derivative, samples):
    params, (inputs, targets) = weights(w=(4, 5), o=(5, 3)), data(samples)

    def chain(params, inputs):
        return function(inputs @ params["w"]) @ params["o"]

    found = computed(lai_jax.trace_gates, chain, params, squares, inputs, targets)
    outputs = np.asarray(inputs @ params["w"])
    np.testing.assert_allclose(found.gates[0], derivative(outputs), rtol=1e-9)
    np.testing.assert_allclose(found.column_norms[0], (params["o"] ** 2).sum(1), rtol=1e-9)


def test_vmapped_models_are_chains_too():
    def single(params, values):
        return params["o"] @ jnp.sin(params["w"] @ values + params["b"])

    params, (inputs, targets) = weights(w=(5, 4), b=(5,), o=(3, 5)), data(6)
    mapped = jax.vmap(single, (None, 0))
    found = computed(lai_jax.trace_gates, mapped, params, squares, inputs, targets)
    np.testing.assert_allclose(found.gates[0], jnp.cos(inputs @ params["w"].T + params["b"]), rtol=1e-9)
    np.testing.assert_allclose(found.column_norms[0], (params["o"] ** 2).sum(0), rtol=1e-9)


ALONE = "does not come from the output of layer 'b' alone"
MIXED = "is no function entry by entry .{}. of the output of layer 'a'"


def residual(params, x):
    first = jnp.tanh(x @ params["a"])
    return (first + jnp.tanh(first @ params["b"])) @ params["c"]


def through(function):
    return lambda params, x: function(x @ params["a"]) @ params["b"]


def normalised(s):
    return (s - s.mean(1, keepdims=True)) / jnp.sqrt(s.var(1, keepdims=True) + 1e-5)


def looped(params, x):
    return lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, params["stack"])[0] @ params["a"]


def convolved(params, x):
    maps = lax.conv_general_dilated(
        x[..., None], params["k"], (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
    )
    return jnp.tanh(maps).reshape(x.shape[0], -1) @ params["o"]


MIXING = {
    "reduce_sum": [normalised],
    "reduce_max": [jax.nn.softmax],
    ".*": [lambda s: jnp.concatenate([s[:, :2] * s[:, 2:]] * 2, 1)],
    "reshape": [lambda s: s.reshape(-1, 2, 2).swapaxes(1, 2).reshape(-1, 4)],
}
"""Functions between two layers that are no functions entry by entry, by the operation that says so."""
CAPTURED = jnp.ones((4, 3))
NO_CHAINS = [
    (residual, f"layer 'c': .* its input {ALONE}"),
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
        lambda p, x: jnp.tanh(x @ p["a"]) @ CAPTURED,
        "layer 'captured.* its input goes into weights that do not train",
    ),
    (
        lambda p, x: jnp.broadcast_to((x @ p["a"])[:, None], (5, 2, 4)).reshape(5, -1) @ p["o"],
        "layer 'o': .* " + MIXED.format("as it is arranged"),
    ),
    *((through(one), "layer 'b': .* " + MIXED.format(name)) for name, each in MIXING.items() for one in each),
]


@pytest.mark.parametrize(("model", "message"), NO_CHAINS)
def test_other_models_are_refused_by_name(model, message):
    params = weights(a=(4, 4), b=(4, 4), c=(4, 3), o=(8, 3), pairs=(2, 2), one=(1, 2), k=(1, 1, 2))
    params |= weights(stack=(2, 4, 4))
    with pytest.raises(ValueError, match=message + ".*; use estimator='lai', or 'ghost'"):
        lai_jax.trace_gates(model, params, squares, *data(5))
