"""Calibrated LAI in the step: layer weights fitted to Ghost, against one gradient a sample in numpy."""

from functools import partial

import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.support import classified as data
from tests.lai_jax.support import computed, drawn, gradients, stepped, weights
from tests.lai_jax.support import cross_entropy as loss

summarize = partial(computed, lai_jax.summarize)


def apply(params, inputs):
    hidden = jnp.tanh(inputs @ params["a"] + params["p"])
    hidden = hidden - hidden.mean(-1, keepdims=True)
    return jnp.tanh(hidden @ params["b"]) @ params["c"] + params["q"]


LAYERS = ("ap", "b", "cq")
PARAMS = weights(a=(4, 8), p=(8,), b=(8, 6), c=(6, 3), q=(3,))
VALIDATION, BATCH = data(10, seed=1), data(5)


def lai_parts(model, validation, batch, **options):
    """Return each layer's part of LAI's kernel."""
    traces = [computed(lai_jax.trace, *model, *side) for side in (validation, batch)]
    each = np.eye(len(traces[0].layers))
    return [lai.lai_kernel(*traces, layer_weights=list(row), **options) for row in each]


def ghost_part(function, params, loss, batch, names):
    """Products of each sample's gradients of some parameters, by one backward pass a sample."""
    rest = {name: value for name, value in params.items() if name not in names}
    moving = {name: params[name] for name in names}
    rows = gradients(lambda own, inputs: function(own | rest, inputs), moving, loss, batch)
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
    return slopes(lai_parts((apply, params, loss), batch, batch), ghost)


def test_a_step_weighs_layers_as_they_were_fitted_on_some_of_the_validation_set():
    params, rows = PARAMS, np.array([0, 2, 5, 7])  # four of the ten, at equal distances
    for _ in range(2):
        given = summarize(apply, params, loss, *VALIDATION, estimator="calibrated_lai", calibration=4)
        own = fitted(params, (VALIDATION[0][rows], VALIDATION[1][rows]))
        np.testing.assert_allclose(given.layer_weights, own, rtol=1e-9)
        assert own[-1] == pytest.approx(1.0)
        assert (np.abs(own[:-1] - 1.0) > 0.05).all()
        parts = lai_parts((apply, params, loss), VALIDATION, BATCH)
        expected = sum(w * part.sum(0) for w, part in zip(own, parts, strict=True))
        params, _, report = stepped((apply, params, loss), given, BATCH, estimator="calibrated_lai")
        np.testing.assert_allclose(report.scores, expected, rtol=1e-9, atol=1e-12)


def test_layer_weights_of_ones_own_make_the_step_use_them():
    summary = lai.summarize(computed(lai_jax.trace, apply, PARAMS, loss, *VALIDATION), "lai")
    given = lai_jax.Validation(summary, layer_weights=jnp.array([0.25, 0.5, 1.0]))
    parts = [part.sum(0) for part in lai_parts((apply, PARAMS, loss), VALIDATION, BATCH)]
    report = stepped((apply, PARAMS, loss), given, BATCH)[2]
    np.testing.assert_allclose(report.scores, 0.25 * parts[0] + 0.5 * parts[1] + parts[2], rtol=1e-9)


def test_samples_that_are_not_finite_are_not_calibrated_on():
    inputs, targets = data(6)
    expected = fitted(PARAMS, (inputs[1:], targets[1:]))
    broken = inputs.at[0].set(jnp.nan)
    found = summarize(apply, PARAMS, loss, broken, targets, estimator="calibrated_lai")
    np.testing.assert_allclose(found.layer_weights, expected, rtol=1e-9)
    assert all(np.isfinite(total).all() for total in found.side.totals[0])


def test_convolutions_have_a_part_and_frozen_layers_and_other_parameters_none():
    kernel, fixed = drawn(2, 1, 3), drawn(9, 5)

    def model(params, maps):
        numbers = ("NWC", "WIO", "NWC")
        maps = lax.conv_general_dilated(maps, params["k"], (1,), "VALID", dimension_numbers=numbers)
        hidden = jnp.tanh(maps + params["b"]).reshape(maps.shape[0], -1) @ fixed
        return jnp.tanh(hidden * params["gain"]) @ params["o"]

    params = {"k": kernel, "b": drawn(3), "gain": drawn(5), "o": drawn(5, 3)}
    inputs, targets = data(6)
    batch = inputs[..., None], targets
    parts = lai_parts((model, params, loss), batch, batch, positions="mean")
    ghost = [ghost_part(model, params, loss, batch, names) for names in ("kb", "o")]
    found = summarize(model, params, loss, *batch, estimator="calibrated_lai")
    np.testing.assert_allclose(found.layer_weights, slopes(parts, ghost), rtol=1e-9)
    assert found.side.positions == "mean"
