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
from tests.support.search import largest_margin

CHAINS = ((2, 3), (3, 2, 2), (2, 1, 3, 2), (1, 1, 1, 1, 1))
"""Widths d_l, ..., d_L."""
seeds = st.integers(0, 2**20)
chains = st.sampled_from(CHAINS)
close = {"rtol": 1e-9, "atol": 1e-11}


def drawn(widths, seed):
    """Draw mean parts and rests."""
    rng = np.random.default_rng(seed)
    scale = rng.choice([0.1, 1.0, 3.0])
    sizes = list(itertools.pairwise(widths))
    return [rng.standard_normal(size) for size in sizes], [
        scale * rng.standard_normal(size) for size in sizes
    ]


def words(means, rests, counts):
    """Add up all products that take the rest in so many of the layers."""
    total = np.zeros((means[0].shape[0], means[-1].shape[1]))
    for choice in itertools.product((0, 1), repeat=len(means)):
        if sum(choice) in counts:
            total += product(
                [pair[pick] for pair, pick in zip(zip(means, rests, strict=True), choice, strict=True)]
            )
    return total


def norms(matrices):
    """Return spectral norms, largest singular values."""
    return np.array([np.linalg.svd(matrix, compute_uv=False)[0] for matrix in matrices])


def change(means, rests):
    """Return the change of the product."""
    return product([mean + rest for mean, rest in zip(means, rests, strict=True)]) - product(means)


def listed(backend, matrices):
    return [backend.array(matrix) for matrix in matrices]


@pytest.mark.equation("jacobian-split")
@given(seed=GENERATORS)
def test_split_is_the_mean_and_a_centred_rest(backend, seed):
    outcomes, weights = random_law(np.random.default_rng(seed), 4, (3, 2))
    mean, rests = propagation.jacobian_split(backend.array(outcomes), backend.array(weights))
    np.testing.assert_allclose(backend.numpy(mean), np.average(outcomes, axis=0, weights=weights), **close)
    np.testing.assert_allclose(backend.numpy(mean) + backend.numpy(rests), outcomes, **close)
    np.testing.assert_allclose(
        np.average(backend.numpy(rests), axis=0, weights=weights), np.zeros((3, 2)), **close
    )


@pytest.mark.equation("jacobian-split")
def test_counterexample_the_mean_of_the_product_is_not_the_product_of_the_means():
    """Two layers that are both 1 or both -1: the mean parts multiply to 0, the product is always 1."""
    signs, half = np.array([[[1.0]], [[-1.0]]]), np.array([0.5, 0.5])
    mean, _ = propagation.jacobian_split(signs, half)
    assert float(propagation.backward_operator([mean, mean])[0, 0]) == 0.0
    assert float((signs * signs)[:, 0, 0] @ half) == 1.0


@pytest.mark.equation("telescoping")
@given(widths=chains, seed=GENERATORS)
def test_telescoping_is_the_whole_change(backend, widths, seed):
    means, rests = drawn(widths, seed)
    found = propagation.telescoping_perturbation(listed(backend, means), listed(backend, rests))
    np.testing.assert_allclose(backend.numpy(found), change(means, rests), rtol=1e-9, atol=1e-9)


@pytest.mark.equation("app-DeltaA")
@given(widths=chains, seed=GENERATORS)
def test_printed_expansion_has_the_terms_with_one_rest(backend, widths, seed):
    means, rests = drawn(widths, seed)
    found = propagation.first_order_perturbation(listed(backend, means), listed(backend, rests))
    np.testing.assert_allclose(backend.numpy(found), words(means, rests, {1}), rtol=1e-9, atol=1e-9)


@pytest.mark.equation("app-DeltaA")
@given(widths=chains, seed=GENERATORS)
def test_what_the_printed_expansion_drops_is_of_second_order(widths, seed):
    """Halved rests leave about a quarter of the error: at most (1/2)^2 of its bound in norms."""
    means, rests = drawn(widths, seed)
    for scale in (1.0, 0.5, 0.25):
        scaled = [scale * rest for rest in rests]
        error = change(means, scaled) - propagation.first_order_perturbation(means, scaled)
        gains, sizes = norms(means), norms(rests)
        second = propagation.perturbation_norm_bound(gains, sizes)
        second = second - propagation.first_order_norm_bound(gains, sizes)
        assert norms([error])[0] <= scale**2 * float(second) * (1 + 1e-9) + 1e-9


