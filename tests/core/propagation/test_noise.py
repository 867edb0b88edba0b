"""Independent noise in the Jacobians: every outcome enumerated, against the formula and the bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import propagation
from lai_core.variance import noise_variance
from tests.support.draws import GENERATORS
from tests.support.inequalities import hunt
from tests.support.networks import Shape, unconstrained
from tests.support.outcomes import jointly, moments, product, random_law
from tests.support.search import largest_margin

seeds = st.integers(0, 2**20)
chains = st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple)
"""Widths d_l, ..., d_L."""
HALF = np.array([0.5, 0.5])


def drawn(widths, seed):
    """Draw two samples' laws with one mean, and their last gradients."""
    rng = np.random.default_rng(seed)
    laws_z, laws_j = [], []
    for size in itertools.pairwise(widths):
        outcomes, weights = random_law(rng, 2, size)
        other, others = random_law(rng, 3, size)
        shift = np.average(outcomes, axis=0, weights=weights) - np.average(other, axis=0, weights=others)
        other = other + shift
        laws_z.append((outcomes, weights))
        laws_j.append((other, others))
    g, h = rng.standard_normal((2, widths[-1]))
    return laws_z, laws_j, g, h


def network_laws(seed):
    """Take a random network's Jacobians as means, and let each grow or shrink by a third as a whole."""
    case = unconstrained(np.random.default_rng(seed), Shape(depth=3, width=3, n_val=1, n_train=1))
    sides = []
    for batch in (case.validation, case.training):
        gates = case.networks.gates(batch.activations[0])
        means = [
            gate[0, 0][:, None] * weight[0].T
            for weight, gate in zip(case.networks.weights[1:], gates, strict=True)
        ]
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


def given_laws(backend, laws):
    return [(backend.array(outcomes), backend.array(weights)) for outcomes, weights in laws]


def computed(backend, laws_z, laws_j, g, h):
    """Return the similarity's variance by the formula."""
    validation = propagation.propagated_moments(given_laws(backend, laws_z), backend.array(g))
    training = propagation.propagated_moments(given_laws(backend, laws_j), backend.array(h))
    return float(propagation.jacobian_noise_variance(*validation, *training))


@pytest.mark.equation("jacobian-noise-variance")
@given(widths=chains, seed=GENERATORS)
def test_moments_are_those_of_all_outcomes(backend, widths, seed):
    laws, _, g, _ = drawn(widths, seed)
    mean, covariance = propagation.propagated_moments(given_laws(backend, laws), backend.array(g))
    outcomes, weights = (np.array(side) for side in zip(*carried(laws, g), strict=True))
    expected = np.average(outcomes, axis=0, weights=weights)
    np.testing.assert_allclose(backend.numpy(mean), expected, rtol=1e-9, atol=1e-9)
    centred = outcomes - expected
    np.testing.assert_allclose(
        backend.numpy(covariance), (centred * weights[:, None]).T @ centred, rtol=1e-9, atol=1e-9
    )


@pytest.mark.equation("jacobian-noise-variance")
@given(widths=chains, seed=GENERATORS)
def test_variance_is_that_of_all_outcomes(backend, widths, seed):
    case = drawn(widths, seed)
    assert computed(backend, *case) == pytest.approx(enumerated(*case)[1], rel=1e-8, abs=1e-9)


@pytest.mark.equation("jacobian-noise-variance", "jacobian-noise-bound")
@given(seed=GENERATORS)
def test_variance_in_linear_and_relu_networks(backend, seed):
    """Jacobians of a random network that grow or shrink by a third, independently."""
    case = network_laws(seed)
    variance = enumerated(*case)[1]
    assert computed(backend, *case) == pytest.approx(variance, rel=1e-8, abs=1e-9)
    gains = [propagation.measured_gains(laws) for laws in case[:2]]
    rho, sigma = (np.maximum(*both) for both in zip(*gains, strict=True))
    lengths = (np.linalg.norm(case[2]), np.linalg.norm(case[3]))
    assert variance <= float(propagation.jacobian_noise_bound(rho, sigma, *lengths)) * (1 + 1e-9) + 1e-12


