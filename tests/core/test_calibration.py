"""Layer weights: what each choice of them minimises, and where it recovers Ghost."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import calibration
from lai_core.assumptions import similarities as similarities_of
from tests.support.draws import GENERATORS
from tests.support.networks import Networks


def similarities(seed, shape=(3, 3, 4)):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape), rng.standard_normal(shape)


def weights_of(alpha, beta):
    """Fit the weights of layers with one vector a sample."""
    return calibration.block_weights(alpha * beta[-1:], alpha * beta)


@pytest.mark.equation("calibrated-decoupled")
@given(GENERATORS)
def test_proportional_similarities_are_recovered(seed):
    rng = np.random.default_rng(seed)
    alpha, beta = similarities(seed)
    gains = np.append(rng.uniform(-1, 2, 2), 1.0)
    beta = gains[:, None, None] * beta[-1]
    assume((alpha * beta[-1]).any((1, 2)).all())
    np.testing.assert_allclose(weights_of(alpha, beta), gains, rtol=1e-9, atol=1e-12)


@pytest.mark.equation("calibrated-decoupled", "lightweight-calibration")
@given(GENERATORS, st.integers(2, 4))
def test_linear_binary_softmax_weights_recover_ghost(seed, depth):
    """Gradients at the top are all multiples of (1, -1), so that every layer's are of one direction."""
    rng = np.random.default_rng(seed)
    widths = [3] * depth + [2]
    weights = tuple(rng.standard_normal((1, d, below)) for below, d in itertools.pairwise(widths))
    networks = Networks(weights, loss="softmax")
    batches = [networks.run(rng.standard_normal((1, n, 3)), rng.integers(0, 2, (1, n))) for n in (2, 4)]
    traces = [batch.trace() for batch in batches]
    measured = similarities_of(*traces)
    fitted = weights_of(measured.alpha, measured.beta)
    calibrated, ghost = lai.lai_scores(*traces, layer_weights=fitted), lai.ghost_scores(*traces)
    np.testing.assert_allclose(calibrated, ghost, rtol=1e-6, atol=1e-9 * (1 + np.abs(ghost).max()))


@pytest.mark.equation("calibrated-decoupled")
def test_layers_unseen_by_lai_weigh_nothing():
    alpha = np.array([[[0.0]], [[1.0]]])
    assert weights_of(alpha, np.ones((2, 1, 1))).tolist() == [0.0, 1.0]