@pytest.mark.equation("app-DeltaA")
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_counterexample_dropout_of_half_the_units(layers):
    """With J = dJ = 1 the change is 2^n - 1 and the expansion n: for two layers, 3 and 2."""
    ones = [np.ones((1, 1))] * layers
    assert change(ones, ones)[0, 0] == 2**layers - 1
    assert float(propagation.telescoping_perturbation(ones, ones)[0, 0]) == 2**layers - 1
    assert float(propagation.first_order_perturbation(ones, ones)[0, 0]) == layers


@pytest.mark.equation("gain-products")
@given(seed=GENERATORS, first=st.integers(0, 4), last=st.integers(-1, 3))
def test_gain_products_are_products_and_one_where_empty(backend, seed, first, last):
    gains = np.random.default_rng(seed).uniform(0, 2, 4)
    expected = np.prod([gains[t] for t in range(first, last + 1)])
    found = float(propagation.gain_product(backend.array(gains), first=first, last=last))
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.equation("perturbation-norm")
@given(widths=chains, seed=GENERATORS)
def test_norm_of_the_change_is_within_its_bound(backend, widths, seed):
    means, rests = drawn(widths, seed)
    gains, sizes = norms(means), norms(rests)
    bound = float(propagation.perturbation_norm_bound(backend.array(gains), backend.array(sizes)))
    assert bound == pytest.approx(np.prod(gains + sizes) - np.prod(gains), rel=1e-9, abs=1e-12)
    norm = norms([change(means, rests)])[0]
    hunt(norm, bound)
    assert norm <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.equation("perturbation-norm")
@given(seed=GENERATORS, layers=st.integers(1, 4))
def test_non_negative_numbers_attain_the_bound(seed, layers):
    means, rests = np.random.default_rng(seed).uniform(0, 2, (2, layers))
    norm = abs(change(means, rests)[0, 0])
    assert float(propagation.perturbation_norm_bound(means, rests)) == pytest.approx(norm, rel=1e-9)


@pytest.mark.equation("app-DeltaA-bound")
@given(widths=chains, seed=GENERATORS)
def test_printed_norm_bound_holds_for_the_first_order_part(backend, widths, seed):
    means, rests = drawn(widths, seed)
    bound = float(
        propagation.first_order_norm_bound(backend.array(norms(means)), backend.array(norms(rests)))
    )
    first = norms([words(means, rests, {1})])[0]
    hunt(first, bound)
    assert first <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.equation("app-DeltaA-bound")
def test_counterexample_no_constant_mends_the_printed_norm_bound():
    """Without mean part and with dJ = 1 twice, the change is 1 and the printed bound 0."""
    zeros, ones = np.zeros(2), np.ones(2)
    assert change(zeros, ones)[0, 0] == 1.0
    assert float(propagation.first_order_norm_bound(zeros, ones)) == 0.0
    assert float(propagation.perturbation_norm_bound(zeros, ones)) == 1.0
    for layers in (2, 3, 6):  # and the ratio grows without bound where both are 1
        ones = np.ones(layers)
        printed = float(propagation.first_order_norm_bound(ones, ones))
        assert change(ones, ones)[0, 0] / printed == (2**layers - 1) / layers


@pytest.mark.equation("app-DeltaA-bound")
def test_search_finds_counterexamples_to_the_printed_norm_bound():
    def margin(point):
        means, rests = drawn(*point)
        printed = float(propagation.first_order_norm_bound(norms(means), norms(rests)))
        return norms([change(means, rests)])[0] - printed

    assert largest_margin(st.tuples(st.sampled_from(CHAINS[1:]), seeds), margin) > 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: propagation.telescoping_perturbation([m], [m, m]), "deviations: expected 1 matrices"),
        (lambda m: propagation.first_order_perturbation([m], [m, m]), "deviations: expected 1 matrices"),
        (lambda m: propagation.first_order_perturbation([m], [m[:1]]), r"deviations\[0\]: expected shape"),
        (
            lambda m: propagation.first_order_perturbation([m[None]], [m[:1]]),
            r"deviations\[0\]: expected shape \(..., 2, 2\) as means\[0\] has, got \(1, 2\)",
        ),
        (
            lambda m: propagation.perturbation_norm_bound(m[0], m[0, :1]),
            "perturbations: expected shape",
        ),
        (lambda m: propagation.gain_product(m[0], first=0, last=2), "last: expected"),
        (lambda m: propagation.jacobian_split(m, m[0]), "jacobians: expected shape"),
    ],
)
def test_wrong_shapes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 2)))
