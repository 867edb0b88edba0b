r"""How far rounding moves a score: a bound from the number of roundings and a sum of absolute values.

Scores of Ghost, LAI and LLI are sums of products of four entries,
:math:`a_{z,i}\, a_{j,i}\, g_{z,k}\, g_{j,k}`. Each operation multiplies its result by :math:`1 + \delta`,
:math:`|\delta| \le u`; in whichever order the sums are taken, a product meets at most n of these factors. A
bias and layer weights are entries that are 1, or known; a fused multiplication and addition rounds once less.

A `TypeError` names an argument of a wrong kind, a `ValueError` one whose range does not fit.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from jaxtyping import Float

from lai_core._engine.checks import check_choice, check_number
from lai_core._engine.namespace import Array, xp_of
from lai_core.records.base import Trace
from lai_core.records.dense import LayerTrace

__all__ = ["count_roundings", "rounding_bound", "rounding_factor"]


def rounding_factor(*, roundings: int, unit_roundoff: float) -> float:
    r"""Return :math:`\gamma_n = n u / (1 - n u)`, which bounds the relative change by n roundings.

    Parameters
    ----------
    roundings
        The number n of roundings.
    unit_roundoff
        :math:`u`: half the distance from 1 to the next larger number.

    Returns
    -------
    float
        At least :math:`|\prod_k (1 + \delta_k)^{\pm 1} - 1|` where :math:`|\delta_k| \le u`.

    Raises
    ------
    ValueError
        If there are :math:`1 / u` roundings or more: nothing bounds the error then.

    Examples
    --------
    >>> rounding_factor(roundings=2**20, unit_roundoff=2.0**-24)
    0.06666666666666667
    """
    check_number("roundings", roundings, at_least=0)
    check_number("unit_roundoff", unit_roundoff, at_least=0, below=1)
    if roundings * unit_roundoff >= 1:
        msg = f"roundings: expected fewer than 1 / unit_roundoff ({1 / unit_roundoff:g}), got {roundings}"
        raise ValueError(msg)
    return roundings * unit_roundoff / (1 - roundings * unit_roundoff)


def count_roundings(validation: Trace, training: Trace, /, *, positions: str = "tokens") -> int:
    """Count the roundings that a product of entries meets at most, in any order of summation.

    Three multiplications, one by a layer's weight, and the additions of one sum over validation samples and
    pairs of positions, and of one over the entries of the weight matrices. Nested sums, as in the pairwise
    kernels, take fewer: 4 plus the lengths of the sums, less one for each.

    Parameters
    ----------
    validation, training
        Traces of `LayerTrace` records.
    positions
        What LAI's product means on layers with positions. `mean`: each of the four entries is a mean, of two
        roundings beside its additions. `flatten`: an entry's position counts among its matrix' inputs.

    Returns
    -------
    int
        The number of roundings.
    """
    sides = [_dense(trace) for trace in (validation, training)]
    check_choice("positions", positions, ("tokens", "mean", "flatten"))
    samples = len(sides[0][-1].activations)
    uses = [_most_positions(side) for side in sides]
    inputs = sum(layer.activations.shape[-1] + layer.bias for layer in sides[0])
    outputs = max(
        layer.output_gradients.shape[-1] for layer in sides[0] if layer.output_gradients is not None
    )
    over_samples, over_entries = samples - 1, inputs * outputs - 1
    if positions == "tokens":
        over_samples = samples * uses[0] * uses[1] - 1
    elif positions == "mean":
        over_samples += 2 * sum(number - 1 + 2 for number in uses)
    else:
        over_entries = max(uses) * (inputs * outputs + 1) - 2
    return 4 + over_samples + over_entries


def rounding_bound(
    scores: Callable[[Trace, Trace], Array],
    validation: Trace,
    training: Trace,
    /,
    *,
    roundings: int | None = None,
    unit_roundoff: float | None = None,
    stored_roundoff: float = 0.0,
) -> Float[Array, " n_train"]:
    r"""Bound the error by rounding of Ghost's, LAI's or LLI's scores.

    Implements :eq:`rounding-error`: :math:`\gamma_n \sum_z \sum_l \sum_{t,t'} \langle |a_z|, |a_j| \rangle
    \langle |g_z|, |g_j| \rangle`, as a product changes by a factor :math:`1 + \theta`,
    :math:`|\theta| \le \gamma_n`, whatever the order of summation. For other meanings of positions, LAI's
    scores of the absolute values stand in the place of the sum.

    Assume: every operation is rounded to nearest, with unit roundoff :math:`u`; :math:`n u < 1`; nothing
    overflows or underflows.

    Parameters
    ----------
    scores
        `ghost_scores`, `lli_scores` or `lai_scores`; with options by `functools.partial`, which says what
        `positions` means.
    validation, training
        Traces of `LayerTrace` records. Half precision is read exactly and accumulated in float32.
    roundings
        The number n of roundings of a product; by default `count_roundings`, right for any order.
    unit_roundoff
        :math:`u`, by default that of the scores' type, 2^-24 for float32.
    stored_roundoff
        If entries were rounded before they were stored, the unit roundoff of that type: 2^-8 for bfloat16,
        2^-11 for float16. The bound is then on the distance from the scores of the entries before.

    Returns
    -------
    array
        At least the absolute error of each score.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> one = lai.Trace([lai.LayerTrace(np.float32([[1.0, -2.0]]), np.float32([[3.0]]))])
    >>> bool(rounding_bound(lai.ghost_scores, one, one)[0] < 45 * 6 * 2.0**-24)
    True
    """
    sizes = scores(_absolute(validation), _absolute(training))
    xp = xp_of(sizes)
    unit = float(xp.finfo(sizes.dtype).eps) / 2 if unit_roundoff is None else unit_roundoff
    positions = getattr(scores, "keywords", {}).get("positions", "tokens")
    count = count_roundings(validation, training, positions=positions) if roundings is None else roundings
    check_number("stored_roundoff", stored_roundoff, at_least=0, below=1)
    relative = rounding_factor(roundings=count, unit_roundoff=unit)
    stored = (1 - stored_roundoff) ** -4 - 1
    # the sum of absolute values is rounded, too, and below the exact one by at most that factor
    return (relative + stored) * (1 + 4 * unit) / max(1 - relative, unit) * sizes


def _dense(trace: Trace) -> list[LayerTrace]:
    """Return the layers of a trace, which must be dense."""
    for index, layer in enumerate(trace.layers):
        if not isinstance(layer, LayerTrace):
            msg = f"layers[{index}]: expected a LayerTrace, got {type(layer).__name__}"
            raise TypeError(msg)
    return list(trace.layers)  # type: ignore[arg-type]


def _absolute(trace: Trace) -> Trace:
    """Take the absolute value of every entry."""

    def size(array: Array | None) -> Array | None:
        return None if array is None else xp_of(array).abs(array)

    return Trace(
        replace(layer, activations=size(layer.activations), output_gradients=size(layer.output_gradients))
        for layer in _dense(trace)
    )


def _most_positions(layers: Iterable[LayerTrace]) -> int:
    """Count the positions of the weight matrix that is used at most, all its uses together."""
    counts: dict[object, int] = {}
    for index, layer in enumerate(layers):
        positions = layer.activations.shape[1] if len(layer.activations.shape) == 3 else 1
        key = ("own", index) if layer.weight is None else layer.weight
        counts[key] = counts.get(key, 0) + positions
    return max(counts.values())
