"""What scoring costs: multiply-adds and numbers kept, on a chain of dense layers and on any trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any

from lai_core._engine import estimators
from lai_core._engine.arguments import check_lai_pair, check_lai_trace
from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_choice
from lai_core._engine.records import Trace
from lai_core._engine.trace_checks import Needs, check_pair, check_trace

__all__ = ["ScoringCost", "cost_ratio", "pairwise_cost", "summary_cost"]

ESTIMATORS = ("ghost", "lai", "lli")


@dataclass(frozen=True)
class ScoringCost:
    """Costs of Ghost by Eq. 3 and of LAI by Eq. 4, per sample and per pair of samples.

    Parameters
    ----------
    ghost_passes, lai_passes
        Multiply-adds of the forward and backward passes of one sample. Both go forward through every
        layer; Ghost also goes back through all but the first.
    ghost_numbers, lai_numbers
        Numbers kept of one sample, which are also the multiply-adds of one pair of samples: every
        layer's input, and every layer's output gradient (Ghost) or the last layer's (LAI).
    """

    ghost_passes: int
    lai_passes: int
    ghost_numbers: int
    lai_numbers: int

    @property
    def passes_ratio(self) -> float:
        """Ghost's multiply-adds over LAI's for one sample's passes; below 2."""
        return self.ghost_passes / self.lai_passes

    @property
    def numbers_ratio(self) -> float:
        """Ghost's cache, or its multiply-adds a pair, over LAI's; below 2."""
        return self.ghost_numbers / self.lai_numbers


def cost_ratio(widths: Sequence[Any]) -> ScoringCost:
    r"""Count what scoring by Eq. 3 and by Eq. 4 costs on a chain of dense layers.

    Implements :eq:`cost-ratio`: both ratios of Ghost to LAI are below 2, for every depth and all
    widths; with equal widths they are :math:`(2L - 1)/L` and :math:`2L/(L + 1)`. This is Ghost as a sum
    of products: building per-sample gradients instead can cost more.

    Parameters
    ----------
    widths
        :math:`d_0, \dots, d_L`: the width of the input, then of every layer's output.

    Returns
    -------
    ScoringCost
        The counts and their ratios.

    Raises
    ------
    TypeError
        If a width is not a whole number.
    ValueError
        If there are fewer than two widths, or one is not positive.

    Examples
    --------
    >>> from lai_core import costs
    >>> cost = costs.cost_ratio([64, 64, 64])
    >>> cost.passes_ratio, round(cost.numbers_ratio, 3)
    (1.5, 1.333)
    """
    if len(widths) < 2:
        msg = f"widths: expected the input's and at least one layer's, got {len(widths)} of them"
        raise ValueError(msg)
    for index, width in enumerate(widths):
        if isinstance(width, bool) or not isinstance(width, Integral):
            msg = f"widths[{index}]: expected a whole number, got {width!r}"
            raise TypeError(msg)
        if width < 1:
            msg = f"widths[{index}]: expected a positive width, got {width}"
            raise ValueError(msg)
    widths = [int(width) for width in widths]
    sizes = [d_in * d_out for d_in, d_out in pairwise(widths)]
    inputs, outputs = sum(widths[:-1]), sum(widths[1:])
    return ScoringCost(
        ghost_passes=sum(sizes) + sum(sizes[1:]),
        lai_passes=sum(sizes),
        ghost_numbers=inputs + outputs,
        lai_numbers=inputs + widths[-1],
    )


def summary_cost(trace: Trace, estimator: str, *, positions: str = "tokens") -> int:
    """Count what scoring a batch from a summary takes, which is what adding it to a summary takes.

    From shapes alone, before anything is multiplied: with t positions LAI's exact pairs of tokens take
    `n t d_L sum_l d_(l-1)`, their means `n d_L sum_l d_(l-1)`.

    Parameters
    ----------
    trace
        A trace of the batch, as the estimator takes it.
    estimator
        `ghost`, `lai` or `lli`.
    positions
        What LAI's product means on layers with positions.

    Returns
    -------
    int
        Multiply-adds. Of `flatten`, whose summary exists for a last layer without positions alone, what
        such a summary would take.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If the trace is unsound, or an option unknown or unfit.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.costs import summary_cost
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((2, 5, 3)), np.ones((2, 5, 7)))])
    >>> summary_cost(trace, "lai"), summary_cost(trace, "lai", positions="mean")
    (210, 42)
    """
    check_choice("estimator", estimator, ESTIMATORS)
    work = check_trace("trace", trace, _needed(estimator), DEFAULT_MEMORY_BUDGET)
    if estimator == "lai":
        check_lai_trace(trace, work, positions, "trace")
    return sum(
        use.total_cost()
        for uses in estimators.seen_gradients(estimator, trace, work, positions).values()
        for use in uses
    )


def pairwise_cost(validation: Trace, training: Trace, estimator: str, *, positions: str = "tokens") -> int:
    """Count what scoring a batch against raw validation samples takes, pair by pair.

    With t positions on each side LAI's exact pairs of tokens take `n_val n t^2 (sum_l d_(l-1) + d_L)`,
    `flatten` `n_val n t (sum_l d_(l-1) + d_L)`.

    Parameters
    ----------
    validation, training
        Traces of both sides, as the estimator takes them.
    estimator
        `ghost`, `lai` or `lli`.
    positions
        What LAI's product means on layers with positions.

    Returns
    -------
    int
        Multiply-adds.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a trace is unsound, two do not fit, or an option is unknown or unfit.
    """
    check_choice("estimator", estimator, ESTIMATORS)
    if estimator == "lai":
        work = check_lai_pair(validation, training, positions, DEFAULT_MEMORY_BUDGET)
    else:
        work = check_pair(validation, training, _needed(estimator), DEFAULT_MEMORY_BUDGET)
    theirs, ours = (
        estimators.seen_gradients(estimator, trace, work, positions) for trace in (validation, training)
    )
    return sum(
        left.pairwise_cost(right)
        for parameter, uses in ours.items()
        for left in theirs[parameter]
        for right in uses
    )


def _needed(estimator: str) -> Needs:
    return "all" if estimator == "ghost" else "output"
