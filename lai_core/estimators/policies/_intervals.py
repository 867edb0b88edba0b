r"""How far the scores of a finite validation set may be from those of all validation samples there are.

The validation samples are draws, so that each score is a sum of independent terms, one a sample. Cut into m
parts, in any way that does not look at the scores, the set gives m scores whose spread says how far their
sum can be off. The parts may be single samples, a kernel's rows; a few of them (16, say) give almost as
narrow intervals and cost as many summaries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

from jaxtyping import Bool, Float

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
from lai_core._theory.student import upper_quantile, upper_tail
from lai_core.estimators.policies._weights import NORMALIZATIONS, normalize_kept

DEPENDENCE = ("arbitrary", "positive")


def score_intervals(
    parts: Array, *, level: float = 0.95, sizes: Any = None, bound: Any = None
) -> tuple[Float[Array, " n_train"], Float[Array, " n_train"]]:
    r"""Intervals for the scores that a validation set of this size has on average over its draws.

    Implements :eq:`part-variance` and :eq:`empirical-bernstein`. Without `bound` the interval is the normal
    one, :math:`S \pm t\, \sqrt n\, \hat\sigma` with Student's t of m - 1 degrees of freedom, m being the
    number of parts that have samples: right if the parts' scores are normal, as sums of many samples nearly
    are. With `bound` it is the empirical Bernstein one, right whatever their law, and wider.

    Parameters
    ----------
    parts
        `(m, n_train)`: the training samples' scores against m parts of the validation set. A kernel will
        do: its parts are single samples. A single part says nothing of its error, which is then infinite;
        with `bound` there have to be two.
    level
        How often the interval is to hold the mean score, in (0, 1): for each training sample by itself.
    sizes
        `(m,)`, how many validation samples each part has: an array of the parts' namespace or a sequence
        of numbers. A part of size 0 does not count. None: all parts have the same size.
    bound
        A number or `(n_train,)`: what the mean of a part's products can be in absolute value, known
        before the draw. Of LLI under cross-entropy it is at most :math:`2 \|a_j\| \max_z \|a_z\|`.

    Returns
    -------
    tuple
        Lower and upper ends, `(n_train,)` each, around the scores `parts.sum(0)`.

    Raises
    ------
    ValueError
        If both `sizes` and `bound` are given.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> low, high = lai.score_intervals(np.array([[1.0, 4.0], [1.5, -4.0], [2.0, 3.0]]))
    >>> (low > 0).tolist()
    [True, False]
    """
    check_number("level", level, above=0.0, below=1.0)
    spread = _spread(parts, sizes, bound)
    score, width = spread.score, spread.half_width((1.0 - level) / 2)
    return score - width, score + width


def standard_errors(parts: Array, *, sizes: Any = None) -> Float[Array, " n_train"]:
    r"""Estimate the standard deviation of the scores `parts.sum(0)` over draws of the validation set.

    Implements :eq:`part-variance`; its square is unbiased.

    Parameters
    ----------
    parts, sizes
        As for `score_intervals`.

    Returns
    -------
    array
        `(n_train,)`, in the scores' units.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.estimators.policies import standard_errors
    >>> standard_errors(np.array([[1.0, 4.0], [3.0, 4.0]]))
    array([2., 0.])
    """
    spread: Any = _spread(parts, sizes, None)
    return spread.error


def drop_harmful(
    parts: Array,
    *,
    rate: float = 0.1,
    dependence: str = "arbitrary",
    sizes: Any = None,
    bound: Any = None,
    normalize: str = "kept",
) -> Float[Array, " n_train"]:
    r"""Drop the samples that hurt for certain: a share of at most `rate` of those dropped does not.

    Implements :eq:`false-discovery-rate`. To hurt is to have a negative mean score. Every training sample is
    tested against one validation set, so that the tests depend on one another, and samples with opposite
    gradients negatively: hence Benjamini and Yekutieli's thresholds, which hold whatever the dependence.

    Parameters
    ----------
    parts, sizes, bound
        As for `score_intervals`: without `bound` the tests are Student's, with it Bernstein's.
    rate
        The false discovery rate, in (0, 1]: what share of the dropped samples may, on average over draws
        of the validation set, do no harm.
    dependence
        `arbitrary`, or `positive`: Benjamini and Hochberg's thresholds, which drop more and hold where the
        tests are independent or depend positively on one another.
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
    check_choice("dependence", dependence, DEPENDENCE)
    check_choice("normalize", normalize, NORMALIZATIONS)
    spread = _spread(parts, sizes, bound)
    dropped = _step_up(spread.xp, spread.p_values, float(rate), dependence)
    kept = spread.xp.isfinite(spread.score) & ~dropped
    return normalize_kept(spread.xp, spread.xp.astype(kept, spread.score.dtype), normalize)


def _step_up(xp: Namespace, p_values: Array, rate: float, dependence: str) -> Bool[Array, " n"]:
    """Return which tests reject: the k smallest, for the largest k of which the largest is at most its limit.

    The k-th limit is k rate / n, under arbitrary dependence divided by 1 + 1/2 + ... + 1/n.
    """
    tests = int(p_values.shape[0])
    harmonic = sum(1.0 / k for k in range(1, tests + 1)) if dependence == "arbitrary" else 1.0
    limits = [rate * k / (tests * harmonic) for k in range(1, tests + 1)]
    ordered = xp.sort(p_values)
    within = ordered <= xp.asarray(limits, dtype=ordered.dtype, device=device_of(ordered))
    # The largest that is within its limit takes all smaller ones with it.
    return p_values <= xp.max(xp.where(within, ordered, xp.full_like(ordered, -inf)))


