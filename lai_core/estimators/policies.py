"""From scores to weights, and how sure the scores are of their sign."""

import math
from collections.abc import Sequence
from math import inf
from typing import Any, TypeVar

from jaxtyping import Float

from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_choice, check_floating, check_not_empty, check_number
from lai_core._engine.namespace import (
    Array,
    Namespace,
    accumulation_dtype,
    cast,
    device_of,
    is_array,
    namespace_of,
)
from lai_core._theory.algebra import quotient
from lai_core._theory.student import upper_tail

__all__ = [
    "drop_harmful",
    "keep_all",
    "keep_positive",
    "keep_top",
    "reweight",
    "sampling_probabilities",
    "standard_errors",
    "top_count",
]


# From scores to weights: the update that minimises `sum_j w_j loss_j`.
#
# Scores are those of samples, `(n,)`, or of positions, `(n, t)`, whose weights multiply the positions'
# losses. Positive scores help and are kept. A score that is not finite gets weight 0 everywhere, so that a
# broken sample cannot enter an update. If no sample is kept all weights are 0.


ArrayT = TypeVar("ArrayT")
"""Weights are of the namespace of the scores."""

NORMALIZATIONS = ("kept", "batch")


def keep_positive(scores: ArrayT, *, normalize: str = "kept") -> Float[ArrayT, " *shape"]:
    """Keep the samples, or the positions, with a positive score.

    Parameters
    ----------
    scores
        `(n,)` or `(n, t)`; positive helps.
    normalize
        `kept`: each kept sample weighs 1 / kept, the mean over the kept. `batch`: 1 / n, so that
        dropping samples shortens the step.

    Returns
    -------
    array
        Weights of the scores' shape; all 0 if no score is positive.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> lai.keep_positive(np.array([3.0, -1.0, 1.0, np.nan]))
    array([0.5, 0. , 0.5, 0. ])
    """
    check_choice("normalize", normalize, NORMALIZATIONS)
    xp, values = _finite(scores)
    return _normalize_kept(xp, xp.astype(values > 0, values.dtype), normalize)


def keep_all(scores: ArrayT, *, normalize: str = "kept") -> Float[ArrayT, " *shape"]:
    """Keep every sample, or position, whatever its score: training goes on as without scores, which report.

    Parameters
    ----------
    scores
        `(n,)` or `(n, t)`, which only say what is broken.
    normalize
        As in `keep_positive`.

    Returns
    -------
    array
        Weights of the scores' shape, all alike, but 0 where a score is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> lai.keep_all(np.array([3.0, -1.0, 1.0, np.nan, -2.0]))
    array([0.25, 0.25, 0.25, 0.  , 0.25])
    """
    check_choice("normalize", normalize, NORMALIZATIONS)
    xp, values = _finite(scores, otherwise=-math.inf)
    return _normalize_kept(xp, xp.astype(values > -math.inf, values.dtype), normalize)


