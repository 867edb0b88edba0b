"""The sum of what several processes found on a validation set, of which each traced a part."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.processes.group import Alone
from lai_torch._curation.scorers.sketch import Sketch


def joined(side: Any, group: Alone, sketch: Sketch | None, device: torch.device) -> Any:
    """Return the sum of the processes' validation sides, of one summary each; None where none has one.

    A process that has none, here None, takes the form of another's, with zeros in it, and its sketch.
    """
    if not group.most(side is not None):
        return None
    if group.most(side is None):
        drawn = None if sketch is None else sketch.state()
        offered = group.objects(None if side is None else (_blank(side, None), drawn))
        if side is None:
            form, drawn = next(one for one in offered if one is not None)
            side = _blank(form, device)
            if sketch is not None:
                sketch.take_up(drawn)
    (summary,) = side.parts
    if not group.alike(repr((summary.estimator, side.positions, summary.layouts))):
        msg = (
            "validation: expected every process to find the same layers, and positions read alike, got "
            "others; pass the same model, and batches of one form"
        )
        raise ValueError(msg)
    (samples,) = group.totals(summary.samples)
    blocks = iter(group.summed([block for parts in summary.totals for block in parts]))
    totals = tuple(tuple(next(blocks) for _ in parts) for parts in summary.totals)
    return replace(side, parts=(replace(summary, totals=totals, samples=int(samples)),))


def others(total: Any, own: Any) -> Any:
    """Return what a sum holds of the other processes' samples."""
    (whole,), (part,) = total.parts, own.parts
    pairs = zip(whole.totals, part.totals, strict=True)
    totals = tuple(tuple(x - y for x, y in zip(*pair, strict=True)) for pair in pairs)
    return replace(whole, totals=totals, samples=whole.samples - part.samples)


def _blank(side: Any, device: torch.device | None) -> Any:
    """Return the form of a side, zeros on a device; without one, a single zero for each block."""
    (summary,) = side.parts
    totals = tuple(tuple(_zeros(block, device) for block in parts) for parts in summary.totals)
    return replace(side, parts=(replace(summary, totals=totals, samples=0),))


def _zeros(block: Tensor, device: torch.device | None) -> Tensor:
    if device is None:
        return torch.zeros((), dtype=block.dtype).expand(block.shape)
    return torch.zeros(block.shape, dtype=block.dtype, device=device)