@pytest.mark.equation("jacobian-noise-variance")
@given(widths=chains, seed=GENERATORS)
def test_a_sample_with_itself_is_biased_by_its_own_noise(widths, seed):
    """E[beta] of a sample with itself is the squared mean plus the trace of the covariance."""
    laws, _, g, _ = drawn(widths, seed)
    mean, covariance = propagation.propagated_moments(laws, g)
    expected = sum(weight * (u @ u) for u, weight in carried(laws, g))
    assert mean @ mean + np.trace(covariance) == pytest.approx(expected, rel=1e-9)


@pytest.mark.equation("jacobian-noise-bound")
@given(widths=chains, seed=GENERATORS)
def test_bound_is_never_violated(backend, widths, seed):
    laws_z, laws_j, g, h = drawn(widths, seed)
    gains = [propagation.measured_gains(given_laws(backend, laws)) for laws in (laws_z, laws_j)]
    rho, sigma = (np.maximum(*(backend.numpy(one) for one in both)) for both in zip(*gains, strict=True))
    lengths = (backend.array(np.linalg.norm(g)), backend.array(np.linalg.norm(h)))
    bound = float(propagation.jacobian_noise_bound(backend.array(rho), backend.array(sigma), *lengths))
    R, V = np.prod(rho**2), np.prod(rho**2 + sigma**2)
    assert bound == pytest.approx((V**2 - R**2) * (g @ g) * (h @ h), rel=1e-9)
    variance = enumerated(laws_z, laws_j, g, h)[1]
    hunt(variance, bound)
    assert variance <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.equation("jacobian-noise-bound")
@given(seed=GENERATORS, layers=st.integers(1, 3))
def test_bound_is_the_variance_where_layers_have_one_unit(seed, layers):
    laws_z, _, g, h = drawn((1,) * (layers + 1), seed)
    laws_j = laws_z
    gains = propagation.measured_gains(laws_z)
    bound = float(propagation.jacobian_noise_bound(*gains, np.abs(g[0]), np.abs(h[0])))
    assert bound == pytest.approx(enumerated(laws_z, laws_j, g, h)[1], rel=1e-9, abs=1e-12)


def printed(rho, sigma, length_z, length_j):
    """Compute the printed right-hand side with fixed, aligned gradients and kappa = 2 prod rho^2."""
    zero, kappa = np.zeros(()), 2 * np.prod(np.asarray(rho) ** 2)
    arguments = (np.asarray(rho), np.asarray(sigma) ** 2, zero, np.asarray(length_z), np.asarray(length_j))
    return float(propagation.similarity_variance_as_printed(zero, zero, kappa, *arguments))


@pytest.mark.equation("app-var-beta")
@given(seed=GENERATORS)
def test_printed_shape_is_its_sum(backend, seed):
    c, signal, kappa, anisotropy, z, j, *rest = np.random.default_rng(seed).uniform(0.1, 2, 12)
    rho, energy = np.array(rest[:3]), np.array(rest[3:])
    others = [np.prod(np.delete(rho, t) ** 2) for t in range(3)]
    expected = c**2 * signal + kappa * z**2 * j**2 * (anisotropy + energy @ others)
    arguments = (c, signal, kappa, rho, energy, anisotropy, z, j)
    found = propagation.similarity_variance_as_printed(*(backend.array(a) for a in arguments))
    assert float(found) == pytest.approx(expected, rel=1e-12)


