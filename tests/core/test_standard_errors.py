"""Errors and intervals of scores at ties, zeros and ends: by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

import lai_core as lai
from lai_core import shapley
from lai_core._theory.student import upper_quantile
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


@pytest.mark.parametrize("freedom", [1, 2, 5, 63, 400])
def test_quantiles_of_students_law_at_every_tail_and_its_ends(freedom):
    for tail in (1e-9, 1e-4, 0.05, 0.3, 0.4999, 0.5, 0.7, 0.99):
        expected = stats.t.isf(tail, freedom)
        assert upper_quantile(tail, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert upper_quantile(0.0, freedom) == upper_quantile(-1.0, freedom) == math.inf


def test_the_standard_error_of_sampled_orders():
    """The loss theta^2 / 2 at 0: a sample adds -1/2 when it comes first and -3/2 when second."""
    mean, error = shapley.monte_carlo_shapley(
        lambda theta: theta[0] ** 2 / 2, np.zeros(1), np.ones((2, 1)), [[0, 1], [1, 0]] * 2, learning_rate=1.0
    )
    assert mean.tolist() == [-1.0, -1.0]
    np.testing.assert_allclose(error**2, 1 / 12, rtol=1e-12)  # four deviations of 1/2, over 4 x 3
