"""Products of perturbed Jacobians: what the printed expansion keeps, what it drops, and the norm."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import propagation
from tests.support.draws import GENERATORS
from tests.support.inequalities import hunt
from tests.support.outcomes import product, random_law

chains = st.sampled_from(((2, 3), (3, 2, 2), (2, 1, 3, 2), (1, 1, 1, 1, 1)))
"""Widths d_l, ..., d_L."""
close = {"rtol": 1e-9, "atol": 1e-9}


def drawn(widths, seed):
    rng = np.random.default_rng(seed)
    scale = rng.choice([0.1, 1.0, 3.0])
    sizes = list(itertools.pairwise(widths))
    return [rng.standard_normal(size) for size in sizes], [
        scale * rng.standard_normal(size) for size in sizes
    ]


def words(means, rests, count):
    """Add up all products that take the rest in so many of the layers."""
    total = np.zeros((means[0].shape[0], means[-1].shape[1]))
    for choice in itertools.product((0, 1), repeat=len(means)):
        if sum(choice) == count:
            total += product([(means, rests)[pick][layer] for layer, pick in enumerate(choice)])
    return total


def norms(matrices):
    return np.array([np.linalg.svd(matrix, compute_uv=False)[0] for matrix in matrices])


def change(means, rests):
    return product([mean + rest for mean, rest in zip(means, rests, strict=True)]) - product(means)


@pytest.mark.equation("jacobian-split")
@given(seed=GENERATORS)
def test_splits_are_mean_plus_centred_rest(seed):
    outcomes, weights = random_law(np.random.default_rng(seed), 4, (3, 2))
    mean, rests = propagation.jacobian_split(outcomes, weights)
    np.testing.assert_allclose(mean, np.average(outcomes, axis=0, weights=weights), **close)
    np.testing.assert_allclose(mean + rests, outcomes, **close)


@pytest.mark.equation("jacobian-split")
def test_counterexample_means_do_not_multiply():
    """Two layers that are both 1 or both -1: the mean parts multiply to 0, the product is always 1."""
    signs, half = np.array([[[1.0]], [[-1.0]]]), np.array([0.5, 0.5])
    mean, _ = propagation.jacobian_split(signs, half)
    assert propagation.backward_operator([mean, mean]) == 0.0
    assert (signs * signs)[:, 0, 0] @ half == 1.0


@pytest.mark.equation("telescoping", "app-DeltaA", "app-DeltaA-bound", "perturbation-norm")
@given(widths=chains, seed=GENERATORS)
def test_product_changes_and_their_first_order(widths, seed):
    """The expansion has the terms with one rest; what it drops falls with the square of the rests."""
    means, rests = drawn(widths, seed)
    whole, first = change(means, rests), words(means, rests, 1)
    np.testing.assert_allclose(propagation.telescoping_perturbation(means, rests), whole, **close)
    np.testing.assert_allclose(propagation.first_order_perturbation(means, rests), first, **close)
    gains, sizes = norms(means), norms(rests)
    bound = propagation.perturbation_norm_bound(gains, sizes)
    np.testing.assert_allclose(bound, np.prod(gains + sizes) - np.prod(gains), rtol=1e-9, atol=1e-12)
    printed = propagation.first_order_norm_bound(gains, sizes)
    for name, part, most in (("whole", whole, bound), ("first order", first, printed)):
        norm = norms([part])[0]
        hunt(norm, most, name)
        assert norm <= most * (1 + 1e-9) + 1e-12
    for scale in (1.0, 0.5, 0.25):
        scaled = [scale * rest for rest in rests]
        error = change(means, scaled) - propagation.first_order_perturbation(means, scaled)
        assert norms([error])[0] <= scale**2 * (bound - printed) * (1 + 1e-9) + 1e-9


@pytest.mark.equation("gain-products")
@given(seed=GENERATORS, first=st.integers(0, 4), last=st.integers(-1, 3))
def test_gain_products_are_plain_products(seed, first, last):
    gains = np.random.default_rng(seed).uniform(0, 2, 4)
    expected = np.prod([gains[t] for t in range(first, last + 1)])
    assert propagation.gain_product(gains, first=first, last=last) == pytest.approx(expected, rel=1e-12)