@dataclass(frozen=True)
class _Normal:
    """Scores as normal variables: Student's t, of an array of degrees of freedom."""

    xp: Namespace
    score: Array
    error: Array
    freedom: Array

    def half_width(self, tail: float) -> Array:
        return upper_quantile(self.xp, tail, self.freedom) * self.error

    @property
    def p_values(self) -> Array:
        """How often scores of mean 0 are as far below 0, in standard errors; 1 without a finite one."""
        xp, zero, one = self.xp, self.xp.zeros_like(self.score), self.xp.ones_like(self.score)
        tail = upper_tail(xp, quotient(xp, -self.score, self.error, 0.0), self.freedom)
        tail = xp.where(self.error > 0, tail, xp.where(self.score < 0, zero, one))
        return xp.where(xp.isfinite(self.score) & xp.isfinite(self.error), tail, one)


@dataclass(frozen=True)
class _Bernstein:
    """Scores as sums of bounded variables, off by `root x + linear x^2` with x^2 = log(2 / chance)."""

    xp: Namespace
    score: Array
    root: Array
    linear: Array

    def half_width(self, tail: float) -> Array:
        square = log(2.0 / tail)
        return self.root * square**0.5 + self.linear * square

    @property
    def p_values(self) -> Array:
        """2 exp(-x^2) at the x at which the upper end of the interval is 0; 1 where it is above 1."""
        xp = self.xp
        below = xp.where(self.score < 0, -self.score, xp.zeros_like(self.score))
        # root x + linear x^2 = below, by the root of the quadratic that subtracts nothing
        x = quotient(xp, 2.0 * below, self.root + xp.sqrt(self.root**2 + 4.0 * self.linear * below), 0.0)
        chance, one = 2.0 * xp.exp(-x * x), xp.ones_like(x)
        return xp.where(chance < 1.0, chance, one)


def _spread(parts: Array, sizes: Any, bound: Any) -> _Normal | _Bernstein:
    """Check the parts' scores, and return their sum with what says how far it can be off."""
    xp = namespace_of({"parts": parts})
    least = 1 if bound is None else 2
    if parts.ndim != 2 or parts.shape[0] < least:
        msg = (
            f"parts: expected shape (m, n_train), the scores against m parts of the validation set, {least} "
            f"or more, got {tuple(parts.shape)}"
        )
        raise ValueError(msg)
    check_not_empty("parts", parts)
    check_floating("parts", parts, xp)
    values = cast(xp, parts, accumulation_dtype(xp, parts.dtype))
    if bound is not None:
        if sizes is not None:
            msg = "sizes: expected None beside a bound, which is for parts of one size; leave one of them out"
            raise ValueError(msg)
        return _bernstein(xp, values, bound)
    weights = _sizes(xp, values, sizes)
    samples = xp.sum(weights)
    score = xp.sum(values, axis=0)
    # Part i has n_i samples: its score has mean n_i mu and variance n_i sigma^2.
    deviation = values - weights[:, None] * (score / samples)
    squares = xp.sum(quotient(xp, deviation * deviation, weights[:, None], 0.0), axis=0)
    # A part of size 0, as one whose samples all have a loss that is not finite, is no observation.
    freedom = xp.sum(xp.astype(weights > 0, values.dtype)) - 1.0
    variance = quotient(xp, squares, freedom, inf)
    # A single part has an infinite error, whatever the quantile is that multiplies it.
    freedom = xp.maximum(freedom, xp.ones_like(freedom))
    return _Normal(xp, score, xp.sqrt(samples * variance), freedom)


def _bernstein(xp: Namespace, values: Array, bound: Any) -> _Bernstein:
    """Return the spread of m variables in [-bound, bound]; the sum is off by m times what the mean is."""
    count, samples = map(int, values.shape)
    if is_array(bound):
        check_array("bound", bound, str(samples))
        namespace_of({"parts": values, "bound": bound})
        bound = cast(xp, bound, values.dtype)
    else:
        check_number("bound", bound, above=0.0)
    score = xp.sum(values, axis=0)
    deviation = values - score / count
    variance = xp.sum(deviation * deviation, axis=0) / (count - 1)
    # Maurer and Pontil: the mean of m values in an interval of length r = 2 bound is off by at most
    # sqrt(2 V / m) x + 7 r / (3 (m - 1)) x^2, and the sum by m times that.
    linear = xp.zeros_like(score) + (count * 7.0 / (3.0 * (count - 1))) * 2.0 * bound
    return _Bernstein(xp, score, xp.sqrt(2.0 * count * variance), linear)


def _sizes(xp: Namespace, values: Array, sizes: Any) -> Array:
    count = int(values.shape[0])
    if sizes is None:
        return xp.ones_like(values[:, 0])
    if is_array(sizes):
        if tuple(sizes.shape) != (count,):
            msg = f"sizes: expected shape ({count},), one size for each part, got {tuple(sizes.shape)}"
            raise ValueError(msg)
        namespace_of({"parts": values, "sizes": sizes})
        return cast(xp, sizes, values.dtype)
    if isinstance(sizes, str) or not isinstance(sizes, Sequence):
        msg = f"sizes: expected an array or a sequence of numbers, got {type(sizes).__name__}"
        raise TypeError(msg)
    if len(sizes) != count:
        msg = f"sizes: expected one for each of {count} parts, got {len(sizes)}"
        raise ValueError(msg)
    for index, size in enumerate(sizes):
        check_number(f"sizes[{index}]", size, at_least=0.0)
    return xp.asarray([float(size) for size in sizes], dtype=values.dtype, device=device_of(values))
