"""Calibrated LAI in the step: layer weights of one's own, and of samples that are finite."""

from functools import partial

import jax.numpy as jnp
import lai_jax
import numpy as np

import lai_core as lai
from tests.lai_jax.support import classified as data
from tests.lai_jax.support import computed, stepped, weights
from tests.lai_jax.support import cross_entropy as loss

summarize = partial(computed, lai_jax.summarize)


def apply(params, inputs):
    hidden = jnp.tanh(inputs @ params["a"] + params["p"])
    hidden = hidden - hidden.mean(-1, keepdims=True)
    return jnp.tanh(hidden @ params["b"]) @ params["c"] + params["q"]


PARAMS = weights(a=(4, 8), p=(8,), b=(8, 6), c=(6, 3), q=(3,))
VALIDATION, BATCH = data(10, seed=1), data(5)


def lai_parts(model, validation, batch, **options):
    """Return each layer's part of LAI's kernel."""
    traces = [computed(lai_jax.trace, *model, *side) for side in (validation, batch)]
    each = np.eye(len(traces[0].layers))
    return [lai.lai_kernel(*traces, layer_weights=list(row), **options) for row in each]


def test_custom_layer_weights_are_used():
    summary = lai.summarize(computed(lai_jax.trace, apply, PARAMS, loss, *VALIDATION), "lai")
    given = lai_jax.Validation(summary, layer_weights=jnp.array([0.25, 0.5, 1.0]))
    parts = [part.sum(0) for part in lai_parts((apply, PARAMS, loss), VALIDATION, BATCH)]
    report = stepped((apply, PARAMS, loss), given, BATCH)[2]
    np.testing.assert_allclose(report.scores, 0.25 * parts[0] + 0.5 * parts[1] + parts[2], rtol=1e-9)


def test_calibration_ignores_nonfinite_samples():
    inputs, targets = data(6)
    expected = summarize(apply, PARAMS, loss, inputs[1:], targets[1:], estimator="calibrated_lai")
    broken = inputs.at[0].set(jnp.nan)
    found = summarize(apply, PARAMS, loss, broken, targets, estimator="calibrated_lai")
    np.testing.assert_allclose(found.layer_weights, expected.layer_weights, rtol=1e-9)
    assert all(np.isfinite(total).all() for total in found.side.totals[0])
