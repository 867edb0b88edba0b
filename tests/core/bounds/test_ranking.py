"""What quotients between bounds say about ranking and selection."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lai_core import bounds
from tests.support.draws import GENERATORS
from tests.support.entries import halves
from tests.support.inequalities import at_most, hunt
from tests.support.networks import ASSUMING, Shape


def bounded_quotients(seed, n=5, ends=False):
    """Draw approximate scores of any sign, bounds m < M, and exact scores with quotients in [m, M]."""
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.uniform(0.05, 2, 2))
    approximate = rng.standard_normal(n) + rng.choice([0, 3])
    share = rng.integers(0, 2, n) if ends else rng.uniform(0, 1, n)
    return approximate * (low + share * (high - low)), approximate, float(low), float(high)


def correlation(x, y):
    return np.corrcoef(x, y)[0, 1]


@pytest.mark.equation("rank-cosine")
@given(GENERATORS, st.booleans())
def test_the_cosine_is_at_least_its_guarantee(seed, ends):
    exact, approximate, low, high = bounded_quotients(seed, ends=ends)
    assume(approximate.any())
    cosine = exact @ approximate / np.linalg.norm(exact) / np.linalg.norm(approximate)
    guarantee = bounds.cosine_guarantee(low=low, high=high)
    hunt(guarantee, cosine)
    assert at_most(guarantee, cosine)


@pytest.mark.equation("rank-pearson")
@given(GENERATORS, st.booleans())
def test_the_correlation_is_at_least_its_guarantee(seed, ends):
    exact, approximate, low, high = bounded_quotients(seed, n=6, ends=ends)
    assume(min(exact.std(), approximate.std()) > 1e-9)
    guarantee = bounds.pearson_guarantee(approximate, low=low, high=high)
    found = correlation(exact, approximate)
    hunt(guarantee, found)
    assert at_most(guarantee, found)


@pytest.mark.equation("rank-pearson")
def test_counterexample_quotients_near_one_say_nothing_of_the_correlation_of_equal_scores():
    approximate, exact = np.array([1.0, 1.01]), np.array([1.01, 1.0])
    np.testing.assert_allclose(correlation(exact, approximate), -1.0)
    assert bounds.pearson_guarantee(approximate, low=1 / 1.01, high=1.01) == -1.0
    for low in (0.9, 1.1):
        assert bounds.pearson_guarantee(np.ones(3), low=low, high=1.1) == -1.0
    centred = bounds.pearson_guarantee(np.array([1.0, -1.0]), low=0.5, high=2.0)
    np.testing.assert_allclose(centred, bounds.cosine_guarantee(low=0.5, high=2.0))


ENDS = st.sampled_from([(0.0, 1.0), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0), (1.0, 2.0)])
"""m and M: equal, far apart, and a quotient of zero."""


@pytest.mark.equation("concordance")
@given(halves(4), ENDS)
def test_an_order_is_certain_exactly_where_no_admissible_scores_break_it(approximate, ends):
    """The worst scores for "j above k" are the lowest of j and the highest of k, which may be equal."""
    certain = bounds.certain_order(approximate, low=ends[0], high=ends[1])
    for j in range(4):
        for k in range(4):
            lowest = min(end * approximate[j] for end in ends)
            assert certain[j, k] == all(lowest > end * approximate[k] for end in ends)


@pytest.mark.equation("rank-flip")
@given(halves(4, -2, 2), halves(4, -2, 2))
def test_a_pair_is_reversed_where_neither_ranking_has_a_tie(exact, approximate):
    """By the sign of the product of both differences, which a tie makes 0."""
    one, other = (scores[:, None] - scores for scores in (exact, approximate))
    assert (bounds.reversed_pairs(exact, approximate) == ((one * other < 0) & (one > 0))).all()


@pytest.mark.equation("sign-agreement")
@given(halves((3, 4), -2, 2), ENDS)
def test_a_sign_is_certain_exactly_where_no_admissible_quotients_break_it(kernel, ends):
    """Every choice of an end for each pair is tried; a score of 0 has no sign."""
    choices = np.array(np.meshgrid(*[ends] * 3)).reshape(3, -1, 1)
    scores = (kernel[:, None, :] * choices).sum(0)
    kept = (scores > 0).all(0) | (scores < 0).all(0)
    assert (bounds.certain_sign(kernel, low=ends[0], high=ends[1]) == kept).all()


@pytest.mark.equation("selection-regret")
@given(halves((2, 5)))
@example(np.array([[-1.0, 0.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.5]]))
@example(np.array([[7.0, 0.0, 5.0, 1.0, 6.0], [1.0] * 5]))
def test_the_regret_is_at_most_the_distance_of_scaled_scores(scores):
    exact, approximate = scores
    regret = bounds.selection_regret(exact, approximate)
    best = np.maximum(exact, 0).sum() - exact[approximate > 0].sum()
    np.testing.assert_allclose(regret, best, rtol=1e-9, atol=1e-12)
    bound = bounds.selection_regret_bound(exact, approximate)
    hunt(regret, bound)
    assert at_most(regret, bound)
    scales = np.append(np.linspace(0.1, 5, 30), 0.0)
    breaks = exact[approximate != 0] / approximate[approximate != 0]
    scales = np.append(scales, breaks[breaks > 0])
    distances = np.abs(exact - scales[:, None] * approximate).sum(1)
    np.testing.assert_allclose(bound, distances.min(), rtol=1e-9, atol=1e-12)


@pytest.mark.equation("identical-ranking")
@given(GENERATORS, st.integers(2, 6))
def test_scaled_orthogonal_layers_give_one_factor_and_correlation_one(seed, depth):
    rng = np.random.default_rng(seed)
    case = ASSUMING["orthogonal"](rng, Shape(1, depth, 4, 2, 5))
    weights = [w[0] for w in case.networks.weights]
    stretch = [np.linalg.norm(w, 2) ** 2 for w in weights]
    gains = np.array([np.prod(stretch[layer + 1 :]) for layer in range(depth)])
    proportions = np.array([np.prod(stretch[:layer]) for layer in range(depth)])
    factor = bounds.common_factor(gains, proportions)
    np.testing.assert_allclose(case.ghost[0], factor * case.lai[0], rtol=1e-9)
    if case.lai[0].std() > 1e-6 * np.abs(case.lai[0]).max():
        np.testing.assert_allclose(correlation(case.ghost[0], case.lai[0]), 1.0)


@pytest.mark.equation("rank-pearson")
def test_a_radicand_of_zero_guarantees_nothing():
    """1 + 1 / CV^2 = 8 / 2, and quotients between 1 and 3 have (tau / lambda)^2 = 1/4."""
    approximate = np.array([2.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    assert bounds.pearson_guarantee(approximate, low=1.0, high=3.0) == -1.0
    assert bounds.pearson_guarantee(approximate, low=1.0, high=2.9) > 0.0
