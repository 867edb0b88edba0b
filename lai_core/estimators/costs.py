"""What scoring costs on a chain of dense layers: multiply-adds, and numbers kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lai_core._engine.checks import check_count

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
    """
    if len(widths) < 2:
        msg = f"widths: expected the input's and at least one layer's, got {len(widths)} of them"
        raise ValueError(msg)
    widths = [check_count(f"widths[{index}]", width) for index, width in enumerate(widths)]
    # Both go forward through every layer, d_in d_out multiply-adds each. A layer's output gradient takes
    # the matrices above it: all but the first for Ghost, which needs it of the first layer, none for LAI.
    # A pair takes <a_z, a_j> of every layer's input, and <g_z, g_j> of every output or of the last alone.
    sizes = [d_in * d_out for d_in, d_out in pairwise(widths)]
    inputs, outputs = sum(widths[:-1]), sum(widths[1:])
    return ScoringCost(
        ghost_passes=sum(sizes) + sum(sizes[1:]),
        lai_passes=sum(sizes),
        ghost_numbers=inputs + outputs,
        lai_numbers=inputs + widths[-1],
    )
