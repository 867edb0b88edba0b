"""Similarities layer by layer: their operator, their gain, and what remains beside the signal."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import propagation
from tests.support.draws import GENERATORS
from tests.support.inequalities import at_most
from tests.support.networks import Shape, unconstrained
from tests.support.outcomes import product, random_law
from tests.support.search import largest_margin

seeds = st.integers(0, 2**20)
chains = st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple)
"""Widths d_l, ..., d_L."""
close = {"rtol": 1e-9, "atol": 1e-9}


class Pair:
    """Mean parts, the rests of two samples, and their last gradients as mean and fluctuation."""

    def __init__(self, widths, seed):
        rng = np.random.default_rng(seed)
        sizes = list(itertools.pairwise(widths))
        self.means, self.rests_z, self.rests_j = (
            [rng.standard_normal(size) for size in sizes] for _ in range(3)
        )
        self.clean_z, self.noise_z, self.clean_j, self.noise_j = rng.standard_normal((4, widths[-1]))
        self.gain = rng.standard_normal()

    def jacobians(self):
        """Return both samples' Jacobians."""
        return [
            [mean + rest for mean, rest in zip(self.means, rests, strict=True)]
            for rests in (self.rests_z, self.rests_j)
        ]

    def gradients(self):
        """Return both samples' last gradients."""
        return self.clean_z + self.noise_z, self.clean_j + self.noise_j

    def similarity(self):
        """Return beta of layer l, by backpropagation."""
        sides = zip(self.jacobians(), self.gradients(), strict=True)
        carried = [product(jacobians) @ gradient for jacobians, gradient in sides]
        return carried[0] @ carried[1]


def listed(backend, matrices):
    return [backend.array(matrix) for matrix in matrices]


@pytest.mark.equation("layer-gradients", "shared-signal", "app-beta-L")
@given(seed=GENERATORS)
def test_similarities_of_networks_and_the_last_as_the_signal(backend, seed):
    case = unconstrained(np.random.default_rng(seed), Shape(n_val=2, n_train=3))
    validation = [backend.array(g[0][:, None, :]) for g in case.validation.gradients]
    training = [backend.array(g[0][None, :, :]) for g in case.training.gradients]
    found = backend.numpy(propagation.layer_similarities(validation, training))
    for layer, (g, h) in enumerate(zip(case.validation.gradients, case.training.gradients, strict=True)):
        np.testing.assert_allclose(found[layer], g[0] @ h[0].T, **close)
    signal = backend.numpy(propagation.shared_signal(validation[-1], training[-1]))
    np.testing.assert_array_equal(found[-1], signal)


@pytest.mark.equation("app-beta-L")
@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_last_layers_operator_is_the_identity_and_leaves_no_remainder(backend, width):
    one = [backend.array(np.eye(width))]
    assert float(propagation.trace_gain(one)) == 1.0
    operator = propagation.similarity_operator(one, one)
    np.testing.assert_array_equal(backend.numpy(operator), np.eye(width))
    g = backend.array(np.arange(1.0, width + 1))
    _, remainder = propagation.similarity_decomposition(operator, propagation.trace_gain(one), g, g)
    assert float(remainder) == 0.0


@pytest.mark.equation("app-beta-L")
def test_counterexample_the_last_similarity_is_not_free_of_noise():
    """g* = 0 and xi = +-1, shared by both: beta* is 1 whatever happens, the clean signals' product 0."""
    outcomes, half = np.array([[1.0], [-1.0]]), np.array([0.5, 0.5])
    clean, noise = propagation.output_fluctuation(outcomes, half)
    assert float(propagation.shared_signal(clean, clean)) == 0.0
    assert float(propagation.shared_signal(noise, noise) @ half) == 1.0


@pytest.mark.equation("output-fluctuation")
@given(seed=GENERATORS)
def test_fluctuations_are_centred(backend, seed):
    outcomes, weights = random_law(np.random.default_rng(seed), 5, (3,))
    clean, noise = propagation.output_fluctuation(backend.array(outcomes), backend.array(weights))
    np.testing.assert_allclose(backend.numpy(clean), np.average(outcomes, axis=0, weights=weights), **close)
    np.testing.assert_allclose(weights @ backend.numpy(noise), np.zeros(3), **close)
    np.testing.assert_allclose(backend.numpy(clean) + backend.numpy(noise), outcomes, **close)


