"""Two-sided bounds in the ratios of similarities: never violated, and both ends attained."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import bounds
from tests.support.draws import GENERATORS
from tests.support.entries import halves
from tests.support.inequalities import at_most, hunt

POSITION = st.sampled_from(["inside", "low", "high"])


def bounded_ratios(seed, position, by_pair):
    """Draw alpha >= 0, beta >= 0 at the top and ratios between bounds, layer by layer or pair by pair."""
    rng = np.random.default_rng(seed)
    depth, shape = int(rng.integers(1, 6)), (2, 3)
    low, high = np.sort(rng.uniform(-1, 2, (2, depth, *(shape if by_pair else (1, 1)))), axis=0)
    low[-1] = high[-1] = 1.0
    share = {"low": 0.0, "high": 1.0}.get(position, rng.uniform(0, 1, (depth, *shape)))
    ratio = low + share * (high - low)
    alpha, last = rng.uniform(0.01, 2, (depth, *shape)), rng.uniform(0.01, 2, shape)
    ends = (low, high) if by_pair else (low[:, 0, 0], high[:, 0, 0])
    return alpha, ratio * np.ones((depth, *shape)) * last, *ends


def scores(alpha, beta):
    ghost, layer_aware = (np.einsum("lzj,lzj->j", alpha, x) for x in (beta, beta[-1:] * np.ones_like(beta)))
    return ghost, layer_aware, (alpha[-1] * beta[-1]).sum(0)


@pytest.mark.equation("lai-two-sided")
@given(GENERATORS, POSITION, st.booleans())
def test_gaps_stay_within_and_attain_bounds(seed, position, by_pair):
    alpha, beta, low, high = bounded_ratios(seed, position, by_pair)
    ghost, layer_aware, _ = scores(alpha, beta)
    difference = layer_aware - ghost
    smallest, largest = bounds.lai_gap_range(alpha, beta[-1], low, high)
    hunt(difference, largest)
    assert at_most(smallest, difference)
    assert at_most(difference, largest)
    if position != "inside":
        end = {"low": largest, "high": smallest}[position]
        np.testing.assert_allclose(difference, end, rtol=1e-9, atol=1e-12)


@pytest.mark.equation("relative-below-one")
@given(halves((3, 3, 2), 0, 2), halves((3, 2), 0, 2), halves((2, 3, 2), 0, 1))
def test_zero_similarities_do_not_affect_bounds(alpha, last, ratios):
    """Zeros and ties: the bound holds, and is that of the validation samples that share anything."""
    beta = np.concatenate([ratios, np.ones((1, 3, 2))]) * last
    ghost, layer_aware, _ = scores(alpha, beta)
    error = bounds.relative_error_bound(alpha)
    assert at_most(np.abs(ghost - layer_aware), error * layer_aware)
    assert at_most(bounds.relative_error_bound(alpha[:, :1]), error)
    for j in range(2):
        shares = [of[-1] / of.sum() for of in alpha[:, :, j].T if of.any()]
        np.testing.assert_allclose(error[j], 1 - min(shares, default=1.0), rtol=1e-12, atol=1e-15)


@pytest.mark.equation("relative-limit")
@given(halves((3, 2, 1)), halves((2, 1)))
def test_relative_limit_is_the_lli_distance(alpha, last):
    """Ghost is LLI where all but the last similarities vanish, whatever the signs."""
    lower = np.zeros((2, 2, 1))
    ghost, layer_aware, _ = scores(alpha, np.concatenate([lower, last[None]]))
    if layer_aware[0] != 0:
        expected = abs(layer_aware[0] - ghost[0]) / abs(layer_aware[0])
        np.testing.assert_allclose(bounds.relative_limit(alpha, last)[0], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.equation("lai-nearer-than-lli")
@given(halves((2, 2, 2, 1), -2, 2))
def test_mean_ratio_criterion_covers_any_sign(similarities):
    alpha, beta = similarities
    ghost, layer_aware, last = scores(alpha, beta)
    mean = bounds.mean_ratio(alpha, beta)
    of_lai, of_lli = np.abs(ghost - layer_aware), np.abs(ghost - last)
    assert ((mean > 0.5) == (of_lai < of_lli)).all()
    assert ((mean == 0.5) == (of_lai == of_lli)).all()


@pytest.mark.equation("lai-nearer-than-lli")
@pytest.mark.parametrize(("depth", "rate"), [(2, 0.707), (6, 0.882), (24, 0.968)])
def test_lai_is_nearer_above_threshold_rates(depth, rate):
    for rho, nearer in ((rate - 0.001, False), (rate + 0.001, True)):
        beta = rho ** (2.0 * np.arange(depth - 1, -1, -1))[:, None, None]
        assert (bounds.mean_ratio(np.ones_like(beta), beta)[0] > 0.5) == nearer