def keep_top(
    scores: ArrayT, fraction: float, *, normalize: str = "kept", valid: ArrayT | None = None
) -> Float[ArrayT, " *shape"]:
    """Keep the `max(1, ceil(fraction n))` samples with the largest scores, whatever their sign.

    Parameters
    ----------
    scores
        `(n,)` or `(n, t)`, of which the best positions of the whole batch are kept; positive helps.
    fraction
        Share to keep, in (0, 1]. Read as the decimal number it is written as: 0.07 of 100 are 7.
    normalize
        As in `keep_positive`.
    valid
        Booleans of the scores' shape: which entries count, n of them in all. None: all. Padding and prompts
        have a score of 0, which is above that of a harmful token.

    Returns
    -------
    array
        Weights of the scores' shape. Among equal scores the lower index is kept.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> lai.keep_top(np.array([1.0, 3.0, 3.0, 2.0]), 0.5)
    array([0. , 0.5, 0.5, 0. ])
    """
    check_number("fraction", fraction, above=0.0, at_most=1.0)
    check_choice("normalize", normalize, NORMALIZATIONS)
    xp, values = _finite(scores, otherwise=-math.inf)
    count: Any = math.prod(values.shape)
    if valid is not None:
        namespace_of({"scores": scores, "valid": valid})
        check_array("valid", valid, " ".join(map(str, values.shape)), kind="bool")
        values = xp.where(valid, values, xp.full_like(values, -math.inf))
        count = xp.sum(xp.astype(valid, values.dtype))
    order = xp.argsort(-xp.reshape(values, (-1,)), stable=True)
    rank = xp.reshape(xp.argsort(order, stable=True), values.shape)  # the inverse of a permutation
    if valid is None:
        kept: Any = top_count(fraction, count)
    else:
        # fraction count is off by two roundings at most: a hair less than a whole number is that number
        hair = 1.0 - 4.0 * float(xp.finfo(values.dtype).eps)
        share = xp.astype(xp.ceil(float(str(fraction)) * count * hair), rank.dtype)
        kept = xp.maximum(share, xp.ones_like(share))
    taken = (rank < kept) & (values > -math.inf)
    return _normalize_kept(xp, xp.astype(taken, values.dtype), normalize, count)


def top_count(fraction: float, samples: int) -> int:
    """Return how many of so many samples `keep_top` keeps, if all their scores are finite.

    Parameters
    ----------
    fraction
        The share to keep.
    samples
        How many there are.

    Returns
    -------
    int
        At least 1.
    """
    # A hair less, so that rounding 0.07 * 100 up to 7.000000000000001 does not keep an eighth sample.
    return max(1, math.ceil(float(str(fraction)) * samples * (1 - 2.0**-50)))


def reweight(scores: ArrayT) -> Float[ArrayT, " *shape"]:
    """Weigh samples, or positions, in proportion to `max(score, 0)`.

    Parameters
    ----------
    scores
        `(n,)` or `(n, t)`; positive helps.

    Returns
    -------
    array
        Weights of the scores' shape that sum to 1; all 0 if no score is positive.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> lai.reweight(np.array([3.0, -1.0, 1.0]))
    array([0.75, 0.  , 0.25])
    """
    xp, values = _finite(scores)
    positive = _positive_part(xp, values)
    return _divide(xp, positive, xp.sum(positive))


def sampling_probabilities(scores: ArrayT, *, floor: float = 0.1) -> Float[ArrayT, " n"]:
    """Probabilities `floor / n + (1 - floor) max(score, 0) / sum` for drawing samples by priority.

    Parameters
    ----------
    scores
        `(n,)`; positive helps.
    floor
        Share of the probability that is spread evenly, in [0, 1]; above 0 every sample can be drawn,
        which importance weights need.

    Returns
    -------
    array
        `(n,)`, summing to 1. Even if no score is positive. Samples whose score is not finite have
        probability 0 and no part of the floor; if none is finite all are 0.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> lai.sampling_probabilities(np.array([3.0, -1.0, 1.0, 0.0]), floor=0.2)
    array([0.65, 0.05, 0.25, 0.05])
    """
    check_number("floor", floor, at_least=0.0, at_most=1.0)
    check_array("scores", scores, "n")
    xp, values = _finite(scores)
    drawable = xp.astype(xp.isfinite(scores), values.dtype)
    even = _divide(xp, drawable, xp.sum(drawable))
    positive = _positive_part(xp, values)
    total = xp.sum(positive)
    by_score = xp.where(total > 0, _divide(xp, positive, total), even)
    return even * float(floor) + by_score * (1.0 - float(floor))


def _finite(scores: Array, otherwise: float = 0.0) -> tuple[Namespace, Array]:
    """Return the namespace and the scores, at least float32, with `otherwise` where they are not finite."""
    xp = check_array("scores", scores, "n", "n t")
    values = cast(xp, scores, accumulation_dtype(xp, scores.dtype))
    return xp, xp.where(xp.isfinite(values), values, xp.full_like(values, otherwise))


