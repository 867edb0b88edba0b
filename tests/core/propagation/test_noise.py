"""Independent noise in the Jacobians: every outcome enumerated, against the formula and the bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import propagation
from tests.support.draws import GENERATORS
from tests.support.inequalities import hunt
from tests.support.networks import Shape, unconstrained
from tests.support.outcomes import jointly, moments, product, random_law

chains = st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple)
"""Widths d_l, ..., d_L."""
HALF, ZERO, UNIT = np.array([0.5, 0.5]), np.zeros(()), np.ones(())


def drawn(widths, seed):
    """Draw two samples' laws with one mean, and their last gradients."""
    rng = np.random.default_rng(seed)
    laws_z, laws_j = [], []
    for size in itertools.pairwise(widths):
        outcomes, weights = random_law(rng, 2, size)
        other, others = random_law(rng, 3, size)
        shift = np.average(outcomes, axis=0, weights=weights) - np.average(other, axis=0, weights=others)
        laws_z.append((outcomes, weights))
        laws_j.append((other + shift, others))
    return laws_z, laws_j, *rng.standard_normal((2, widths[-1]))


def network_laws(seed):
    """Take a random network's Jacobians as means, and let each grow or shrink by a third as a whole."""
    case = unconstrained(np.random.default_rng(seed), Shape(depth=3, width=3, n_val=1, n_train=1))
    sides = []
    for batch in (case.validation, case.training):
        gates = case.networks.gates(batch.activations[0])
        pairs = zip(case.networks.weights[1:], gates, strict=True)
        means = [gate[0, 0][:, None] * weight[0].T for weight, gate in pairs]
        laws = [(np.stack([mean * 2 / 3, mean * 4 / 3]), HALF) for mean in means]
        sides.append((laws, batch.gradients[-1][0, 0]))
    return sides[0][0], sides[1][0], sides[0][1], sides[1][1]


def carried(laws, gradient):
    """List layer l's gradients with their probabilities."""
    return [(product(matrices) @ gradient, weight) for matrices, weight in jointly(laws)]


def enumerated(laws_z, laws_j, g, h):
    """Return mean and variance of the similarity, from all pairs of outcomes."""
    pairs = list(itertools.product(carried(laws_z, g), carried(laws_j, h)))
    return moments([u @ w for (u, _), (w, _) in pairs], [p * q for (_, p), (_, q) in pairs])


def computed(laws_z, laws_j, g, h):
    sides = propagation.propagated_moments(laws_z, g), propagation.propagated_moments(laws_j, h)
    return propagation.jacobian_noise_variance(*sides[0], *sides[1])


@pytest.mark.equation("jacobian-noise-variance")
@given(widths=chains, seed=GENERATORS)
def test_moments_are_those_of_all_outcomes(widths, seed):
    """A sample with itself is biased by its own noise: by the trace of its covariance."""
    laws, _, g, _ = drawn(widths, seed)
    mean, covariance = propagation.propagated_moments(laws, g)
    outcomes, weights = (np.array(side) for side in zip(*carried(laws, g), strict=True))
    np.testing.assert_allclose(mean, weights @ outcomes, rtol=1e-9, atol=1e-9)
    centred = outcomes - weights @ outcomes
    np.testing.assert_allclose(covariance, (centred.T * weights) @ centred, rtol=1e-9, atol=1e-9)
    own = weights @ (outcomes * outcomes).sum(1)
    assert mean @ mean + np.trace(covariance) == pytest.approx(own, rel=1e-9)


@pytest.mark.equation("jacobian-noise-variance", "jacobian-noise-bound")
@given(st.one_of(st.builds(drawn, chains, GENERATORS), st.builds(network_laws, GENERATORS)))
def test_variance_matches_enumeration_and_its_bound(case):
    variance = enumerated(*case)[1]
    assert computed(*case) == pytest.approx(variance, rel=1e-8, abs=1e-9)
    gains = [propagation.measured_gains(laws) for laws in case[:2]]
    rho, sigma = (np.maximum(*both) for both in zip(*gains, strict=True))
    z, j = (np.linalg.norm(vector) for vector in case[2:])
    bound = propagation.jacobian_noise_bound(rho, sigma, np.asarray(z), np.asarray(j))
    R, V = np.prod(rho**2), np.prod(rho**2 + sigma**2)
    assert bound == pytest.approx((V**2 - R**2) * z**2 * j**2, rel=1e-9)
    hunt(variance, bound)
    assert variance <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.equation("jacobian-noise-bound")
def test_tall_jacobian_noise_sums_over_rows():
    """The rests have two rows and one column: the energy is a sum over rows, here two of 1."""
    outcomes = np.array([[[1.0], [1.0]], [[-1.0], [-1.0]]])
    independent = np.array([[[s], [t]] for s in (1.0, -1.0) for t in (1.0, -1.0)])  # a mean of norm 1
    for law in ((outcomes, HALF), (independent, np.full(4, 0.25))):
        _, noise = propagation.measured_gains([law])
        assert noise[0] ** 2 == pytest.approx(2.0)


def printed(rho, sigma):
    """Compute the printed right-hand side with fixed, aligned unit gradients and kappa = 2 prod rho^2."""
    kappa = 2 * np.prod(rho**2)
    return propagation.similarity_variance_as_printed(ZERO, ZERO, kappa, rho, sigma**2, ZERO, UNIT, UNIT)


@pytest.mark.equation("app-var-beta")
@given(seed=GENERATORS)
def test_printed_shape_is_its_sum(seed):
    c, signal, kappa, anisotropy, z, j, *rest = np.random.default_rng(seed).uniform(0.1, 2, 12)
    rho, energy = np.array(rest[:3]), np.array(rest[3:])
    others = [np.prod(np.delete(rho, t) ** 2) for t in range(3)]
    expected = c**2 * signal + kappa * z**2 * j**2 * (anisotropy + energy @ others)
    arguments = map(np.asarray, (c, signal, kappa, rho, energy, anisotropy, z, j))
    found = propagation.similarity_variance_as_printed(*arguments)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.equation("app-var-beta")
@given(seed=GENERATORS, layers=st.integers(1, 3))
def test_printed_shape_is_leading_order(seed, layers):
    """Never above the exact variance, and nearer by a factor of four for every halving of the noise."""
    rho, sigma = np.random.default_rng(seed).uniform(0.3, 1.5, (2, layers))
    gaps = []
    for scale in (1e-2, 5e-3):
        exact = propagation.jacobian_noise_bound(rho, scale * sigma, UNIT, UNIT)
        gaps.append(exact - printed(rho, scale * sigma))
        assert gaps[-1] >= -1e-12 * exact
    assert gaps[1] <= gaps[0] / 8 + 1e-15  # fourth power of sigma: 1/16


@pytest.mark.equation("app-var-beta")
def test_counterexample_random_signs_exceed_printed_bound():
    """J2 and J3 are +-1 independently, g = 1: the variance is 1, the right-hand side 0 for every kappa."""
    signs, one = [(np.array([[[1.0]], [[-1.0]]]), HALF)] * 2, np.ones(1)
    assert enumerated(signs, signs, one, one) == (0.0, 1.0)
    assert computed(signs, signs, one, one) == 1.0
    arguments = (np.array(1e9), np.zeros(2), np.ones(2), ZERO, UNIT, UNIT)
    assert propagation.similarity_variance_as_printed(ZERO, ZERO, *arguments) == 0.0
