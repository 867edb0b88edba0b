"""Variances of Ghost and LAI over every outcome of a finite law, against the identities and bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import variance
from tests.support.draws import GENERATORS
from tests.support.inequalities import hunt
from tests.support.outcomes import moments

LAYERS, OUTCOMES = 3, 5
close = {"rtol": 1e-8, "atol": 1e-9}


class Law:
    """Layer similarities that take finitely many values together, with alphas and gains."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.similarities = rng.standard_normal((LAYERS, OUTCOMES)) + rng.standard_normal((LAYERS, 1))
        weights = rng.uniform(0.05, 1.0, OUTCOMES)
        self.weights = weights / weights.sum()
        self.alpha, self.gains = rng.standard_normal((2, LAYERS))
        self.shared = self.similarities[-1]
        self.remainders = self.similarities - self.gains[:, None] * self.shared
        self.ghost, self.noise = self.alpha @ self.similarities, self.alpha @ self.remainders

    def variance(self, values):
        return np.asarray(moments(values, self.weights)[1])

    def covariance(self, left, right):
        return (self.variance(left + right) - self.variance(left - right)) / 4

    def moments(self):
        """Return Var beta*, Cov(beta*, epsilon) and Cov(epsilon, epsilon)."""
        rests = self.remainders
        cross = np.array([self.covariance(self.shared, rest) for rest in rests])
        noise = np.array([[self.covariance(left, right) for right in rests] for left in rests])
        return self.variance(self.shared), cross, noise


LAWS = st.builds(Law, GENERATORS)


@pytest.mark.equation("signal-and-noise", "ghost-signal-noise", "lai-signal")
@given(LAWS)
def test_ghost_adds_noise_to_lais_signal(law):
    signal, noise = variance.signal_and_noise(law.alpha, law.gains, law.similarities)
    np.testing.assert_allclose(signal, (law.alpha @ law.gains) * law.shared, **close)
    np.testing.assert_allclose(signal + noise, law.ghost, **close)
    ghost = variance.ghost_signal_noise(law.alpha, law.gains, law.shared, law.remainders)
    np.testing.assert_allclose(ghost, law.ghost, **close)
    lai = variance.lai_signal(law.alpha, law.shared)
    np.testing.assert_allclose(lai, law.alpha.sum() * law.shared, **close)


@pytest.mark.equation("app-var-exact", "app-var-eps", "app-var-lai", "app-ghost-var")
@given(LAWS)
def test_variances_are_those_of_the_outcomes(law):
    """The printed one is short of the covariance of signal and noise."""
    signal, cross, noise = law.moments()
    ghost = variance.ghost_variance(law.alpha, law.gains, signal, cross, noise)
    np.testing.assert_allclose(ghost, law.variance(law.ghost), **close)
    np.testing.assert_allclose(variance.noise_variance(law.alpha, noise), law.variance(law.noise), **close)
    lai = variance.lai_variance(law.alpha, signal)
    np.testing.assert_allclose(lai, law.variance(law.alpha.sum() * law.shared), **close)
    printed = variance.printed_ghost_variance(law.alpha, law.gains, signal, noise)
    missing = 2 * (law.alpha @ law.gains) * law.covariance(law.shared, law.noise)
    np.testing.assert_allclose(printed + missing, law.variance(law.ghost), rtol=1e-8, atol=1e-8)


@pytest.mark.equation("random-weight-sum")
@given(GENERATORS)
def test_variances_with_random_alpha_match_enumeration(seed):
    """Alphas that take three values together, independently of the similarities; LAI's are all the last."""
    law, rng = Law(seed), np.random.default_rng(seed + 1)
    alphas, chances = rng.standard_normal((3, LAYERS)), rng.dirichlet(np.ones(3))
    pairs = list(itertools.product(range(3), range(OUTCOMES)))
    of_alpha = chances @ alphas, (alphas.T * chances) @ alphas
    for rows in (law.similarities, np.stack([law.shared] * LAYERS)):
        values = [alphas[i] @ rows[:, k] for i, k in pairs]
        expected = moments(values, [chances[i] * law.weights[k] for i, k in pairs])[1]
        second = (rows * law.weights) @ rows.T
        found = variance.random_weight_sum(*of_alpha, rows @ law.weights, second)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.equation("minkowski-lower-bound", "app-var-CS-lb", "noise-energy-floor")
@given(LAWS)
def test_lower_bounds_without_assumptions(law):
    ghost, noise = law.variance(law.ghost), law.variance(law.noise)
    bound = variance.minkowski_lower_bound(ghost, noise)
    assert bound <= law.variance(law.ghost + law.noise) * (1 + 1e-9) + 1e-12
    bound = variance.ghost_variance_lower_bound(law.alpha, law.gains, law.variance(law.shared), noise)
    scale = abs(law.alpha @ law.gains) * np.sqrt(law.variance(law.shared))
    assert bound == pytest.approx((scale - np.sqrt(noise)) ** 2, rel=1e-7, abs=1e-9)
    hunt(bound, ghost)
    assert bound <= ghost * (1 + 1e-9) + 1e-12


@pytest.mark.equation("signed-covariance-bound", "app-var-corr-lb", "noise-only-bound")
@given(LAWS)
def test_lower_bounds_need_nonnegative_covariance(law):
    """The printed one holds exactly where the signed covariance is not negative."""
    signal, cross, noise = law.moments()
    whole, noise_only = variance.signed_covariance_bound(law.alpha, law.gains, signal, cross, noise)
    printed = variance.printed_ghost_variance(law.alpha, law.gains, signal, noise)
    exact = law.variance(law.ghost)
    hunt(whole, exact)
    assert noise_only <= whole + 1e-12
    assert whole <= exact * (1 + 1e-9) + 1e-9
    signed = (law.alpha @ law.gains) * law.covariance(law.shared, law.noise)
    assert (printed <= exact + 1e-9) == (signed >= -1e-9)
    if signed >= 0:
        assert whole == pytest.approx(printed, rel=1e-9)
        assert noise_only == pytest.approx(law.variance(law.noise), rel=1e-8, abs=1e-9)
