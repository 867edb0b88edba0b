"""What scoring costs: multiply-adds and bytes, on a chain of dense layers, of any trace, route by route."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_count
from lai_core._engine.namespace import itemsize
from lai_core.estimators import _parameters as estimators
from lai_core.estimators.catalogue import find_estimator
from lai_core.estimators.checks import fitting_positions
from lai_core.records.base import Trace
from lai_core.records.compatible import check_trace

__all__ = ["Route", "ScoringCost", "cost_ratio", "list_routes"]

MEANINGS = {
    "tokens": "exact pairs of positions: Ghost of LAI's virtual readouts",
    "mean": "means over positions of inputs and of gradients",
    "flatten": "position by position; the validation set's traces are kept, and it costs as many pairs",
}


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
    for index, width in enumerate(widths):
        check_count(f"widths[{index}]", width)
    widths = [int(width) for width in widths]
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


@dataclass(frozen=True)
class Route:
    """One way by which LAI scores a model with positions.

    Attributes
    ----------
    positions
        `tokens`, `mean` or `flatten`.
    sketch
        Width to which output gradients are sketched; None: not at all.
    forwards
        What scoring the batch takes at most, in forward passes of it, counted in multiply-adds: a few
        validation samples stay factors, which take less. `flatten`'s is against as many validation samples
        as the batch has.
    summary_bytes
        What the validation set's summary holds at most, for any number of samples; of `flatten`, per as many
        samples as the batch has.
    meaning
        What the score is then.
    """

    positions: str
    sketch: int | None
    forwards: float
    summary_bytes: int
    meaning: str


def list_routes(trace: Trace, forward: int, *, sketches: Sequence[int] = ()) -> tuple[Route, ...]:
    """List what LAI's routes take on a batch, from the shapes of its trace.

    Parameters
    ----------
    trace
        A trace of the batch with the output gradients of its last layer.
    forward
        Multiply-adds of a forward pass of that batch.
    sketches
        Widths to list; those that are not narrower than the output are left out.

    Returns
    -------
    tuple of Route
        Those that fit the model, the most exact first, then sketches of that one.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.estimators.costs import list_routes
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((2, 5, 3)), np.ones((2, 5, 7)))])
    >>> found = list_routes(trace, 210, sketches=[1])
    >>> [(route.positions, route.sketch, round(route.forwards, 2)) for route in found]
    [('tokens', None, 1.0), ('mean', None, 0.2), ('flatten', None, 0.95), ('tokens', 1, 0.14)]
    """
    for width in sketches:
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            msg = f"sketches: expected positive whole numbers, got {width!r}"
            raise ValueError(msg)
    work = check_trace("trace", trace, "output", DEFAULT_MEMORY_BUDGET)
    gradients: Any = trace.layers[-1].output_gradients
    outputs = int(gradients.shape[-1])
    listed = []
    for positions in fitting_positions(trace):
        seen = estimators.collect_gradients(find_estimator("lai"), trace, work, positions)
        uses = [use for parameter in seen.values() for use in parameter]
        if positions == "flatten":
            cost = sum(use.pairwise_cost(use) for use in uses)
            read = [gradients, *(layer.readout_input(work.xp) for layer in trace.layers)]
            held = sum(prod(one.shape) * itemsize(work.xp, one.dtype) for one in read if one is not None)
        else:
            cost = sum(use.total_cost() for use in uses)
            places = int(gradients.shape[1]) if positions == "tokens" and gradients.ndim == 3 else 1
            entries = cost // (int(gradients.shape[0]) * places)
            held = entries * itemsize(work.xp, work.dtype)
        listed.append(Route(positions, None, cost / forward, held, MEANINGS[positions]))
    best = listed[0]
    for width in sorted(width for width in sketches if width < outputs):
        share = width / outputs
        meaning = f"{best.meaning}; unbiased, of sketched output gradients"
        held = int(best.summary_bytes * share)
        listed.append(Route(best.positions, width, best.forwards * share, held, meaning))
    return tuple(listed)
