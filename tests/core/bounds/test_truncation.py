"""Ghost from its top layers: the certificate is never wrong, the random truncation never biased."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lai_core import bounds
from tests.support.draws import GENERATORS, SHAPES
from tests.support.entries import halves
from tests.support.inequalities import at_most, hunt
from tests.support.networks import FAMILIES


def certificate(case, networks, kept):
    """Bound what lies below the `kept` top layers, from weights, slopes and the lowest kept gradients."""
    below = case.depth - kept
    factors = []
    for batch in (case.validation, case.training):
        slopes = networks.gates(batch.activations[0])
        rows = [bounds.layer_factors(networks.weights[t + 1][0], slopes[t][0]) for t in range(below)]
        factors.append(np.stack(rows))
    norms = [n[0, below] for n in (case.validation_norms, case.training_norms)]
    return bounds.top_layers_bound(case.alpha[0, :below], *factors, *norms)


@pytest.mark.equation("top-layer-certificate")
@pytest.mark.parametrize("family", FAMILIES)
@given(GENERATORS, SHAPES)
def test_what_the_lower_layers_add_is_at_most_the_certificate(family, seed, shape):
    case = FAMILIES[family](np.random.default_rng(seed), shape)
    for kept in range(1, case.depth):
        bound = certificate(case, case.networks, kept)
        products = case.alpha[0] * case.beta[0]
        missing = np.abs(products[: case.depth - kept].sum((0, 1)))
        hunt(missing, bound, f"{kept} kept")
        assert at_most(missing, bound, np.abs(products).sum())
        top = products[case.depth - kept :].sum((0, 1))
        certain = np.abs(top) > bound * (1 + 1e-9) + 1e-9
        assert (np.sign(top) == np.sign(case.ghost[0]))[certain].all()


@pytest.mark.equation("top-layer-certificate")
@given(GENERATORS)
def test_a_factor_bounds_one_step_of_backpropagation(seed):
    rng = np.random.default_rng(seed)
    weight, slopes = rng.standard_normal((3, 4)), rng.uniform(-0.5, 1, (6, 4)) * rng.integers(0, 2, (6, 4))
    slopes = slopes * rng.choice([1.0, 3.0], (6, 1))  # beyond 1 too: GELU's reach 1.13
    factors = bounds.layer_factors(weight, slopes)
    steps = [np.linalg.norm(np.diag(s) @ weight.T, 2) for s in slopes]
    hunt(steps, factors)
    assert at_most(steps, factors)
    wide = bounds.layer_factors(weight, np.full((1, 4), 3.0))
    assert at_most(wide, 3.0 * np.linalg.norm(weight, 2))


@pytest.mark.equation("random-truncation", "truncation-variance")
@given(halves((4, 2)), st.lists(st.integers(0, 3), max_size=3))
def test_random_truncation_is_unbiased_with_its_variance_by_enumerating_all_depths(terms, steps):
    """Zeros and ties: layers that are never kept leave mean and variance those of the others."""
    depth = len(steps) + 1
    terms, chances = terms[:depth], np.append(np.cumsum(steps), sum(steps) + 1.0) / (sum(steps) + 1.0)
    lowest, possible = np.diff(chances, prepend=0.0), np.flatnonzero(chances)
    kept = np.array([sum(terms[m] / chances[m] for m in possible if m >= k) for k in range(depth)])
    for k, estimate in enumerate(kept):
        np.testing.assert_allclose(bounds.truncated_ghost(terms[k:], chances), estimate, rtol=1e-12)
    mean = lowest @ kept
    np.testing.assert_allclose(mean, terms[chances > 0].sum(0), rtol=1e-12, atol=1e-12)
    found = bounds.truncation_variance(terms, chances)
    np.testing.assert_allclose(found, lowest @ (kept - mean) ** 2, rtol=1e-12, atol=1e-12)


@pytest.mark.equation("random-truncation", "truncation-variance")
@given(st.lists(st.integers(-2, 2), min_size=2, max_size=5), st.floats(0.3, 1.0))
@example([0, 0, 1], 0.5)
@example([0, 1, 1], 0.5)
@example([1, -1, 2], 0.5)
def test_the_librarys_own_probabilities_are_unbiased_with_a_finite_variance(values, spare):
    terms, depth = np.array(values, float), len(values)
    share = 1 / depth + spare * (1 - 1 / depth)
    best = bounds.truncation_probabilities(terms[:, None], costs=[1.0] * depth, share=share)
    assert terms[best == 0].sum() == 0
    zero = [k for k in range(depth - 1) if np.cumsum(terms)[k] == 0]
    assert (best == 0).sum() == (zero[-1] + 1 if zero else 0)
    lowest = np.diff(np.concatenate([[0.0], best]))
    estimates = np.array([bounds.truncated_ghost(terms[k:], best) for k in range(depth)])
    np.testing.assert_allclose(lowest @ estimates, terms.sum(), atol=1e-9)
    found = bounds.truncation_variance(terms, best)
    np.testing.assert_allclose(found, lowest @ (estimates - terms.sum()) ** 2, rtol=1e-9, atol=1e-9)


@pytest.mark.equation("truncation-variance")
@given(GENERATORS, st.integers(2, 6), st.floats(0, 1))
def test_no_probabilities_of_the_same_cost_have_a_smaller_variance(seed, depth, spare):
    rng = np.random.default_rng(seed)
    terms, costs = rng.standard_normal((depth, 3)), rng.uniform(0.2, 2, depth)
    least = costs[-1] / costs.sum()
    share = least + (0.98 * spare + 0.01) * (1 - least)
    best = bounds.truncation_probabilities(terms, costs=[float(c) for c in costs], share=float(share))
    assert (np.diff(best) >= -1e-12).all()
    assert best[-1] == best.max() == 1.0
    assert at_most((best * costs).sum(), share * costs.sum())
    assume((best > 0).all())  # 0 for layers that add nothing; the others may then cost less than the share
    np.testing.assert_allclose((best * costs).sum(), share * costs.sum(), rtol=1e-9)
    least = bounds.truncation_variance(terms, best).sum()
    for _ in range(20):
        other = np.append(np.sort(best[:-1] * np.exp(0.3 * rng.standard_normal(depth - 1))), 1.0)
        budget = share * costs.sum() - costs[-1]
        for _ in range(60):
            other[:-1] = np.minimum(1, other[:-1] * budget / (other[:-1] * costs[:-1]).sum())
        if (other * costs).sum() <= share * costs.sum() * (1 + 1e-9):
            assert at_most(least, bounds.truncation_variance(terms, other).sum() * (1 + 1e-7))


@pytest.mark.equation("truncation-variance")
def test_the_whole_cost_leaves_no_variance_and_the_last_layers_alone_no_freedom():
    terms = np.array([[1.0], [2.0], [-1.0]])
    everything = bounds.truncation_probabilities(terms, costs=[1.0, 2.0, 1.0], share=1.0)
    assert everything.tolist() == [1.0, 1.0, 1.0]
    assert bounds.truncation_variance(terms, everything) == 0.0
    nearly = bounds.truncation_probabilities(terms, costs=[1.0, 2.0, 1.0], share=0.26)
    assert np.all(nearly[:-1] > 0)  # else the estimate would miss what the layers below add up to
    assert bounds.truncation_probabilities(terms[:1], costs=[3.0], share=1.0).tolist() == [1.0]


@pytest.mark.equation("truncation-variance")
def test_partial_sums_that_shrink_are_pooled():
    """P = 2, then 1: the second layer's own optimum would be below the first's, so that both are equal."""
    terms = np.array([[2.0], [-1.0], [3.0]])
    pooled = bounds.truncation_probabilities(terms, costs=[1.0, 1.0, 1.0], share=0.5)
    assert pooled.tolist() == [0.25, 0.25, 1.0]
