"""Mean scores of sources and what their errors allow to conclude, against sums written out."""

import fractions
import itertools
import math
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import example, given
from hypothesis import strategies as st

from lai_core import mixtures
from lai_core._engine.namespace import xp_of
from lai_core._theory.chi_squared import upper_quantile
from proofs import prove_mixtures
from tests.support.inequalities import at_most, hunt

NUMBERS = st.integers(-6, 6).map(float) | st.just(math.nan)
GROUPED = st.lists(st.tuples(NUMBERS, st.integers(-1, 3)), min_size=1, max_size=12)
POSITIVE = st.floats(0.05, 20)


def written_out(pairs, count):
    """Means and standard errors by fractions, group by group."""
    groups = [
        [fractions.Fraction(score) for score, group in pairs if group == k and math.isfinite(score)]
        for k in range(count)
    ]
    means = [sum(group) / len(group) if group else fractions.Fraction(0) for group in groups]
    squares = [sum((x - m) ** 2 for x in group) for m, group in zip(means, groups, strict=True)]
    freedom = sum(max(len(group) - 1, 0) for group in groups)
    errors = []
    for group, square in zip(groups, squares, strict=True):
        if len(group) > 1:
            errors.append(math.sqrt(square / (len(group) - 1) / len(group)))
        else:
            errors.append(math.sqrt(sum(squares) / freedom) if group and freedom else math.inf)
    return [float(m) for m in means], errors


@pytest.mark.equation("share-derivative")
@given(GROUPED, st.integers(1, 4), st.sampled_from([1.0, 1e307]))
@example([(-1.0, 0), (-3.0, 0)], 1, 1e307)
@example([(1.0, 0), (2.0, 0), (6.0, 0), (5.0, 1)], 2, 1.0)
def test_group_scores_are_means_with_errors(pairs, count, unit):
    """Squares of the larger unit are infinite."""
    scores, groups = (np.array(column) for column in zip(*pairs, strict=True))
    found = mixtures.group_scores(scores * unit, groups, count)
    for one, other in zip(found, written_out(pairs, count), strict=True):
        np.testing.assert_allclose(one / unit, other, rtol=1e-12, atol=1e-12)


def test_groups_of_narrow_types():
    """Of 300 groups uint8 holds 256 numbers, and -1 is no group."""
    scores = np.array([1.0, 2.0, 4.0, 8.0])
    for ids, found in (([0, 1, 44, 255], 4), ([0, 1, 44, -1], 3)):
        groups = np.array(ids, dtype=np.uint8 if found == 4 else np.int8)
        means = mixtures.group_scores(scores, groups, 300)[0]
        assert np.flatnonzero(means).tolist() == [one for one in ids if one >= 0]
        assert mixtures.group_sizes(scores, groups, 300).sum() == found


@pytest.mark.equation("contrast-variance")
@given(st.lists(POSITIVE, min_size=1, max_size=6))
def test_contrast_variances_match_sign_enumeration(deviations):
    """Errors are plus or minus a deviation, so that all outcomes can be listed."""
    signs = np.array(list(itertools.product((1, -1), repeat=len(deviations))))
    outcomes = signs * np.array(deviations)
    contrasts = outcomes - outcomes.mean(1, keepdims=True)
    found = mixtures.contrast_variances(np.array(deviations) ** 2)
    np.testing.assert_allclose(found, (contrasts**2).mean(0), rtol=1e-9, atol=1e-12)
    proved = prove_mixtures.CONTRAST.numbers("rhs", depth=len(deviations))(*np.square(deviations))
    np.testing.assert_allclose(found[0], float(proved), rtol=1e-12)


@pytest.mark.equation("contrast-shrinkage")
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 9)), min_size=1, max_size=6), st.floats(-1, 2))
@example([(1.0, 0.0), (0.0, 9.0)], 0.5)
def test_contrasts_shrink_to_their_signal_share(pairs, factor):
    contrasts, variances = np.array(pairs).T
    found = mixtures.shrink_contrasts(contrasts, variances)
    signal = max(0.0, float(np.mean(contrasts**2 - variances)))
    if not signal:
        assert not np.any(found)
        return
    np.testing.assert_allclose(found, contrasts * (signal / (signal + variances)), rtol=1e-12)
    for variance in variances:
        share = signal / (signal + variance)
        errors = [(1 - x) ** 2 * signal + x**2 * variance for x in (share, factor)]
        assert at_most(*errors)
        if variance:
            proved = prove_mixtures.SHRINKAGE.numbers("lhs", depth=1, index=1)(signal, variance, 0.0)
            assert errors[0] == pytest.approx(float(proved))


