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
from tests.support.search import largest_margin

seeds = st.integers(0, 2**20)
LAYERS, OUTCOMES = 3, 5
close = {"rtol": 1e-9, "atol": 1e-9}


class Law:
    """Layer similarities that take finitely many values together, with alphas and gains."""

    def __init__(self, seed, layers=LAYERS):
        rng = np.random.default_rng(seed)
        self.similarities = rng.standard_normal((layers, OUTCOMES)) + rng.standard_normal((layers, 1))
        weights = rng.uniform(0.05, 1.0, OUTCOMES)
        self.weights = weights / weights.sum()
        self.alpha, self.gains = rng.standard_normal((2, layers))
        self.shared = self.similarities[-1]
        self.remainders = self.similarities - self.gains[:, None] * self.shared

    def variance(self, values):
        """Return the variance of one variable."""
        return moments(values, self.weights)[1]

    def covariance(self, left, right):
        """Return the covariance of two variables, by polarisation."""
        return (self.variance(left + right) - self.variance(left - right)) / 4

    def ghost(self):
        """Return Ghost's outcomes."""
        return self.alpha @ self.similarities

    def noise(self):
        """Return Y's outcomes."""
        return self.alpha @ self.remainders

    def moments(self):
        """Return Var beta*, Cov(beta*, epsilon) and Cov(epsilon, epsilon)."""
        rests = self.remainders
        cross = np.array([self.covariance(self.shared, rest) for rest in rests])
        noise = np.array([[self.covariance(left, right) for right in rests] for left in rests])
        return np.asarray(self.variance(self.shared)), cross, noise


def listed(backend, arrays):
    return [backend.array(array) for array in arrays]


@pytest.mark.equation("signal-and-noise", "ghost-signal-noise", "lai-signal")
@given(seed=GENERATORS)
def test_ghost_is_signal_plus_noise_and_lai_signal_alone(backend, seed):
    law = Law(seed)
    alpha, gains, similarities = listed(backend, (law.alpha, law.gains, law.similarities))
    signal, noise = variance.signal_and_noise(alpha, gains, similarities)
    np.testing.assert_allclose(backend.numpy(signal), (law.alpha @ law.gains) * law.shared, **close)
    np.testing.assert_allclose(backend.numpy(signal) + backend.numpy(noise), law.ghost(), **close)
    shared, remainders = listed(backend, (law.shared, law.remainders))
    ghost = variance.ghost_signal_noise(alpha, gains, shared, remainders)
    np.testing.assert_allclose(backend.numpy(ghost), law.ghost(), **close)
    lai = variance.lai_signal(alpha, shared)
    np.testing.assert_allclose(backend.numpy(lai), sum(a * law.shared for a in law.alpha), **close)


@pytest.mark.equation("ghost-signal-noise", "lai-signal", "signal-and-noise")
def test_counterexample_two_equal_validation_samples_vary_four_times_as_much():
    """The printed displays drop the sum over z: beta = 0 or 2, alpha = c = 1, z twice: 4, not 1 nor 2."""
    beta, half, one = np.array([[0.0, 2.0]]), np.array([0.5, 0.5]), np.ones(1)
    signal, noise = variance.signal_and_noise(one, one, beta)
    ghost = variance.ghost_signal_noise(one, one, beta[0], 0 * beta)
    for single in (signal + noise, ghost, variance.lai_signal(one, beta[0])):
        assert moments(single, half)[1] == 1.0
        assert moments(2 * single, half)[1] == 4.0


@pytest.mark.equation("app-var-exact", "app-var-eps", "app-var-lai")
@given(seed=GENERATORS)
def test_variances_are_those_of_the_outcomes(backend, seed):
    law = Law(seed)
    alpha, gains, *known = listed(backend, (law.alpha, law.gains, *law.moments()))
    ghost = float(variance.ghost_variance(alpha, gains, *known))
    assert ghost == pytest.approx(law.variance(law.ghost()), rel=1e-8, abs=1e-9)
    noise = float(variance.noise_variance(alpha, known[2]))
    assert noise == pytest.approx(law.variance(law.noise()), rel=1e-8, abs=1e-9)
    lai = float(variance.lai_variance(alpha, known[0]))
    assert lai == pytest.approx(law.variance(law.alpha.sum() * law.shared), rel=1e-8, abs=1e-9)


