"""Validation sides of several processes: their sum, and what a sum holds of the others' samples."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lai_core._adapters import are_cheaper, join_summaries, width_of
from lai_torch._curation.processes.group import Group
from lai_torch._curation.state import ValidationSide


def sum_sides(side: ValidationSide | None, group: Group, memory_budget: int) -> ValidationSide | None:
    """Return the sum of the processes' validation sides, of one summary each; None where none has one.

    A process that has none passes None here.
    """
    if not group.reduce_max(side is not None):
        return None
    offered: list[Any] = []
    if group.reduce_max(side is None):
        offered = group.objects(side and _blank(side, "cpu"))
    if side is None:  # another's form with zeros
        side = _blank(next(one for one in offered if one is not None), group.device)
    (summary,) = side.parts
    if not group.has_equal(repr((summary.estimator, side.positions, summary.layouts))):
        msg = (
            "validation: expected every process to find the same layers, and positions read alike, got "
            "others; pass the same model, and batches of one form"
        )
        raise ValueError(msg)
    (samples,) = group.totals(summary.samples)
    factors: tuple[Tensor, ...] | None = None
    if not group.reduce_max(not summary.factored):
        held: Any = summary.totals[0]
        (positions,) = group.totals(len(held[0]))
        # else the sum is the smaller
        if are_cheaper(int(positions), held[0].shape[1], width_of(held)):
            factors = tuple(group.gather_rows(part)[0] for part in held)
    # where factors of all processes are gathered, the first total is made of them
    own = summary.totals[1:]
    if factors is None:
        own = summary.summed(memory_budget=memory_budget).totals
    blocks = iter(group.reduce_sum([block for parts in own for block in parts]))
    totals = tuple(tuple(next(blocks) for _ in parts) for parts in own)
    if factors is not None:
        totals = (factors, *totals)
    whole = replace(summary, totals=totals, samples=int(samples), factored=factors is not None)
    return replace(side, parts=(whole,))


def subtract_own(total: ValidationSide, own: ValidationSide) -> Any:
    """Return what a sum holds of the other processes' samples."""
    (whole,), (part,) = total.parts, own.parts
    first, *rest = part.totals
    negated = len(first)
    if part.factored:  # the rows alone: they are multiplied with the rest
        negated = 1
    minus = tuple(-block for block in first[:negated]) + first[negated:]
    negative = (minus, *(tuple(-block for block in blocks) for blocks in rest))
    return join_summaries([whole, replace(part, totals=negative, samples=-part.samples)])


def _blank(side: ValidationSide, device: torch.device | str) -> ValidationSide:
    """Return the form of a side, a single zero on a device for each block."""
    (summary,) = side.parts
    first, *rest = summary.totals
    if summary.factored:  # no sample, no factors
        first = tuple(block[:0] for block in first)
    totals = tuple(
        tuple(torch.zeros((), dtype=one.dtype, device=device).expand(one.shape) for one in parts)
        for parts in (first, *rest)
    )
    return replace(side, parts=(replace(summary, totals=totals, samples=0),))