def _positive_part(xp: Namespace, values: Array) -> Array:
    """Return `max(value, 0)` over the largest value, so that the sum cannot overflow."""
    # Divided twice by the root of the largest: a compiler may multiply by the reciprocal instead, which
    # is 0 for the largest floats where subnormal numbers are flushed.
    positive = xp.maximum(values, xp.zeros_like(values))
    root = xp.sqrt(xp.max(positive))
    return _divide(xp, _divide(xp, positive, root), root)


def _normalize_kept(xp: Namespace, kept: Array, normalize: str, count: Any = None) -> Array:
    """Return the array `kept` of 0 and 1 over its sum, or over the number of entries, `count`."""
    if normalize == "kept":
        return _divide(xp, kept, xp.sum(kept))
    if count is None or isinstance(count, int):  # all entries; otherwise an array, of valid ones, maybe none
        return kept * (1.0 / math.prod(kept.shape))
    return _divide(xp, kept, count)


def _divide(xp: Namespace, values: Array, by: Array) -> Array:
    """Return `values / by`, and zeros where `by` is 0: the divisor is replaced first, so no 0/0 arises."""
    return values / xp.where(by > 0, by, xp.ones_like(by))


# How far the scores of a finite validation set may be from those of all validation samples there are.
#
# The validation samples are draws, so that each score is a sum of independent terms, one a sample. Cut into m
# parts, in any way that does not look at the scores, the set gives m scores whose spread says how far their
# sum can be off. The parts may be single samples, a kernel's rows; a few of them (16, say) give almost as
# narrow intervals and cost as many summaries.


def standard_errors(parts: Array, *, sizes: Any = None) -> Float[Array, " n_train"]:
    r"""Estimate the standard deviation of the scores `parts.sum(0)` over draws of the validation set.

    Implements :eq:`part-variance`; its square is unbiased.

    Student's t of m - 1 degrees of freedom times it is half of the normal interval around the scores.

    Parameters
    ----------
    parts
        `(m, n_train)`: the training samples' scores against m parts of the validation set. A kernel will
        do: its parts are single samples. A single part says nothing of its error, which is then infinite.
    sizes
        `(m,)`, how many validation samples each part has: an array of the parts' namespace or a sequence
        of numbers. A part of size 0 does not count. None: all parts have the same size.

    Returns
    -------
    array
        `(n_train,)`, in the scores' units.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> lai.standard_errors(np.array([[1.0, 4.0], [3.0, -4.0]]))
    array([2., 8.])
    """
    return _spread(parts, sizes)[2]


def drop_harmful(
    parts: Array,
    *,
    rate: float = 0.1,
    sizes: Any = None,
    normalize: str = "kept",
) -> Float[Array, " n_train"]:
    r"""Drop the samples that hurt for certain: a share of at most `rate` of those dropped does not.

    Implements :eq:`false-discovery-rate`. To hurt is to have a negative mean score. Every training sample is
    tested against one validation set, so that the tests depend on one another, and samples with opposite
    gradients negatively: hence Benjamini and Yekutieli's thresholds, which hold whatever the dependence.

    Parameters
    ----------
    parts, sizes
        As for `standard_errors`; the tests are Student's.
    rate
        The false discovery rate, in (0, 1]: what share of the dropped samples may, on average over draws
        of the validation set, do no harm.
    normalize
        As in `keep_positive`.

    Returns
    -------
    array
        `(n_train,)` weights; a sample whose parts are not all finite gets weight 0, and counts as tested.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> lai.drop_harmful(np.array([[-3.0, 2.0], [-3.1, -4.0], [-2.9, 1.0], [-3.0, -2.0]]))
    array([0., 1.])
    """
    check_number("rate", rate, above=0.0, at_most=1.0)
    check_choice("normalize", normalize, NORMALIZATIONS)
    xp, score, error, freedom = _spread(parts, sizes)
    # How often scores of mean 0 are as far below 0, in standard errors; 1 without a finite one.
    one = xp.ones_like(score)
    tail = upper_tail(xp, quotient(xp, -score, error, 0.0), freedom)
    tail = xp.where(error > 0, tail, xp.where(score < 0, xp.zeros_like(score), one))
    p_values = xp.where(xp.isfinite(score) & xp.isfinite(error), tail, one)
    # Dropped are the k smallest, for the largest k of which the largest is at most its limit. The k-th limit
    # is k rate / n, divided by 1 + 1/2 + ... + 1/n as the tests may depend on one another in any way.
    tests = int(p_values.shape[0])
    harmonic = sum(1.0 / k for k in range(1, tests + 1))
    limits = [rate * k / (tests * harmonic) for k in range(1, tests + 1)]
    ordered = xp.sort(p_values)
    within = ordered <= xp.asarray(limits, dtype=ordered.dtype, device=device_of(ordered))
    # The largest that is within its limit takes all smaller ones with it.
    dropped = p_values <= xp.max(xp.where(within, ordered, xp.full_like(ordered, -inf)))
    kept = xp.isfinite(score) & ~dropped
    return _normalize_kept(xp, xp.astype(kept, score.dtype), normalize)


