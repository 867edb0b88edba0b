"""From scores to weights, against the definition written with sorted lists and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
# Lengths are few, so that a compiling backend compiles few programs; ties are common.
vectors = st.sampled_from((1, 2, 7)).flatmap(
    lambda n: st.lists(
        finite | st.sampled_from((0.0, 1.0, math.nan, math.inf, -math.inf)), min_size=n, max_size=n
    )
)
normalizations = st.sampled_from(("kept", "batch"))


def normalized(kept: list[bool], normalize: str) -> list[float]:
    each = Fraction(1, len(kept) if normalize == "batch" else max(1, sum(kept)))
    return [float(each) if keep else 0.0 for keep in kept]


@given(vectors, normalizations)
def test_finite_and_positive_scores_are_kept(backend, scores, normalize):
    for policy, above in ((lai.keep_positive, 0.0), (lai.keep_all, -math.inf)):
        weights = backend.numpy(policy(backend.array(scores), normalize=normalize))
        expected = normalized([math.isfinite(score) and score > above for score in scores], normalize)
        np.testing.assert_allclose(weights, expected, rtol=1e-15)


@given(vectors, st.sampled_from((0.01, 0.3, 0.5, 0.7, 1.0)), normalizations)
def test_keep_top_breaks_ties_by_index(backend, scores, fraction, normalize):
    weights = backend.numpy(lai.keep_top(backend.array(scores), fraction, normalize=normalize))
    count = max(1, math.ceil(Fraction(str(fraction)) * len(scores)))
    ranked = sorted(
        (index for index, score in enumerate(scores) if math.isfinite(score)),
        key=lambda index: (-scores[index], index),
    )
    kept = [index in ranked[:count] for index in range(len(scores))]
    np.testing.assert_allclose(weights, normalized(kept, normalize), rtol=1e-15)


@pytest.mark.parametrize(
    ("fraction", "n", "kept"),
    [
        (0.07, 100, 7), (0.1, 30, 3), (0.5, 3, 2), (1e-9, 5, 1),
        (0.5 * (1 + 3 * 2.0**-52), 100, 50), (0.5 * (1 + 5 * 2.0**-52), 100, 51),
    ],
)  # fmt: skip
def test_keep_top_reads_fractions_as_decimals(backend, fraction, n, kept):
    """In binary 0.07 * 100 is 7.000000000000001, whose ceiling is 8."""
    scores = backend.array(np.arange(float(n)))
    weights = backend.numpy(lai.keep_top(scores, fraction))
    assert (weights > 0).sum() == kept
    masked = backend.numpy(lai.keep_top(scores, fraction, valid=scores >= 0))
    np.testing.assert_array_equal(masked, weights)


def test_first_of_equal_scores_are_kept():
    """Sorts of few numbers are stable whatever is asked of them."""
    scores = np.repeat([0.0, 1.0, 0.5], 100)[np.random.default_rng(0).permutation(300)]
    ranked = sorted(range(300), key=lambda index: (-scores[index], index))
    assert np.flatnonzero(lai.keep_top(scores, 0.5)).tolist() == sorted(ranked[:150])


@given(vectors)
def test_reweight_is_proportional_to_positive_parts(backend, scores):
    weights = backend.numpy(lai.reweight(backend.array(scores)))
    positive = [max(score, 0.0) if math.isfinite(score) else 0.0 for score in scores]
    total = math.fsum(positive)
    expected = [value / total if total else 0.0 for value in positive]
    np.testing.assert_allclose(weights, expected, rtol=1e-13, atol=1e-300)


@given(vectors, st.sampled_from((0.0, 0.1, 1.0)))
def test_sampling_mixes_scores_with_a_floor(backend, scores, floor):
    probabilities = backend.numpy(lai.sampling_probabilities(backend.array(scores), floor=floor))
    drawable = [math.isfinite(score) for score in scores]
    n, total = sum(drawable), math.fsum(max(s, 0.0) for s in scores if math.isfinite(s))
    expected = [
        (floor / n + (1 - floor) * (max(score, 0.0) / total if total else 1 / n)) if ok else 0.0
        for score, ok in zip(scores, drawable, strict=True)
    ]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-13, atol=1e-300)
    assert probabilities.sum() == pytest.approx(1.0 if n else 0.0)


def test_scores_near_overflow_still_give_weights(backend):
    largest = float(np.finfo(np.float32).max)
    scores = backend.array(np.array([largest, largest, 0.0]), "float32")
    np.testing.assert_allclose(backend.numpy(lai.reweight(scores)), [0.5, 0.5, 0.0])


def test_reweight_keeps_digits_of_small_scores():
    scores = np.array([1e38, 1e31], np.float32)
    np.testing.assert_allclose(lai.reweight(scores), [1.0, 1e-7], rtol=1e-5)