@pytest.mark.equation("app-var-beta")
@given(seed=GENERATORS, layers=st.integers(1, 3))
def test_printed_shape_is_the_leading_order_for_layers_of_one_unit(seed, layers):
    """Never above the exact variance, and nearer by a factor of four for every halving of the noise."""
    rng = np.random.default_rng(seed)
    rho, sigma = rng.uniform(0.3, 1.5, (2, layers))
    previous = None
    for scale in (1e-2, 5e-3):
        exact = float(propagation.jacobian_noise_bound(rho, scale * sigma, np.ones(()), np.ones(())))
        gap = exact - printed(rho, scale * sigma, 1.0, 1.0)
        assert gap >= -1e-12 * exact
        assert previous is None or gap <= previous / 8 + 1e-15  # fourth power of sigma: 1/16
        previous = gap


@pytest.mark.equation("app-var-beta")
def test_counterexample_two_layers_of_signs_vary_and_the_printed_bound_is_zero():
    """J2 and J3 are +-1 independently, g = 1: the variance is 1, the right-hand side 0 for every kappa."""
    signs = [(np.array([[[1.0]], [[-1.0]]]), HALF)] * 2
    one, zero = np.ones(1), np.zeros(())
    assert enumerated(signs, signs, one, one) == (0.0, 1.0)
    assert computed_numpy(signs, one) == 1.0
    kappa = np.array(1e9)
    arguments = (np.zeros(2), np.ones(2), zero, np.ones(()), np.ones(()))
    assert float(propagation.similarity_variance_as_printed(zero, zero, kappa, *arguments)) == 0.0


def computed_numpy(laws, g):
    side = propagation.propagated_moments(laws, g)
    return float(propagation.jacobian_noise_variance(*side, *side))


@pytest.mark.equation("app-var-beta")
def test_search_finds_counterexamples_to_the_printed_shape():
    """With kappa = 2 prod rho^2, and no anisotropy, the exact variance exceeds it by far."""

    def margin(point):
        rho, sigma = np.random.default_rng(point).uniform(0.1, 1.5, (2, 2))
        exact = float(propagation.jacobian_noise_bound(rho, sigma, np.ones(()), np.ones(())))
        return exact / printed(rho, sigma, 1.0, 1.0)

    assert largest_margin(seeds, margin, examples=50) > 2.0


def ghost_of_signs(layers, rho, sigma):
    """Return Ghost's variance and each layer's, for `layers` layers of one unit, alpha = 1, g = 1."""
    laws = [(np.array([[[rho + sigma]], [[rho - sigma]]]), HALF)] * (layers - 1)
    chains_of = [
        ([1.0, *itertools.accumulate((float(m[0, 0]) for m in matrices), lambda x, y: x * y)], weight)
        for matrices, weight in jointly(laws)
    ]
    pairs = list(itertools.product(chains_of, chains_of))
    weights = [p * q for (_, p), (_, q) in pairs]
    betas = np.array([[x * y for x, y in zip(u, w, strict=True)] for (u, _), (w, _) in pairs])
    per_layer = [moments(betas[:, place], weights)[1] for place in range(layers)]
    covariance = np.cov(betas.T, aweights=weights, bias=True).reshape(layers, layers)
    return moments(betas.sum(1), weights)[1], per_layer, covariance


@pytest.mark.equation("variance-depth-growth")
def test_counterexample_the_variance_grows_ever_more_slowly():
    """J = 1/2 +- 1/2 in every layer: all covariances are non-negative, and depth adds less each time."""
    variances = []
    for layers in (1, 2, 3, 4):
        variance, per_layer, covariance = ghost_of_signs(layers, 0.5, 0.5)
        assert per_layer == pytest.approx([4.0**-k - 16.0**-k for k in range(layers)])
        assert (covariance >= -1e-15).all()
        variances.append(variance)
    assert variances == pytest.approx([0, 3 / 16, 87 / 256, 1671 / 4096])
    steps = np.diff(variances)
    assert steps[1] < steps[0]
    assert steps[2] < steps[1]


