"""Shapley values of one step: exact, sampled, and the bounds of Ghost and of the midpoint score."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import influence, shapley
from tests.support.draws import GENERATORS
from tests.support.inequalities import hunt

SHAPES = ((1, 1), (2, 3), (4, 2))
"""Samples and parameters."""
rates = st.sampled_from((0.05, 0.8))


def averaged_over_orders(loss, theta, gradients, rate):
    """Return the Shapley values from their definition by permutations."""
    orders = list(itertools.permutations(range(len(gradients))))
    values = np.zeros(len(gradients))
    for order in orders:
        for place, player in enumerate(order):
            before = theta - rate * gradients[list(order[:place])].sum(0)
            values[player] += loss(before) - loss(before - rate * gradients[player])
    return values / len(orders)


class Quartic:
    """Loss `sum (m_i . theta)^4 / 12 + theta^T A theta / 2 - b^T theta`."""

    def __init__(self, p, seed, quartic=1.0):
        generator = np.random.default_rng(seed)
        self.rows = generator.normal(size=(2, p)) * quartic
        root = generator.normal(size=(p, p))
        self.matrix, self.vector = root + root.T, generator.normal(size=p)

    def loss(self, theta):
        return ((self.rows @ theta) ** 4).sum() / 12 + theta @ self.matrix @ theta / 2 - self.vector @ theta

    def gradient(self, theta):
        return self.rows.T @ (self.rows @ theta) ** 3 / 3 + self.matrix @ theta - self.vector


def draw(shape, seed):
    n, p = shape
    generator = np.random.default_rng(seed + 1)
    return generator.normal(size=p), generator.normal(size=(n, p)) / np.sqrt(n)


@given(shape=st.sampled_from(SHAPES), seed=GENERATORS, rate=rates)
def test_enumeration_averages_over_all_orders(shape, seed, rate):
    theta, gradients = draw(shape, seed)
    problem = Quartic(shape[1], seed)
    values = shapley.one_step_shapley(problem.loss, theta, gradients, learning_rate=rate)
    expected = averaged_over_orders(problem.loss, theta, gradients, rate)
    np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-8)
    whole = problem.loss(theta) - problem.loss(theta - rate * gradients.sum(0))
    assert values.sum() == pytest.approx(whole, rel=1e-7, abs=1e-8)  # nothing is left over


@pytest.mark.parametrize("count", [2, 3])
def test_squared_standard_errors_are_unbiased(count):
    """All pairs and triples of orders of three samples: mean, variance and squared error."""
    theta, gradients = draw((3, 2), 5)
    loss = Quartic(2, 5).loss
    arrays = theta, gradients
    exact = shapley.one_step_shapley(loss, *arrays, learning_rate=0.4)
    orders = list(itertools.permutations(range(3)))
    drawn = [
        shapley.monte_carlo_shapley(loss, *arrays, pair, learning_rate=0.4)
        for pair in itertools.product(orders, repeat=count)
    ]
    means, errors = np.array([mean for mean, _ in drawn]), np.array([error for _, error in drawn])
    np.testing.assert_allclose(means.mean(0), exact, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose((errors**2).mean(0), ((means - exact) ** 2).mean(0), rtol=1e-9, atol=1e-12)


def midpoint_scores(gradient, theta, gradients, rate):
    return shapley.step_midpoint_scores(lambda g: -rate * gradient(theta - rate * g), gradients) / rate


@pytest.mark.equation("midpoint")
@given(shape=st.sampled_from(SHAPES), seed=GENERATORS, rate=rates)
def test_midpoint_is_exact_for_quadratics(shape, seed, rate):
    theta, gradients = draw(shape, seed)
    problem = Quartic(shape[1], seed, quartic=0.0)
    scores = midpoint_scores(problem.gradient, theta, gradients, rate)
    expected = averaged_over_orders(problem.loss, theta, gradients, rate) / rate
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.equation("step-midpoint")
@given(shape=st.sampled_from(SHAPES), seed=GENERATORS)
def test_midpoint_holds_with_momentum_and_decay(shape, seed):
    """Entries step at their own rates, from a buffer, with decay: affine, and no multiple of the gradient."""
    theta, gradients = draw(shape, seed)
    problem = Quartic(shape[1], seed, quartic=0.0)
    buffer, scale = np.random.default_rng(seed + 1).normal(size=(2, shape[1]))

    def moved(gradient):
        return theta - scale * (0.9 * buffer + gradient + 0.1 * theta)

    scores = shapley.step_midpoint_scores(
        lambda gradient: -scale * problem.gradient(moved(gradient)), gradients
    )
    nothing = np.zeros(shape[1])
    expected = averaged_over_orders(lambda taken: problem.loss(moved(-taken)), nothing, gradients, 1.0)
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.equation("shapley-first-order")
@given(shape=st.sampled_from(SHAPES), seed=GENERATORS, rate=rates)
def test_inner_products_meet_first_order_bounds(shape, seed, rate):
    theta, gradients = draw(shape, seed)
    problem = Quartic(shape[1], seed, quartic=0.0)
    slope = problem.gradient(theta)
    plain = influence.inner_product_scores(slope[None], gradients)
    bound = shapley.shapley_first_order_bound(
        gradients,
        learning_rate=rate,
        smoothness=float(np.abs(np.linalg.eigvalsh(problem.matrix)).max()),
    )
    missed = averaged_over_orders(problem.loss, theta, gradients, rate) / rate - plain
    hunt(np.abs(missed), bound)
    assert np.all(np.abs(missed) <= bound * (1 + 1e-9) + 1e-9)


@pytest.mark.equation("shapley-first-order", "noise-explains-fidelity")
@given(shape=st.sampled_from(SHAPES[1:]), seed=GENERATORS)
def test_ghost_converges_for_vanishing_learning_rates(shape, seed):
    theta, gradients = draw(shape, seed)
    problem = Quartic(shape[1], seed)
    plain = gradients @ problem.gradient(theta)
    gaps = [
        np.abs(averaged_over_orders(problem.loss, theta, gradients, rate) / rate - plain).max()
        for rate in (1e-2, 1e-3, 1e-4)
    ]
    assert gaps[1] <= 0.2 * gaps[0] + 1e-9
    assert gaps[2] <= 0.2 * gaps[1] + 1e-7