@pytest.mark.equation("cochran-q")
@given(st.lists(POSITIVE, min_size=1, max_size=6), st.floats(-3, 3))
def test_cochran_statistic_averages_degrees_of_freedom(deviations, mean):
    """Over all outcomes of fair signs, whatever the common mean is."""
    signs = np.array(list(itertools.product((1, -1), repeat=len(deviations))))
    errors = np.broadcast_to(deviations, signs.shape)
    values = mixtures.cochran_q(mean + signs * errors, errors)
    assert float(np.mean(values)) == pytest.approx(len(deviations) - 1, abs=1e-9 * (1 + mean**2) * 400)


@pytest.mark.equation("cochran-q")
@given(st.lists(st.tuples(st.floats(-5, 5), POSITIVE), min_size=1, max_size=5))
def test_cochran_statistic_skips_sources_without_errors(pairs):
    means, errors = np.array(pairs).T
    for unknown, error in ((7.0, np.inf), (np.nan, np.inf), (7.0, 0.0)):
        more = mixtures.cochran_q(np.append(means, unknown), np.append(errors, error))
        np.testing.assert_allclose(more, mixtures.cochran_q(means, errors), rtol=1e-12)


def wallaces_sum(means, errors, freedom, centre):
    """Wallace's sum about a centre."""
    total = 0.0
    for m, e, v in zip(means, errors, freedom, strict=True):
        square = ((m - centre) / e) ** 2
        total += square if v == math.inf else ((8 * v + 1) / (8 * v + 3)) ** 2 * v * np.log1p(square / v)
    return total


@given(st.integers(0, 2**32))
def test_wallace_sums_stay_near_their_least(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        count = rng.integers(2, 8)
        errors, freedom = np.exp(rng.normal(size=count)), rng.choice([2.0, 3.0, 9.0, 40.0, math.inf], count)
        means = rng.normal(size=count) * errors * rng.choice([1, 3, 10])
        sums, near = partial(wallaces_sum, means, errors, freedom), np.linspace(-3, 3, 601)[:, None] * errors
        grid = np.sort(np.concatenate([np.linspace(means.min(), means.max(), 2001), (means + near).ravel()]))
        best = np.clip(np.argmin(sums(grid)), 1, len(grid) - 2)
        least = scipy.optimize.minimize_scalar(sums, bounds=grid[[best - 1, best + 1]]).fun
        found = mixtures._q_of_estimates(xp_of(means), means, errors, 1 / freedom)
        assert least * 0.999 <= found <= least * 1.02


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 101, 999])
@pytest.mark.parametrize("tail", [0.99, 0.5, 0.05, 1e-4, 1e-9])
def test_chi_squared_quantiles_are_scipys(tail, freedom):
    assert upper_quantile(tail, freedom) == pytest.approx(scipy.stats.chi2.isf(tail, freedom), rel=1e-11)


def test_chi_squared_quantiles_reach_range_ends():
    assert (upper_quantile(0.0, 3), upper_quantile(1.0, 3)) == (math.inf, 0.0)


@pytest.mark.equation("hedge-step")
@given(st.integers(1, 50), st.floats(0.5, 100), POSITIVE)
def test_hedge_step_has_the_least_bound(count, horizon, other):
    def bound(step):
        return math.log(count) / step + step * horizon

    best = mixtures.hedge_step_size(count, horizon)
    if count == 1:
        assert best == 0.0
        return
    hunt(bound(best), bound(other))
    assert at_most(bound(best), bound(other))
    proved = prove_mixtures.STEP.numbers("rhs", depth=1, index=1)(
        math.sqrt(math.log(count)), math.sqrt(horizon), 1.0
    )
    assert bound(best) == pytest.approx(proved) == pytest.approx(2 * math.sqrt(horizon * math.log(count)))