def _spread(parts: Array, sizes: Any) -> tuple[Namespace, Array, Array, Array]:
    """Check the parts' scores; return their sum with its standard error and Student's degrees of freedom."""
    xp = namespace_of({"parts": parts})
    if parts.ndim != 2 or parts.shape[0] < 1:
        msg = (
            "parts: expected shape (m, n_train), the scores against m >= 1 parts of the validation set, got "
            f"{tuple(parts.shape)}"
        )
        raise ValueError(msg)
    check_not_empty("parts", parts)
    check_floating("parts", parts, xp)
    values = cast(xp, parts, accumulation_dtype(xp, parts.dtype))
    weights = _sizes(xp, values, sizes)
    samples = xp.sum(weights)
    values = xp.where(weights[:, None] > 0, values, xp.zeros_like(values))
    score = xp.sum(values, axis=0)
    # Part i has n_i samples: its score has mean n_i mu and variance n_i sigma^2. In units of the largest, for
    # squares of small scores would be 0, and of large ones infinite.
    sizes = xp.max(xp.where(xp.isfinite(values), xp.abs(values), xp.zeros_like(values)), axis=0)
    unit = xp.where(sizes > 0, sizes, xp.ones_like(sizes))
    values = values / unit
    deviation = values - weights[:, None] * quotient(xp, xp.sum(values, axis=0), samples, 0.0)
    squares = xp.sum(quotient(xp, deviation * deviation, weights[:, None], 0.0), axis=0)
    # A part of size 0, as one whose samples all have a loss that is not finite, is no observation.
    freedom = xp.sum(xp.astype(weights > 0, values.dtype)) - 1.0
    freedom = xp.maximum(freedom, xp.zeros_like(freedom))
    # One part or none has an infinite error, whatever the quantile is that multiplies it.
    error = xp.sqrt(quotient(xp, samples * squares, freedom, inf)) * unit
    return xp, score, error, xp.maximum(freedom, xp.ones_like(freedom))


def _sizes(xp: Namespace, values: Array, sizes: Any) -> Array:
    count = int(values.shape[0])
    if sizes is None:
        return xp.ones_like(values[:, 0])
    if not is_array(sizes):
        if isinstance(sizes, str) or not isinstance(sizes, Sequence):
            msg = f"sizes: expected an array or a sequence of numbers, got {type(sizes).__name__}"
            raise TypeError(msg)
        for index, size in enumerate(sizes):
            check_number(f"sizes[{index}]", size, at_least=0.0)
        sizes = xp.asarray([float(size) for size in sizes], dtype=values.dtype, device=device_of(values))
    if tuple(sizes.shape) != (count,):
        msg = f"sizes: expected shape ({count},), one size for each part, got {tuple(sizes.shape)}"
        raise ValueError(msg)
    namespace_of({"parts": values, "sizes": sizes})
    return cast(xp, sizes, values.dtype)
