"""The last layer's output gradient, averaged over positions without the gradient at each of them.

Language models lose by log-probabilities, of which a loss picks one entry a position: `l = -log p_t`. With
the gradient `-v` of a sample's loss at the entry that is picked, the gradient at the position's outputs is
`v (p - e_t)`. Its sum over a sample's positions is one product of its `v` with the probabilities, which the
loss's graph holds already as logarithms: no second array of positions by classes is made, or read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from lai_torch._model.sample_axis import SampleAxis, by_sample, differ, rounding
from lai_torch._model.valid import Positions, fitting, masked_mean
from lai_torch._recording.watching.probes import Probe
from lai_torch._recording.watching.uses import Use

AT_ONCE = 2**18
"""How many probabilities are formed at a time."""
FEWEST = 2**16
"""Gradients of fewer entries are formed: that is fewer calls."""
_PICKING = {"NllLossBackward0", "NllLoss2DBackward0", "GatherBackward0"}
_VIEWS = {
    "AliasBackward0",
    "CloneBackward0",
    "PermuteBackward0",
    "ReshapeAliasBackward0",
    "SliceBackward0",
    "SqueezeBackward1",
    "ToCopyBackward0",
    "TransposeBackward0",
    "UnsafeViewBackward0",
    "UnsqueezeBackward0",
    "ViewBackward0",
}
"""Functions that move entries, or round them, and repeat none."""


@dataclass(frozen=True)
class _Picked:
    """Log-probabilities `(n, t, c)`, which of each position's is picked, and what the gradient there is.

    Attributes
    ----------
    axis, shape
        Where the classes are in the graph's own array, and its shape.
    ends
        Where the graph enters the log-probabilities, and where it leaves the layer: views lie between.
    """

    logarithms: Tensor
    classes: Tensor
    gradients: Tensor
    axis: int
    shape: torch.Size
    ends: tuple[GradientEdge, GradientEdge]

    def arriving(self, gradient: Tensor) -> Tensor:
        """Return what a gradient at the log-probabilities' argument, `(n, t, c)`, is at the layer."""
        rest = [length for place, length in enumerate(self.shape) if place != self.axis]
        own = gradient.reshape(*rest, -1).movedim(-1, self.axis)
        (found,) = torch.autograd.grad(self.ends[:1], self.ends[1:], [own], retain_graph=True)
        return found


def averaged(
    losses: Tensor, use: Use, axis: SampleAxis, samples: int, valid: Positions, dtype: torch.dtype
) -> Use | None:
    """Return the last layer with inputs and output gradients averaged over the positions that count.

    None where the losses do not read it through log-probabilities of which they pick entries, and in no
    other way. Samples are taken to come first in these, and positions to be the layer's: see `averages`.
    """
    picked = _picked(losses, use.probe, samples)
    inputs = by_sample(use.activations, axis, samples)
    if picked is None or inputs.ndim != 3:
        return None
    gradients, mask = picked.gradients, fitting(valid, inputs.shape[1])
    counts: Tensor | int = inputs.shape[1]
    if mask is not None:
        if mask.shape != gradients.shape:  # which positions these are is not known
            return None
        mask = mask.to(gradients.device)
        gradients, counts = torch.where(mask, gradients, 0.0), mask.sum(1, keepdim=True).clamp(min=1)
    probe = Probe()
    probe.gradient = (_summed(picked, gradients) / counts).unsqueeze(1).to(dtype)
    return use.again(masked_mean(inputs, valid), probe)


