"""From scores to weights: the update that minimises `sum_j w_j loss_j`.

Scores are those of samples, `(n,)`, or of positions, `(n, t)`, whose weights multiply the positions' losses.
Positive scores help and are kept. A score that is not finite gets weight 0 everywhere, so that a
broken sample cannot enter an update. If no sample is kept all weights are 0.
"""

import math
from typing import Any, TypeVar

from jaxtyping import Float

from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_choice, check_number
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, namespace_of

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
    return normalize_kept(xp, xp.astype(values > 0, values.dtype), normalize)


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
    return normalize_kept(xp, xp.astype(values > -math.inf, values.dtype), normalize)


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
    return normalize_kept(xp, xp.astype(taken, values.dtype), normalize, count)


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


def normalize_kept(xp: Namespace, kept: Array, normalize: str, count: Any = None) -> Array:
    """Return the array `kept` of 0 and 1 over its sum, or over the number of entries, `count`."""
    if normalize == "kept":
        return _divide(xp, kept, xp.sum(kept))
    if count is None or isinstance(count, int):  # all entries; otherwise an array, of valid ones, maybe none
        return kept * (1.0 / math.prod(kept.shape))
    return _divide(xp, kept, count)


def _divide(xp: Namespace, values: Array, by: Array) -> Array:
    """Return `values / by`, and zeros where `by` is 0: the divisor is replaced first, so no 0/0 arises."""
    return values / xp.where(by > 0, by, xp.ones_like(by))