@pytest.mark.equation("app-g-l-decomp")
@given(widths=chains, seed=GENERATORS)
def test_four_parts_add_up_to_the_layers_gradient(backend, widths, seed):
    pair = Pair(widths, seed)
    parts = propagation.gradient_decomposition(
        listed(backend, pair.means),
        listed(backend, pair.rests_z),
        backend.array(pair.clean_z),
        backend.array(pair.noise_z),
    )
    average = product(pair.means)
    rest = product(pair.jacobians()[0]) - average
    expected = [operator @ vector for operator in (average, rest) for vector in (pair.clean_z, pair.noise_z)]
    for part, wanted in zip(parts, expected, strict=True):
        np.testing.assert_allclose(backend.numpy(part), wanted, **close)
    whole = product(pair.jacobians()[0]) @ pair.gradients()[0]
    np.testing.assert_allclose(sum(backend.numpy(part) for part in parts), whole, **close)


@pytest.mark.equation("app-M-def")
@given(widths=chains, seed=GENERATORS)
def test_operator_gives_the_similarity_as_a_bilinear_form(backend, widths, seed):
    pair = Pair(widths, seed)
    operator = propagation.similarity_operator(*(listed(backend, side) for side in pair.jacobians()))
    assert tuple(operator.shape) == (widths[-1], widths[-1])
    g, h = pair.gradients()
    np.testing.assert_allclose(g @ backend.numpy(operator) @ h, pair.similarity(), **close)


@pytest.mark.equation("app-beta-decomp")
@given(widths=chains, seed=GENERATORS)
def test_decomposition_holds_for_any_number_as_gain(backend, widths, seed):
    pair = Pair(widths, seed)
    operator = product(pair.jacobians()[0]).T @ product(pair.jacobians()[1])
    g, h = pair.gradients()
    arguments = (operator, np.array(pair.gain), g, h)
    signal, remainder = propagation.similarity_decomposition(*listed(backend, arguments))
    np.testing.assert_allclose(float(signal), pair.gain * (g @ h), **close)
    np.testing.assert_allclose(float(signal) + float(remainder), pair.similarity(), **close)


@pytest.mark.equation("remainder")
@given(widths=chains, seed=GENERATORS)
def test_four_terms_are_the_whole_remainder(backend, widths, seed):
    pair = Pair(widths, seed)
    g, h = pair.gradients()
    deviations = (listed(backend, pair.rests_z), listed(backend, pair.rests_j))
    vectors = listed(backend, (np.array(pair.gain), g, h))
    terms = backend.numpy(propagation.remainder_terms(listed(backend, pair.means), *deviations, *vectors))
    np.testing.assert_allclose(terms.sum(), pair.similarity() - pair.gain * (g @ h), **close)
    average = product(pair.means)
    isotropic = average.T @ average - pair.gain * np.eye(len(g))
    np.testing.assert_allclose(terms[0], g @ isotropic @ h, **close)


@pytest.mark.equation("app-eps-explicit")
@given(widths=chains, seed=GENERATORS)
def test_printed_remainder_counts_the_fluctuations_twice(backend, widths, seed):
    pair = Pair(widths, seed)
    g, h = pair.gradients()
    jacobians = pair.jacobians()
    operator = product(jacobians[0]).T @ product(jacobians[1])
    printed = propagation.printed_remainder(
        listed(backend, pair.means),
        listed(backend, pair.rests_z),
        listed(backend, pair.rests_j),
        backend.array(np.array(pair.gain)),
        (backend.array(pair.clean_z), backend.array(pair.noise_z)),
        (backend.array(pair.clean_j), backend.array(pair.noise_j)),
    )
    remainder = pair.similarity() - pair.gain * (g @ h)
    twice = pair.similarity() - pair.clean_z @ operator @ pair.clean_j
    np.testing.assert_allclose(float(printed), remainder + twice, **close)


@pytest.mark.equation("app-eps-explicit")
def test_counterexample_a_remainder_of_zero_is_printed_as_one():
    """One unit, J = 1 without rest, c = 1, g* = 1 twice and xi = 1 for z alone: epsilon is 0."""
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    terms = propagation.remainder_terms([one], [zero], [zero], one[0, 0], 2 * one[0], one[0])
    assert float(terms.sum()) == 0.0
    noisy, clean = (one[0], one[0]), (one[0], zero[0])
    assert float(propagation.printed_remainder([one], [zero], [zero], one[0, 0], noisy, clean)) == 1.0


@pytest.mark.equation("app-eps-explicit")
def test_search_finds_counterexamples_to_the_printed_remainder():
    def margin(point):
        pair = Pair(*point)
        g, h = pair.gradients()
        parts = ((pair.clean_z, pair.noise_z), (pair.clean_j, pair.noise_j))
        gain = np.array(pair.gain)
        printed = propagation.printed_remainder(pair.means, pair.rests_z, pair.rests_j, gain, *parts)
        return abs(float(printed) - (pair.similarity() - pair.gain * (g @ h)))

    assert largest_margin(st.tuples(chains, seeds), margin, examples=50) > 1.0


