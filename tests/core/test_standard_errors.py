"""Errors and intervals of scores at ties, zeros and ends: by hand."""

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

import lai_core as lai
from lai_core import shapley
from lai_core._theory.student import upper_quantile, upper_tail
from lai_core.estimators.policies import standard_errors
from tests.support.entries import halves


@given(halves((4, 3)))
def test_the_standard_error_is_that_of_the_sum_of_the_parts(parts):
    expected = 2.0 * parts.std(axis=0, ddof=1)  # sqrt(m) times the parts' standard deviation, m = 4
    np.testing.assert_allclose(standard_errors(parts), expected, rtol=1e-12, atol=1e-15)


def test_a_part_counts_as_many_validation_samples_as_it_has():
    """A part of two samples is two draws of half of it: sizes and parts are not exchanged."""
    parts = np.array([[1.0], [3.0], [5.0]])
    equal = standard_errors(parts, sizes=[2.0, 2.0, 2.0])
    np.testing.assert_allclose(equal, standard_errors(parts), rtol=1e-12)


@pytest.mark.equation("false-discovery-rate")
def test_parts_without_spread_hurt_exactly_where_they_are_negative():
    parts = np.array([[-1.0, 0.0, 1.0]] * 4)
    assert (lai.drop_harmful(parts, rate=0.1) > 0).tolist() == [False, True, True]


@pytest.mark.equation("empirical-bernstein")
def test_a_score_of_zero_hurts_with_no_strength_at_all():
    assert lai.drop_harmful(np.zeros((400, 1)), rate=0.9, bound=1.0).tolist() == [1.0]
    assert lai.drop_harmful(-np.ones((400, 1)), rate=0.9, bound=1.0).tolist() == [0.0]


@pytest.mark.parametrize("freedom", [1, 2, 5, 16, 63, 400, 10**6])
def test_the_tail_of_students_law_and_its_quantiles(freedom):
    degrees = np.asarray(float(freedom))
    for tail in (1e-17, 1e-9, 1e-4, 0.025, 0.3, 0.4999):
        expected = stats.t.isf(tail, freedom)
        assert upper_quantile(np, tail, degrees) == pytest.approx(expected, rel=1e-9)
    t = np.array([0.0, 1e-3, 0.3, 1.0, 2.5, 6.0, 40.0, 1e8])
    for values in (t, -t):
        np.testing.assert_allclose(upper_tail(np, values, degrees), stats.t.sf(values, freedom), rtol=1e-12)
    assert upper_tail(np, np.array([np.inf, -np.inf]), degrees).tolist() == [0.0, 1.0]
    single = upper_tail(np, t.astype(np.float32), degrees.astype(np.float32))
    np.testing.assert_allclose(single, stats.t.sf(t, freedom), rtol=2e-4, atol=1e-30)


def test_the_standard_error_of_sampled_orders():
    """The loss theta^2 / 2 at 0: a sample adds -1/2 when it comes first and -3/2 when second."""
    mean, error = shapley.monte_carlo_shapley(
        lambda theta: theta[0] ** 2 / 2, np.zeros(1), np.ones((2, 1)), [[0, 1], [1, 0]] * 2, learning_rate=1.0
    )
    assert mean.tolist() == [-1.0, -1.0]
    np.testing.assert_allclose(error**2, 1 / 12, rtol=1e-12)  # four deviations of 1/2, over 4 x 3


@pytest.mark.equation("false-discovery-rate")
@pytest.mark.parametrize("dependence", ["arbitrary", "positive"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_sample_is_dropped_from_its_adjusted_p_value_on(dependence, n):
    parts = np.random.default_rng(n).standard_normal((4, n)) - 0.5
    p_values = stats.ttest_1samp(parts, 0.0, alternative="less").pvalue
    method = {"arbitrary": "by", "positive": "bh"}[dependence]
    adjusted = stats.false_discovery_control(p_values, method=method)
    for sample in np.flatnonzero(adjusted < 0.999):
        for rate, kept in ((adjusted[sample] * (1 - 1e-6), True), (adjusted[sample] * (1 + 1e-6), False)):
            weights = lai.drop_harmful(parts, rate=float(rate), dependence=dependence)
            assert (weights[sample] > 0) == kept


@pytest.mark.equation("false-discovery-rate")
def test_a_p_value_that_is_its_limit_rejects():
    assert lai.drop_harmful(np.array([[1.0], [-1.0]]), rate=0.5).tolist() == [0.0]


@pytest.mark.equation("false-discovery-rate")
def test_a_sample_that_is_not_finite_makes_no_other_one_easier_to_drop():
    """Of two samples the p-values are .2 and none; the limits are .15 and .3 at a rate of .3."""
    parts = np.array([[0.0], [-1.0], [0.0], [-1.0]]) - 0.02
    p_value = stats.ttest_1samp(parts[:, 0], 0.0, alternative="less").pvalue
    parts = np.hstack([parts, np.full((4, 1), np.nan)])
    for rate, kept in ((1.5 * p_value, 1.0), (2.01 * p_value, 0.0)):
        assert lai.drop_harmful(parts, rate=float(rate), dependence="positive").tolist() == [kept, 0.0]


@pytest.mark.equation("empirical-bernstein")
@given(halves((3, 1), -4, 1))
def test_bernsteins_p_value_is_where_the_interval_ends_at_zero(parts):
    """The root of `score + sqrt(2 m v) x + 14 m b x^2 / (3 (m - 1))`; the limit of one test is the rate."""
    score, root, linear = parts.sum(), np.sqrt(6 * parts.var(ddof=1)), 14.0 * 0.25 * 3 / (3 * 2)
    x = (-root + np.sqrt(root**2 - 4 * linear * min(score, 0.0))) / (2 * linear)
    p_value = 2 * np.exp(-(x**2))
    for rate, kept in ((p_value * (1 - 1e-6), True), (p_value * (1 + 1e-6), False)):
        if rate <= 1:
            assert (lai.drop_harmful(parts, rate=float(rate), bound=0.25)[0] > 0) == kept


@pytest.mark.equation("empirical-bernstein")
def test_bernsteins_test_drops_no_sample_that_helps():
    """However little: a score of 1/2 with a spread beside which the bound is small."""
    parts = np.tile([[0.0095], [-0.0095]], (300, 1)) + 0.5 / 600
    assert lai.drop_harmful(parts, rate=0.9, bound=0.01).tolist() == [1.0]
