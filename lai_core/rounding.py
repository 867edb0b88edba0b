r"""How far rounding moves a score: a bound from the number of roundings and a sum of absolute values.

Scores of Ghost, LAI and LLI are sums of products of four entries,
:math:`a_{z,i}\, a_{j,i}\, g_{z,k}\, g_{j,k}`. Each operation multiplies its result by :math:`1 + \delta`,
:math:`|\delta| \le u`; a product meets at most n of these factors. A bias is an entry that is 1; a fused
multiplication and addition rounds once less.

A `TypeError` names an argument of a wrong kind, a `ValueError` one whose range does not fit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import check_choice, check_number
from lai_core._engine.factors import number_of_positions
from lai_core._engine.namespace import Array, is_array, xp_of
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
    """Count the roundings that a product of entries meets at most, in every order that scores are summed in.

    Six operations: three multiplications of entries, one by the layer's weight, the weight's own rounding to
    the scores' type, and the subtraction of a sample's own term. Then the additions of one sum over
    validation samples and pairs of positions, and of one over outputs and over inputs with the training
    positions. Nested sums, as in the pairwise kernels, take fewer.

    Parameters
    ----------
    validation, training
        Traces of `LayerTrace` records.
    positions
        What LAI's product means on layers with positions. `mean`: each of the four entries is a mean, of
        three roundings beside its additions. `flatten`: positions count among a matrix' inputs and outputs.

    Returns
    -------
    int
        The number of roundings.
    """
    before, scored = (_dense(trace) for trace in (validation, training))
    check_choice("positions", positions, ("tokens", "mean", "flatten"))
    samples = len(before[-1].activations)
    flat = positions == "flatten"
    inputs = sum(
        (number_of_positions(layer.activations) if flat else 1) * (layer.activations.shape[-1] + layer.bias)
        for layer in before
    )
    outputs = max(
        (number_of_positions(layer.output_gradients) if flat else 1) * layer.output_gradients.shape[-1]
        for layer in before
        if layer.output_gradients is not None
    )
    if flat:
        return 6 + (samples - 1) + (inputs * outputs - 1)
    t, u = (_count_positions(side) for side in (before, scored))
    if positions == "mean":
        means = 2 * (t - 1 + 3) + 2 * (u - 1 + 3)
        return 6 + means + (samples - 1) + (inputs * outputs - 1)
    # the summed gradient adds over z and t, then over inputs, then over u and outputs in one sum
    return 6 + (samples * t * u - 1) + (outputs * (inputs + u - 1) - 1)


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

    Implements :eq:`rounding-error`: :math:`\gamma_n \sum_z \sum_l |w_l| \sum_{t,t'} \langle |a_z|, |a_j|
    \rangle \langle |g_z|, |g_j| \rangle`, as a product changes by a factor :math:`1 + \theta`,
    :math:`|\theta| \le \gamma_n`, whatever the order of summation. The sum is the score of the absolute
    values with absolute layer weights. With `exclude_self` the sample's own term is computed twice, in the
    sum and to be subtracted from it: the sum counts twice, as no term exceeds it.

    Parameters
    ----------
    scores
        `ghost_scores`, `lli_scores` or `lai_scores`, with any of their options by `functools.partial`.
    validation, training
        Traces of `LayerTrace` records. Half precision is read exactly and accumulated in float32.
    roundings
        The number n of roundings of a product; by default `count_roundings`.
    unit_roundoff
        :math:`u`, by default that of the scores' type, 2^-24 for float32.
    stored_roundoff
        If entries were rounded before they were stored, the unit roundoff of that type: 2^-8 for bfloat16,
        2^-11 for float16. The bound is then on the distance from the scores of the entries before.

    Returns
    -------
    array
        At least the absolute error of each score.

    Raises
    ------
    TypeError
        If `scores` is another function: the bound is that of a sum of products of four entries.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> one = lai.Trace([lai.LayerTrace(np.float32([[1.0, -2.0]]), np.float32([[3.0]]))])
    >>> bool(rounding_bound(lai.ghost_scores, one, one)[0] < 45 * 8 * 2.0**-24)
    True
    """
    function, options = _split(scores)
    positions = options.get("positions") or "tokens"
    count = count_roundings(validation, training, positions=positions) if roundings is None else roundings
    check_number("stored_roundoff", stored_roundoff, at_least=0, below=1)
    weights = options.get("layer_weights")
    if is_array(weights):
        options["layer_weights"] = xp_of(weights).abs(weights)
    elif isinstance(weights, Sequence) and not isinstance(weights, str):  # other kinds the scores refuse
        options["layer_weights"] = [abs(weight) for weight in weights]
    twice = 2.0 if options.pop("exclude_self", False) else 1.0
    sizes = function(_absolute(validation), _absolute(training), **options)
    unit = float(xp_of(sizes).finfo(sizes.dtype).eps) / 2 if unit_roundoff is None else unit_roundoff
    relative = rounding_factor(roundings=count, unit_roundoff=unit)
    stored = (1 - stored_roundoff) ** -4 - 1
    # the sum of absolute values is rounded, too: the exact one is at most 1 / (1 - n u) = 1 + relative of it
    return twice * (relative + stored) * (1 + relative) * (1 + 4 * unit) * sizes


def _split(scores: Any) -> tuple[Callable[..., Array], dict[str, Any]]:
    """Return the function and the options of `functools.partial`, nested or not."""
    function: Any = scores
    options: dict[str, Any] = {}
    while isinstance(function, partial) and not function.args:
        options = {**function.keywords, **options}
        function = function.func
    got = getattr(function, "__name__", repr(function))
    # by name, as this module stands beside the estimators
    home = getattr(function, "__module__", "")
    if home != "lai_core.estimators.scores" or got not in ("ghost_scores", "lai_scores", "lli_scores"):
        msg = (
            "scores: expected ghost_scores, lai_scores or lli_scores, options by keyword in "
            f"functools.partial, got {got}"
        )
        raise TypeError(msg)
    return function, options


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


def _count_positions(layers: Iterable[LayerTrace]) -> int:
    """Count the positions of the weight matrix that is used at most, all its uses together."""
    counts: dict[object, int] = {}
    for index, layer in enumerate(layers):
        positions = number_of_positions(layer.activations)
        key = ("own", index) if layer.weight is None else layer.weight
        counts[key] = counts.get(key, 0) + positions
    return max(counts.values())