@pytest.mark.equation("trace-gain")
@given(widths=chains, seed=GENERATORS)
def test_trace_gain_is_the_nearest_multiple_of_the_identity(backend, widths, seed):
    pair = Pair(widths, seed)
    average = product(pair.means)
    flat, identity = (average.T @ average).reshape(-1), np.eye(widths[-1]).reshape(-1, 1)
    nearest = np.linalg.lstsq(identity, flat, rcond=None)[0][0]
    gain = float(propagation.trace_gain(listed(backend, pair.means)))
    assert gain == pytest.approx(nearest, rel=1e-9)
    printed = float(propagation.isotropic_gain(listed(backend, pair.means)))
    assert printed == pytest.approx(gain * widths[-1] / widths[0], rel=1e-9)


@pytest.mark.equation("trace-gain")
@given(seed=GENERATORS, below=st.integers(1, 3), last=st.integers(1, 6))
def test_wide_outputs_leave_the_isotropic_part_the_smaller_one(seed, below, last):
    """The remainder's squared norm is at least d_L/d_l - 1 times that of c I, attained by isometries."""
    rng = np.random.default_rng(seed)
    for average in (rng.standard_normal((below, last)), np.eye(below, last)):
        gain = float(propagation.trace_gain([average]))
        rest = average.T @ average - gain * np.eye(last)
        least = (last / below - 1) * gain**2 * last
        assert at_most(least, np.sum(rest**2))
    if last >= below:
        assert np.sum(rest**2) == pytest.approx(least)


@pytest.mark.equation("isotropic-gain")
def test_counterexample_an_isometry_has_the_printed_gain_one_half():
    """J = (3/5, 4/5) keeps lengths, from one output to two units: M = 1, printed gain 1/2."""
    isometry = [np.array([[0.6], [0.8]])]
    assert float(propagation.similarity_operator(isometry, isometry)[0, 0]) == pytest.approx(1.0)
    assert float(propagation.trace_gain(isometry)) == pytest.approx(1.0)
    assert float(propagation.isotropic_gain(isometry)) == pytest.approx(0.5)


@pytest.mark.equation("isotropic-gain")
def test_search_finds_counterexamples_to_the_printed_gain():
    """The printed gain is farther from M than another number by a large share of M."""

    def margin(point):
        means = Pair(*point).means
        average = product(means)
        operator, identity = average.T @ average, np.eye(average.shape[1])
        gains = (float(propagation.isotropic_gain(means)), float(propagation.trace_gain(means)))
        printed, nearest = (np.linalg.norm(operator - gain * identity) for gain in gains)
        return (printed - nearest) / np.linalg.norm(operator)

    assert largest_margin(st.tuples(chains, seeds), margin, examples=50) > 0.1


@pytest.mark.equation("unit-gain")
def test_counterexample_a_gradient_that_every_layer_keeps_and_a_gain_of_a_half():
    """Equal widths, where the printed dimension is the right one."""
    operators, g = [np.diag([1.0, 0.0])] * 3, np.array([1.0, 0.0])
    for carried in propagation.vjp_recursion(operators, g):
        assert carried.tolist() == [1.0, 0.0]
    assert float(propagation.isotropic_gain(operators)) == 0.5
    assert float(propagation.trace_gain(operators)) == 0.5


@pytest.mark.equation("unit-gain")
def test_search_finds_counterexamples_to_a_gain_near_one():
    """Projections of equal width that keep the gradient, with a gain that is off by more than half."""

    def margin(point):
        kept, dropped, seed = point
        basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((kept + dropped,) * 2))[0][:, :kept]
        (carried, _) = propagation.vjp_recursion([basis @ basis.T], basis[:, 0])
        np.testing.assert_allclose(carried, basis[:, 0], atol=1e-12)
        return abs(1.0 - float(propagation.isotropic_gain([basis @ basis.T])))

    points = st.tuples(st.integers(1, 6), st.integers(1, 4), seeds)
    assert largest_margin(points, margin, examples=50) > 0.5


def test_wrong_shapes_are_refused():
    ones = np.ones((2, 3))
    with pytest.raises(ValueError, match="training: expected 1 layers"):
        propagation.layer_similarities([ones], [ones, ones])
    with pytest.raises(ValueError, match=r"training: expected shape \(\.\.\., d_L=3,?\)"):
        propagation.shared_signal(ones, ones[:, :2])
    with pytest.raises(ValueError, match="output_gradients: expected shape"):
        propagation.output_fluctuation(ones[0], ones[0])
    with pytest.raises(ValueError, match="training: expected shape"):
        propagation.similarity_operator([ones], [ones[:, :2]])
