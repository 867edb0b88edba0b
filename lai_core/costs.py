"""What scoring costs: multiply-adds and numbers kept, for Ghost and LAI on a chain of dense layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any

__all__ = ["ScoringCost", "cost_ratio"]


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