@pytest.mark.equation("app-var-exact")
@given(seed=GENERATORS)
def test_moments_of_outcomes(backend, seed):
    law = Law(seed)
    similarities, weights = listed(backend, (law.similarities, law.weights))
    means = backend.numpy(variance.expectation(similarities, weights))
    np.testing.assert_allclose(means, np.average(law.similarities, axis=1, weights=law.weights), **close)
    found = backend.numpy(variance.covariances(similarities, similarities[:2, ...], weights))
    expected = np.cov(law.similarities, aweights=law.weights, bias=True)[:, :2]
    np.testing.assert_allclose(found, expected, **close)


@pytest.mark.equation("app-ghost-var")
@given(seed=GENERATORS)
def test_printed_variance_is_short_of_the_covariance_of_signal_and_noise(backend, seed):
    law = Law(seed)
    alpha, gains, signal, _, noise = listed(backend, (law.alpha, law.gains, *law.moments()))
    printed = float(variance.printed_ghost_variance(alpha, gains, signal, noise))
    cross = 2 * (law.alpha @ law.gains) * law.covariance(law.shared, law.noise())
    assert printed + cross == pytest.approx(law.variance(law.ghost()), rel=1e-8, abs=1e-8)


@pytest.mark.equation("app-ghost-var")
def test_counterexample_a_dead_layer_varies_by_one_and_is_printed_as_five():
    """beta_1 = 0, alpha = c = (1, 1), beta* = +-1: X = 2 beta* and Y = -beta*."""
    ones, noise = np.ones(2), np.array([[1.0, 0.0], [0.0, 0.0]])
    arguments = (ones, ones, np.asarray(1.0))
    assert float(variance.ghost_variance(*arguments, np.array([-1.0, 0.0]), noise)) == 1.0
    assert float(variance.printed_ghost_variance(*arguments, noise)) == 5.0


@pytest.mark.equation("app-ghost-var")
def test_search_finds_counterexamples_to_the_printed_variance():
    def margin(seed):
        law = Law(seed)
        signal, _, noise = law.moments()
        printed = float(variance.printed_ghost_variance(law.alpha, law.gains, signal, noise))
        return abs(printed / law.variance(law.ghost()) - 1)

    assert largest_margin(seeds, margin, examples=50) > 1.0


@pytest.mark.equation("random-weight-sum")
@given(seed=GENERATORS)
def test_variance_of_a_sum_with_random_alpha(backend, seed):
    """Alphas that take three values together, independently of the similarities."""
    law = Law(seed)
    rng = np.random.default_rng(seed + 1)
    alphas, chances = rng.standard_normal((3, LAYERS)), rng.dirichlet(np.ones(3))
    pairs = list(itertools.product(range(3), range(OUTCOMES)))
    values = [alphas[i] @ law.similarities[:, k] for i, k in pairs]
    expected = moments(values, [chances[i] * law.weights[k] for i, k in pairs])[1]
    second = (law.similarities * law.weights) @ law.similarities.T
    arguments = (chances @ alphas, (alphas.T * chances) @ alphas, law.similarities @ law.weights, second)
    found = float(variance.random_weight_sum(*listed(backend, arguments)))
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)
    shared = [alphas[i].sum() * law.shared[k] for i, k in pairs]  # LAI: every similarity is the last
    lai = moments(shared, [chances[i] * law.weights[k] for i, k in pairs])[1]
    ones = np.ones(LAYERS)
    same = (ones * (law.shared @ law.weights), np.outer(ones, ones) * (law.shared**2 @ law.weights))
    assert float(variance.random_weight_sum(*arguments[:2], *same)) == pytest.approx(lai, rel=1e-8, abs=1e-8)