def averages(
    losses: Tensor, use: Use, axis: SampleAxis, samples: int, valid: Positions
) -> torch.dtype | None:
    """Return in which type `averaged` is right of all passes like this one, where it all arrived.

    It gives that one's mean; and a random gradient at the log-probabilities arrives at the layer with each
    sample's rows as they were, in the same order where there are as many: so views between the two mix no
    samples, whatever this batch holds. None where that does not hold.
    """
    gradient = use.probe.gradient
    if gradient is None or gradient.numel() < FEWEST:
        return None
    found = averaged(losses, use, axis, samples, valid, gradient.dtype)
    picked = _picked(losses, use.probe, samples)
    if found is None or found.probe.gradient is None or picked is None:
        return None
    expected = masked_mean(by_sample(gradient, axis, samples), valid)
    precision = max(torch.finfo(one.dtype).eps for one in (gradient, picked.logarithms))
    within = rounding(expected, precision=precision, largest=0.0)
    if found.probe.gradient.shape != expected.shape or differ(found.probe.gradient, expected, within):
        return None
    generator = torch.Generator().manual_seed(0)
    sent = torch.randint(1, 2**7, picked.logarithms.shape, generator=generator).to(picked.logarithms)
    arrived = by_sample(picked.arriving(sent), axis, samples).to(sent)
    if arrived.shape != sent.shape:
        sent, arrived = (side.sum(1, dtype=torch.float64) for side in (sent, arrived))
    return gradient.dtype if torch.equal(arrived, sent) else None


def _picked(losses: Tensor, probe: Probe, samples: int) -> _Picked | None:
    """Return what the losses pick; None where that is not all that they read of the layer."""
    reached = list(_until_picking(losses.grad_fn))
    picking = [node for node in reached if node.name() in _PICKING]
    if len(picking) != 1 or any(getattr(node, "probe", None) is not None for node in reached):
        return None
    (node,) = picking
    behind = _past_views(node.next_functions[0][0])
    if behind is None or behind.name() != "LogSoftmaxBackward0":
        return None
    layer = _past_views(behind.next_functions[0][0])
    if getattr(layer, "probe", None) is not probe:
        return None
    rows = behind._saved_result.detach()
    axis = _signed(behind._saved_dim) % rows.ndim
    (coefficients,) = torch.autograd.grad(losses.sum(), [GradientEdge(node, 0)], retain_graph=True)
    if node.name() == "GatherBackward0":
        classes, last = node._saved_index, rows.ndim - 1
        if axis != last or _signed(node._saved_dim) % rows.ndim != last or classes.shape[-1] != 1:
            return None
        gradients = -coefficients
    else:
        classes = node._saved_target
        counts = classes != _signed(node._saved_ignore_index)
        classes = torch.where(counts, classes, 0)
        gradients = torch.where(counts, coefficients, 0.0)
        if node._saved_weight is not None:
            gradients = gradients * node._saved_weight[classes]
    positions = rows.numel() // rows.shape[axis]
    if coefficients.numel() != positions or positions % samples:
        return None
    logarithms = rows.movedim(axis, -1).reshape(samples, positions // samples, -1)
    ends = GradientEdge(*behind.next_functions[0]), GradientEdge(layer, 0)
    classes, gradients = classes.reshape(samples, -1), gradients.reshape(samples, -1)
    return _Picked(logarithms, classes, gradients, axis, rows.shape, ends)


def _summed(picked: _Picked, gradients: Tensor) -> Tensor:
    """Return `sum_t v_t (p_t - e_t)` of each sample, `(n, c)`, a few positions at a time."""
    samples, positions, classes = picked.logarithms.shape
    summed = gradients.new_zeros(samples, classes)
    summed.scatter_add_(1, picked.classes, -gradients)
    step = max(1, AT_ONCE // (samples * classes))
    for start in range(0, positions, step):
        part = slice(start, start + step)
        probabilities = picked.logarithms[:, part].exp()
        summed.unsqueeze(1).baddbmm_(gradients[:, None, part], probabilities)
    return summed


def _until_picking(start: Any) -> Iterator[Any]:
    """Yield the nodes of a graph up to where an entry is picked, or a probe reads."""
    pending, seen = [start], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if node.name() not in _PICKING and getattr(node, "probe", None) is None:
            pending.extend(before for before, _ in node.next_functions)


def _past_views(node: Any) -> Any:
    """Return the first node that does more than move entries."""
    while node is not None and node.name() in _VIEWS:
        node = node.next_functions[0][0]
    return node


def _signed(number: int) -> int:
    """Return the number that an unsigned one of 64 bits was made of."""
    return number - 2**64 if number >= 2**63 else number
