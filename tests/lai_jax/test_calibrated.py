"""Calibrated LAI in the step: layer weights fitted to Ghost, against one gradient a sample in numpy."""

from functools import partial

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.oracle import drawn, gradients
from tests.lai_jax.support import classified as data
from tests.lai_jax.support import compiled
from tests.lai_jax.support import cross_entropy as loss

TX = optax.sgd(0.1)
summarize = partial(compiled, lai_jax.summarize)


def apply(params, inputs):
    hidden = jnp.tanh(inputs @ params["a"] + params["p"])
    hidden = hidden - hidden.mean(-1, keepdims=True)
    return jnp.tanh(hidden @ params["b"]) @ params["c"] + params["q"]


LAYERS = ("ap", "b", "cq")


def parameters():
    return {"a": drawn(4, 8), "p": drawn(8), "b": drawn(8, 6), "c": drawn(6, 3), "q": drawn(3)}


def inputs_of_layers(params, inputs):
    first = np.asarray(inputs)
    second = np.tanh(first @ np.asarray(params["a"]) + np.asarray(params["p"]))
    second = second - second.mean(-1, keepdims=True)
    return [first, second, np.tanh(second @ np.asarray(params["b"]))]


def last_gradients(params, inputs, targets):
    logits = np.asarray(apply(params, inputs))
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return shares - np.eye(3)[np.asarray(targets)]


def lai_parts(params, validation, batch):
    """Each layer's part of LAI's kernel; the middle one has no bias."""
    beta = last_gradients(params, *validation) @ last_gradients(params, *batch).T
    sides = [inputs_of_layers(params, side[0]) for side in (validation, batch)]
    return [(z @ j.T + bias) * beta for z, j, bias in zip(*sides, (1, 0, 1), strict=True)]


def ghost_part(function, params, loss, batch, names):
    """Products of each sample's gradients of some parameters, by one backward pass a sample."""
    rest = {name: value for name, value in params.items() if name not in names}
    moving = {name: params[name] for name in names}
    rows = np.asarray(gradients(lambda own, inputs: function(own | rest, inputs), moving, loss, batch))
    return rows @ rows.T


def slopes(lai_part, ghost):
    """Fit, through zero, the slope of Ghost's part on LAI's over all pairs of different samples."""
    found = []
    for x, y in zip(lai_part, ghost, strict=True):
        off = ~np.eye(len(x), dtype=bool)
        found.append((x[off] @ y[off]) / (x[off] @ x[off]))
    return np.array(found)


def fitted(params, batch):
    ghost = [ghost_part(apply, params, loss, batch, names) for names in LAYERS]
    return slopes(lai_parts(params, batch, batch), ghost)


def test_a_step_weighs_layers_as_they_were_fitted_on_some_of_the_validation_set():
    params, validation, batch = parameters(), data(10, seed=1), data(5)
    at = jax.jit(
        lambda params: lai_jax.summarize(
            apply, params, loss, *validation, estimator="calibrated_lai", calibration=4
        )
    )
    update = lai_jax.curated_update(apply, loss, TX, estimator="calibrated_lai")
    state = TX.init(params)
    for _ in range(2):
        given = at(params)
        rows = jnp.array([0, 2, 5, 7])  # four of the ten, at equal distances
        weights = fitted(params, (validation[0][rows], validation[1][rows]))
        np.testing.assert_allclose(given.layer_weights, weights, rtol=1e-9)
        assert weights[-1] == pytest.approx(1.0)
        assert (np.abs(weights[:-1] - 1.0) > 0.05).all()
        expected = sum(
            w * part.sum(0) for w, part in zip(weights, lai_parts(params, validation, batch), strict=True)
        )
        params, state, report = update(params, state, given, *batch)
        np.testing.assert_allclose(report.scores, expected, rtol=1e-9, atol=1e-12)
    assert at._cache_size() == update._cache_size() == 1


def test_layer_weights_of_ones_own_make_the_step_use_them():
    params, validation, batch = parameters(), data(6, seed=1), data(5)
    summary = lai.summarize(compiled(lai_jax.trace, apply, params, loss, *validation), "lai")
    given = lai_jax.Validation(summary, layer_weights=jnp.array([0.25, 0.5, 1.0]))
    parts = [part.sum(0) for part in lai_parts(params, validation, batch)]
    report = lai_jax.curated_update(apply, loss, TX)(params, TX.init(params), given, *batch)[2]
    np.testing.assert_allclose(report.scores, 0.25 * parts[0] + 0.5 * parts[1] + parts[2], rtol=1e-9)


def test_samples_that_are_not_finite_are_not_calibrated_on():
    params, (inputs, targets) = parameters(), data(6)
    expected = fitted(params, (inputs[1:], targets[1:]))
    broken = inputs.at[0].set(jnp.nan)
    found = summarize(apply, params, loss, broken, targets, estimator="calibrated_lai")
    np.testing.assert_allclose(found.layer_weights, expected, rtol=1e-9)
    assert all(bool(jnp.isfinite(total).all()) for total in found.side.totals[0])


def test_convolutions_and_frozen_layers_and_other_parameters_have_their_own_part_or_none():
    kernel, fixed = drawn(2, 1, 3), drawn(9, 5)

    def model(params, maps):
        numbers = ("NWC", "WIO", "NWC")
        maps = lax.conv_general_dilated(maps, params["k"], (1,), "VALID", dimension_numbers=numbers)
        hidden = jnp.tanh(maps + params["b"]).reshape(maps.shape[0], -1) @ fixed
        return jnp.tanh(hidden * params["gain"]) @ params["o"]

    params = {"k": kernel, "b": drawn(3), "gain": drawn(5), "o": drawn(5, 3)}
    inputs, targets = data(6)
    batch = inputs[..., None], targets
    hidden = np.asarray(model(params | {"o": jnp.eye(5)}, batch[0]))
    logits = hidden @ np.asarray(params["o"])
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    g = shares - np.eye(3)[np.asarray(targets)]
    beta, means = g @ g.T, np.asarray(inputs).mean(1, keepdims=True)
    parts = [(means @ means.T + 1) * beta, (hidden @ hidden.T) * beta]
    ghost = [ghost_part(model, params, loss, batch, names) for names in ("kb", "o")]
    found = summarize(model, params, loss, *batch, estimator="calibrated_lai")
    first, frozen, final = np.asarray(found.layer_weights)
    np.testing.assert_allclose([first, final], slopes(parts, ghost), rtol=1e-9)
    assert frozen == 0.0
    assert found.side.positions == "mean"
