"""Kernels, scores and summaries against gradients that are built entry by entry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lai_core as lai
from tests.support import explicit
from tests.support.traces import LAYOUTS, batches, trace

ESTIMATORS = ("ghost", "lli", "lai tokens", "lai mean", "lai flatten")


def kernel_of(estimator, left, right, weights=None):
    """Multiply explicit gradients: of all parameters, of the last layer's, or of virtual readouts."""
    name, _, positions = estimator.partition(" ")
    if name == "lai":
        return explicit.lai_kernel(left, right, positions, weights)
    gradients = explicit.parameter_gradients if name == "ghost" else explicit.last_layer_gradients
    return gradients(left) @ gradients(right).T


def forms(estimator, validation, training, options, weighted):
    """Yield results with what they should be of a kernel of both sides, and one of training with itself."""
    name, _, positions = estimator.partition(" ")
    kernel, scores = getattr(lai, f"{name}_kernel"), getattr(lai, f"{name}_scores")
    yield kernel(validation, training, **options), lambda both, _: both
    yield scores(validation, training, **options), lambda both, _: both.sum(0)
    others = scores(training, training, exclude_self=True, **options)
    yield others, lambda _, own: own.sum(0) - np.diag(own)
    if not weighted:
        positions = positions or "tokens"
        yield lai.self_influence(training, name, positions=positions), lambda _, own: np.diag(own)
    if positions != "flatten":
        chosen = {"positions": positions} if name == "lai" else {}
        summary = lai.summarize(validation, name, **chosen)
        yield scores(summary, training, **options), lambda both, _: both.sum(0)


@pytest.mark.equation("gradient1", "IP", "lli", "gradient2", "virtual-readout", "aggregation")
@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=30)  # of ten layouts
@given(batches(), st.booleans())
def test_every_form_matches_explicit_gradients(backend, estimator, pair, weighted):
    """Kernels, scores, scores of the others, norms and scores from a summary; LAI's layers weighted, too."""
    validation, training = (trace(side, backend) for side in pair)
    weights, options = None, {}
    if estimator.startswith("lai"):
        options["positions"] = estimator.partition(" ")[2]
        if weighted:
            weights = np.linspace(-1.0, 2.0, len(pair[0]))
            options["layer_weights"] = backend.array(weights) if len(pair[0]) % 2 else weights.tolist()
    both, own = (kernel_of(estimator, side, pair[1], weights) for side in pair)
    for found, expected in forms(estimator, validation, training, options, weights is not None):
        got, wanted = backend.numpy(found), expected(both, own)
        scale = 1e-12 * len(own) * max(1.0, np.abs(own).max(), np.abs(both).max())
        np.testing.assert_allclose(got, wanted, rtol=0, atol=scale)


def test_caller_arrays_are_never_modified(backend):
    layers = LAYOUTS[6].draw(3, 0)
    batch = trace(layers, backend)
    for score in (lai.ghost_scores, lai.lli_scores, lai.lai_scores):
        score(batch, batch, exclude_self=True)
    lai.summarize(batch, "ghost")
    for layer, record in zip(layers, batch.layers, strict=True):
        np.testing.assert_array_equal(backend.numpy(record.activations), layer.activations)
        np.testing.assert_array_equal(backend.numpy(record.output_gradients), layer.output_gradients)


def test_squared_norms_are_never_negative():
    """Of reads that cancel roundings are left."""
    half = np.random.default_rng(0).normal(size=(50, 3, 4))
    reads = lai.EmbeddingTrace(np.zeros((50, 6), int), np.concatenate([half, -half], 1), rows=3)
    assert (lai.self_influence(lai.Trace([reads]), "ghost") >= 0).all()