@pytest.mark.equation("app-var-exact", "app-var-eps", "app-var-lai", "random-weight-sum")
def test_counterexample_a_random_alpha_varies_where_the_signal_does_not():
    """With alpha = 0 or 2 and beta = 1 the variance is 1; the formulas for a number alpha give 0."""
    one, zero = np.ones(1), np.zeros((1, 1))
    alpha = variance.random_weight_sum(one, 2 * np.ones((1, 1)), one, np.ones((1, 1)))
    assert float(alpha) == 1.0
    assert float(variance.ghost_variance(one, one, np.asarray(0.0), 0 * one, zero)) == 0.0
    assert float(variance.noise_variance(one, zero)) == 0.0
    assert float(variance.lai_variance(one, np.asarray(0.0))) == 0.0


@pytest.mark.equation("minkowski-lower-bound", "app-var-CS-lb")
@given(seed=GENERATORS)
def test_lower_bounds_without_assumptions(backend, seed):
    law = Law(seed)
    first, second = law.ghost(), law.noise()
    arguments = listed(backend, (law.variance(first), law.variance(second)))
    bound = float(variance.minkowski_lower_bound(*arguments))
    assert bound <= law.variance(first + second) * (1 + 1e-9) + 1e-12
    noise = np.asarray(law.variance(second))
    inputs = listed(backend, (law.alpha, law.gains, law.moments()[0], noise))
    bound = float(variance.ghost_variance_lower_bound(*inputs))
    scale = abs(law.alpha @ law.gains) * np.sqrt(law.variance(law.shared))
    assert bound == pytest.approx((scale - np.sqrt(noise)) ** 2, rel=1e-7, abs=1e-9)
    hunt(bound, law.variance(first))
    assert bound <= law.variance(first) * (1 + 1e-9) + 1e-12


@pytest.mark.equation("minkowski-lower-bound")
@given(seed=GENERATORS, factor=st.floats(0, 3))
def test_opposed_variables_attain_the_lower_bound(seed, factor):
    law = Law(seed)
    one, other = law.variance(law.shared), law.variance(-factor * law.shared)
    bound = float(variance.minkowski_lower_bound(np.asarray(one), np.asarray(other)))
    expected = law.variance((1 - factor) * law.shared)
    assert bound == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.equation("noise-energy-floor", "app-var-CS-lb")
def test_counterexample_noise_that_cancels_the_signal_leaves_no_floor():
    """Y = -X of variance 10^6: Ghost does not vary, and the bound is 0."""
    one, size = np.ones(1), 1e3
    minus = np.array([-size])
    arguments = (size * one, one, np.asarray(1.0))
    ghost = variance.ghost_variance(*arguments, minus / size, np.ones((1, 1)))
    assert float(variance.noise_variance(size * one, np.ones((1, 1)))) == 1e6
    assert float(ghost) == 0.0
    assert float(variance.ghost_variance_lower_bound(*arguments, np.asarray(1e6))) == 0.0


@pytest.mark.equation("signed-covariance-bound")
@given(seed=GENERATORS)
def test_lower_bounds_with_the_sign_they_need(backend, seed):
    law = Law(seed)
    inputs = listed(backend, (law.alpha, law.gains, *law.moments()))
    whole, noise_only = (float(bound) for bound in variance.signed_covariance_bound(*inputs))
    exact = law.variance(law.ghost())
    hunt(whole, exact)
    assert noise_only <= whole + 1e-12
    assert whole <= exact * (1 + 1e-9) + 1e-9
    if (law.alpha @ law.gains) * law.covariance(law.shared, law.noise()) >= 0:
        printed = float(variance.printed_ghost_variance(inputs[0], inputs[1], inputs[2], inputs[4]))
        assert whole == pytest.approx(printed, rel=1e-9)
        assert noise_only == pytest.approx(law.variance(law.noise()), rel=1e-8, abs=1e-9)


@pytest.mark.equation("app-var-corr-lb")
@given(seed=GENERATORS)
def test_printed_lower_bound_holds_exactly_where_the_signed_covariance_is_not_negative(backend, seed):
    law = Law(seed)
    alpha, gains, signal, _, noise = listed(backend, (law.alpha, law.gains, *law.moments()))
    printed = float(variance.printed_ghost_variance(alpha, gains, signal, noise))
    signed = (law.alpha @ law.gains) * law.covariance(law.shared, law.noise())
    exact = law.variance(law.ghost())
    assert (printed <= exact + 1e-9) == (signed >= -1e-9)


