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
from tests.support.inequalities import at_most, hunt
from tests.support.networks import Networks


def similarities(seed, shape=(3, 3, 4)):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape), rng.standard_normal(shape)


def independent(alpha, beta):
    """Whether the layers' columns of LAI are far from dependent: least squares has one answer then."""
    sizes = np.linalg.svd((alpha * beta[-1]).reshape(len(alpha), -1), compute_uv=False)
    return sizes[-1] > 1e-3 * sizes[0]


@pytest.mark.equation("minimax-weights")
@given(GENERATORS)
def test_minimax_weights_keep_their_bound_reach_it_and_no_weights_do_better(seed):
    rng = np.random.default_rng(seed)
    alpha, beta = similarities(seed)
    low, high = np.sort(rng.uniform(-1, 2, (2, 3)), axis=0)
    weights = calibration.minimax_weights(low, high)
    bound = calibration.minimax_bound(alpha, beta[-1], low, high)

    def worst(used, ends):
        ratio = np.where(ends, high, low)
        return np.abs(np.einsum("l,lzj,zj->j", ratio - used, alpha, beta[-1]))

    ratio = low[:, None, None] + rng.uniform(0, 1, alpha.shape) * (high - low)[:, None, None]
    error = np.abs(((ratio - weights[:, None, None]) * alpha * beta[-1]).sum((0, 1)))
    hunt(error, bound)
    assert at_most(error, bound)
    one = alpha[:, :1, :1], beta[-1, :1, :1]
    alpha, beta = (np.broadcast_to(x, (*x.shape[:-2], 1, 1)) for x in one)
    beta = beta[None]
    reach = calibration.minimax_bound(alpha, beta[-1], low, high)
    ends = (alpha * beta)[:, 0, 0] > 0
    np.testing.assert_allclose(worst(weights, ends), reach, rtol=1e-9, atol=1e-12)
    other = weights + rng.standard_normal(3)
    assert at_most(reach, np.maximum(worst(other, ends), worst(other, ~ends)))


@pytest.mark.equation("calibrated-least-squares")
@given(GENERATORS)
def test_no_weights_fit_better_than_least_squares(seed):
    alpha, beta = similarities(seed)
    assume(independent(alpha, beta))
    best = calibration.least_squares_weights(alpha, beta)
    reference = np.linalg.lstsq(
        (alpha * beta[-1]).reshape(3, -1).T, (alpha * beta).sum(0).ravel(), rcond=None
    )[0]
    np.testing.assert_allclose(best, reference, rtol=1e-6, atol=1e-9)


@pytest.mark.equation("calibrated-least-squares", "calibrated-decoupled")
@given(GENERATORS)
def test_proportional_similarities_are_recovered_whatever_the_embeddings(seed):
    rng = np.random.default_rng(seed)
    alpha, beta = similarities(seed)
    gains = np.append(rng.uniform(-1, 2, 2), 1.0)
    beta = gains[:, None, None] * beta[-1]
    assume(independent(alpha, beta))
    np.testing.assert_allclose(calibration.least_squares_weights(alpha, beta), gains, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(calibration.decoupled_weights(alpha, beta), gains, rtol=1e-9, atol=1e-12)


@pytest.mark.equation("calibrated-least-squares")
@given(GENERATORS, st.floats(0.01, 2), st.floats(0.1, 10))
def test_ridge_is_least_squares_with_rows_added_in_the_columns_own_units(seed, ridge, scale):
    alpha, beta = similarities(seed)
    beta = scale * beta
    assume((alpha * beta[-1]).any())
    columns = (alpha * beta[-1]).reshape(3, -1).T
    rows = np.sqrt(ridge * (columns**2).sum() / 3) * np.eye(3)
    target = np.concatenate([(alpha * beta).sum(0).ravel(), rows.sum(1)])
    expected = np.linalg.lstsq(np.concatenate([columns, rows]), target, rcond=None)[0]
    found = calibration.least_squares_weights(alpha, beta, ridge=ridge)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.equation("calibrated-decoupled")
@given(GENERATORS)
def test_block_weights_are_slopes_through_zero_of_each_layers_part(seed):
    rng = np.random.default_rng(seed)
    approximate, exact = rng.standard_normal((2, 3, 2, 4))
    found = calibration.block_weights(approximate, exact)
    slopes = [
        np.linalg.lstsq(x.reshape(-1, 1), y.ravel(), rcond=None)[0][0]
        for x, y in zip(approximate, exact, strict=True)
    ]
    np.testing.assert_allclose(found, slopes, rtol=1e-9)


@pytest.mark.equation("calibrated-model")
@given(GENERATORS, st.integers(1, 4))
def test_model_weights_are_the_slope_over_independent_gradients_exactly(seed, width):
    """Gradients take finitely many values each, so that expectations are sums over all pairs."""
    rng = np.random.default_rng(seed)
    of_z, of_j = rng.standard_normal((2, 5, width)) @ rng.standard_normal((width, width))
    operators = rng.standard_normal((2, 3, width))
    products = np.stack([a.T @ a for a in operators] + [np.eye(width)])
    top = of_z @ of_j.T
    assume(np.abs(top).max() > 1e-9)
    weights = calibration.model_weights(products, of_z.T @ of_z / 5, of_j.T @ of_j / 5)
    for weight, product in zip(weights, products, strict=True):
        below = of_z @ product @ of_j.T
        np.testing.assert_allclose(weight, (below * top).sum() / (top * top).sum(), rtol=1e-9, atol=1e-9)


@pytest.mark.equation("calibrated-decoupled", "lightweight-calibration")
@given(GENERATORS, st.integers(2, 4))
def test_weights_fitted_to_a_linear_binary_softmax_give_ghost_itself(seed, depth):
    """Gradients at the top are all multiples of (1, -1), so that every layer's are of one direction."""
    rng = np.random.default_rng(seed)
    widths = [3] * depth + [2]
    weights = tuple(rng.standard_normal((1, d, below)) for below, d in itertools.pairwise(widths))
    networks = Networks(weights, loss="softmax")
    batches = [networks.run(rng.standard_normal((1, n, 3)), rng.integers(0, 2, (1, n))) for n in (2, 4)]
    traces = [batch.trace() for batch in batches]
    measured = similarities_of(*traces)
    fitted = calibration.decoupled_weights(measured.alpha, measured.beta)
    calibrated, ghost = lai.lai_scores(*traces, layer_weights=fitted), lai.ghost_scores(*traces)
    np.testing.assert_allclose(calibrated, ghost, rtol=1e-6, atol=1e-9 * (1 + np.abs(ghost).max()))


@pytest.mark.equation("calibrated-decoupled")
def test_a_layer_that_lai_does_not_see_gets_no_weight():
    alpha = np.array([[[0.0]], [[1.0]]])
    assert calibration.decoupled_weights(alpha, np.ones((2, 1, 1))).tolist() == [0.0, 1.0]