@pytest.mark.equation("variance-depth-growth")
@pytest.mark.parametrize("layers", [2, 5, 20, 80])
def test_counterexample_uncorrelated_noise_that_decays_is_bounded_at_every_depth(layers):
    """Var epsilon_l = rho^(4 (L - l)) for l < L with rho^4 = 1/2: below 1, where linear growth would be L."""
    energies = np.append(0.5 ** np.arange(layers - 1, 0, -1), 0.0)
    noise = float(noise_variance(np.ones(layers), np.diag(energies)))
    assert noise == pytest.approx(1 - 0.5 ** (layers - 1))
    assert noise <= 0.5 / (1 - 0.5)


@pytest.mark.equation("variance-depth-growth")
def test_search_finds_counterexamples_to_faster_than_linear_growth():
    """The last of three steps in depth is shorter than the first, though covariances are non-negative."""

    def margin(point):
        rho, sigma = np.random.default_rng(point).uniform(0.05, 1.2, 2)
        steps = np.diff([ghost_of_signs(layers, rho, sigma)[0] for layers in (1, 2, 3)])
        return (steps[0] - steps[1]) / steps[0]

    assert largest_margin(seeds, margin, examples=40) > 0.2


@pytest.mark.equation("jacobian-noise-bound")
@given(seed=GENERATORS)
def test_layers_covary_without_opposition_where_mean_parts_are_isotropic(seed):
    """Scaled rotations plus noise: Cov(beta_1, beta_2) = gain ratio times Var(beta_2), never negative."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0] * rng.uniform(0.3, 1.5)
    laws = [random_law(rng, 2, (2, 2)) for _ in range(2)]
    noise, weights = laws[0]
    centred = noise - np.average(noise, axis=0, weights=weights)
    lower, upper = (turn + centred, weights), laws[1]
    g, h = rng.standard_normal((2, 2))
    tops = [carried([upper], vector) for vector in (g, h)]
    outcomes = []
    for (u, p), (w, q) in itertools.product(*tops):
        for (a, r), (b, s) in itertools.product(zip(*lower, strict=True), zip(*lower, strict=True)):
            outcomes.append(((a @ u) @ (b @ w), u @ w, p * q * r * s))
    below, above, weight = (np.array(side) for side in zip(*outcomes, strict=True))
    centre = (below - below @ weight) * (above - above @ weight)
    gain = float(propagation.trace_gain([turn]))
    variance = moments(above, weight)[1]
    assert centre @ weight == pytest.approx(gain * variance, rel=1e-8, abs=1e-9)


@pytest.mark.equation("jacobian-noise-bound")
def test_counterexample_layers_may_covary_negatively_where_a_mean_part_is_anisotropic():
    """P = diag(1, 0), h_z = +-(1, -2), h_j = (1, 1): beta_1 = +-1 and beta_2 = -+1, covariance -1."""
    P, h_z, h_j = np.diag([1.0, 0.0]), np.array([1.0, -2.0]), np.ones(2)
    below = [(P @ (sign * h_z)) @ (P @ h_j) for sign in (1, -1)]
    above = [(sign * h_z) @ h_j for sign in (1, -1)]
    assert np.mean(np.array(below) * np.array(above)) == -1.0
    assert float(propagation.trace_gain([P])) == 0.5  # a positive gain does not help


def test_wrong_shapes_are_refused():
    law = (np.ones((2, 3, 2)), HALF)
    with pytest.raises(ValueError, match=r"laws\[0\]\[1\]: expected shape"):
        propagation.propagated_moments([(law[0], np.ones(3))], np.ones(2))
    with pytest.raises(TypeError, match=r"laws\[0\]: expected a pair"):
        propagation.propagated_moments([law[0]], np.ones(2))
    with pytest.raises(ValueError, match="output_gradient: expected a last axis"):
        propagation.propagated_moments([law], np.ones(3))
    with pytest.raises(ValueError, match="noise_gains: expected shape"):
        propagation.jacobian_noise_bound(np.ones(2), np.ones(3), np.ones(()), np.ones(()))
    with pytest.raises(ValueError, match="training_covariance: expected shape"):
        propagation.jacobian_noise_variance(np.ones(2), np.ones((2, 2)), np.ones(2), np.ones((3, 3)))