@pytest.mark.equation("app-var-corr-lb")
def test_counterexample_to_the_lower_bound_under_non_negative_covariances():
    """Take c = -1 and Y = beta* / 2: Cov(beta*, Y) = 1/2 >= 0, the variance 1/4, the bound 5/4."""
    one = np.ones(1)
    arguments = (one, -one, np.asarray(1.0))
    quarter = np.array([[0.25]])
    assert float(variance.ghost_variance(*arguments, np.array([0.5]), quarter)) == 0.25
    assert float(variance.printed_ghost_variance(*arguments, quarter)) == 1.25
    whole, noise_only = variance.signed_covariance_bound(*arguments, np.array([0.5]), quarter)
    assert (float(whole), float(noise_only)) == (0.25, -0.75)


def hypothesis_law(seed):
    """Draw a law with Cov(beta*, Y) >= 0 and non-negative covariances of the remainders."""
    rng = np.random.default_rng(seed)
    law = Law(seed, layers=2)
    base = law.shared - law.shared @ law.weights
    law.alpha = np.array([rng.uniform(0.1, 2), rng.uniform(-2, 2)])
    law.gains = np.array([rng.uniform(-2, 2), 1.0])
    law.remainders = np.stack([rng.uniform(0, 1) * base, 0 * base])
    law.similarities = law.gains[:, None] * law.shared + law.remainders
    return law


@pytest.mark.equation("app-var-corr-lb", "noise-only-bound")
def test_search_finds_counterexamples_to_both_printed_lower_bounds():
    """All printed hypotheses hold, and both bounds exceed the variance by far."""

    def margins(seed):
        law = hypothesis_law(seed)
        signal, cross, noise = law.moments()
        assert law.alpha @ cross >= -1e-12
        assert (noise >= -1e-12).all()
        exact = law.variance(law.ghost())
        printed = float(variance.printed_ghost_variance(law.alpha, law.gains, signal, noise))
        return printed - exact, law.variance(law.noise()) - exact

    assert largest_margin(seeds, lambda seed: margins(seed)[0], examples=100) > 0.5
    assert largest_margin(seeds, lambda seed: margins(seed)[1], examples=100) > 0.1


@pytest.mark.equation("noise-only-bound")
def test_counterexample_noise_of_variance_four_in_a_ghost_of_variance_one():
    """A dead layer with alpha = (2, 1) and c = 1: Var Y = 4, Var Ghost = 1, Var LAI = 9."""
    alpha, ones = np.array([2.0, 1.0]), np.ones(2)
    noise, cross = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([-1.0, 0.0])
    signal = np.asarray(1.0)
    assert float(variance.noise_variance(alpha, noise)) == 4.0
    assert float(variance.ghost_variance(alpha, ones, signal, cross, noise)) == 1.0
    assert float(variance.lai_variance(alpha, signal)) == 9.0


@pytest.mark.equation("noise-energy-floor")
def test_search_finds_counterexamples_to_a_floor_by_the_noise():
    """Ghost's variance is below any fixed share of the noise's."""

    def margin(seed):
        law = Law(seed)
        return law.variance(law.noise()) / law.variance(law.ghost())

    assert largest_margin(seeds, margin, examples=100) > 10.0


def test_wrong_shapes_are_refused():
    two, three = np.ones(2), np.ones(3)
    square = np.ones((2, 2))
    with pytest.raises(ValueError, match="noise_covariance: expected shape"):
        variance.noise_variance(three, square)
    with pytest.raises(ValueError, match="gains: expected shape"):
        variance.printed_ghost_variance(two, three, np.ones(()), square)
    with pytest.raises(ValueError, match="signal_covariance: expected shape"):
        variance.ghost_variance(two, two, np.ones(()), three, square)
    with pytest.raises(ValueError, match="similarities: expected shape"):
        variance.signal_and_noise(two, two, two)
    with pytest.raises(ValueError, match="left: expected shape"):
        variance.covariances(two, square, two)
    with pytest.raises(TypeError, match="signal_variance: expected an array"):
        variance.lai_variance(two, 1.0)
