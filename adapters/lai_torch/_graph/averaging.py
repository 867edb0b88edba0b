"""Position-averaged output gradient of a cross-entropy, without materialising it per position.

Language models lose by log-probabilities, of which a loss picks one entry a position: `l = -log p_t`. With
the gradient `-v` of a sample's loss at the entry that is picked, the gradient at the position's outputs is
`v (p - e_t)`. Its sum over a sample's positions is one product of its `v` with the probabilities, which the
loss's graph holds already as logarithms: no second array of positions by classes is made, or read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from lai_torch._graph.layers import Layer
from lai_torch._graph.places import Axis
from lai_torch._graph.plan import Plan
from lai_torch._graph.products import flatten_positions
from lai_torch._graph.saved import read_signed
from lai_torch._graph.uses import MOVES
from lai_torch._graph.walk import Graph
from lai_torch._model.precision import differ
from lai_torch._model.valid import Positions, average_valid, select_fitting

AT_ONCE = 2**18
"""How many probabilities are formed at a time."""
FEWEST = 2**16
"""Gradients of fewer entries are formed: that is fewer calls."""
_PICKING = {"NllLossBackward0", "NllLoss2DBackward0", "GatherBackward0"}
_VIEWS = MOVES | {"SliceBackward0"}


@dataclass(frozen=True)
class Picked:
    """Log-probabilities `(n, t, c)`, which of each position's is picked, and what the gradient there is."""

    logarithms: Tensor  # logarithms, classes, gradients: `(n, t, c)`, `(n, t)`, `(n, t)`: `v` is the last
    classes: Tensor
    gradients: Tensor
    axis: int  # axis, shape: where the classes are in the graph's own array, and its shape
    shape: torch.Size
    # where the graph enters the log-probabilities, and where it leaves the outputs: views lie between
    ends: tuple[GradientEdge, ...]

    def detach(self) -> "Picked":
        """Return the same, which keeps nothing alive that the graph does."""
        return replace(self, ends=())

    def mean(self, valid: Positions, positions: int) -> Tensor | None:
        """Return the mean gradient over the outputs' positions that count, `(n, 1, c)`.

        None where there is a mask and which positions these are is not known.
        """
        gradients, mask = self.gradients, select_fitting(valid, positions)
        counts: Tensor | int = positions
        if mask is not None:
            # a mask of other positions says nothing of these
            if mask.shape != gradients.shape:
                return None
            mask = mask.to(gradients.device)
            gradients, counts = torch.where(mask, gradients, 0.0), mask.sum(1, keepdim=True).clamp(min=1)
        samples, rows, classes = self.logarithms.shape
        summed = gradients.new_zeros(samples, classes)
        summed.scatter_add_(1, self.classes, -gradients)
        # all exponentials at once would take the memory that this is to save
        step = max(1, AT_ONCE // (samples * classes))
        for start in range(0, rows, step):
            part = slice(start, start + step)
            summed.unsqueeze(1).baddbmm_(gradients[:, None, part], self.logarithms[:, part].exp())
        return (summed / counts).unsqueeze(1)

    def rows(self, index: Tensor) -> Tensor:
        """Return the gradient of some samples at every position, `(k, t, c)`."""
        gradients = self.gradients[index].unsqueeze(-1)
        found = self.logarithms[index].exp_().mul_(gradients)
        return found.scatter_add_(2, self.classes[index].unsqueeze(-1), -gradients)

    @property
    def views(self) -> tuple[Any, ...]:
        """The views between outputs and log-probabilities: with the same ones, the same rows move."""
        found: list[tuple[str, str]] = []
        node: Any = self.ends[0].node
        while node is not None and node.name() in _VIEWS:
            saved = {name: getattr(node, name) for name in dir(node) if name.startswith("_saved_")}
            found.append((node.name(), str(sorted(saved.items()))))
            node = node.next_functions[0][0]
        return tuple(found)

    def keeps(self, by_sample: Callable[[Tensor], Tensor]) -> bool:
        """Whether views mix no samples, nor a sample's positions, on the way to the outputs.

        A random gradient at the log-probabilities arrives with each sample's rows as they were: that tells,
        whatever the batch holds. `by_sample` lays the outputs out as `(n, t, c)`.
        """
        generator = torch.Generator().manual_seed(0)
        sent = torch.randint(1, 2**7, self.logarithms.shape, generator=generator, device="cpu").to(
            self.logarithms
        )
        rest = [length for place, length in enumerate(self.shape) if place != self.axis]
        own = sent.reshape(*rest, -1).movedim(-1, self.axis)
        (arrived,) = torch.autograd.grad(self.ends[:1], self.ends[1:], [own], retain_graph=True)
        return torch.equal(by_sample(arrived).to(sent), sent)


def match_picked(losses: Tensor, is_output: Callable[[Any, int], bool], samples: int) -> Picked | None:
    """Match `gather(log_softmax(outputs))` in the losses' graph; None if the outputs are used elsewhere.

    `is_output` says of a node of the graph, and which of its results, whether the outputs come from it.
    Samples are taken to come first: see `Picked.keeps`.
    """
    reached = list(_walk_to_picking(losses.grad_fn, is_output))
    picking = [node for node, _ in reached if node.name() in _PICKING]
    # outputs that are read a second time have another gradient, too
    if len(picking) != 1 or any(is_output(*place) for place in reached):
        return None
    (node,) = picking
    behind, _ = _skip_views(*node.next_functions[0])
    if behind is None or behind.name() != "LogSoftmaxBackward0":
        return None
    end = _skip_views(*behind.next_functions[0])
    if not is_output(*end):
        return None
    rows = behind._saved_result.detach()
    axis = read_signed(behind._saved_dim) % rows.ndim
    (coefficients,) = torch.autograd.grad(losses.sum(), [GradientEdge(node, 0)], retain_graph=True)
    # one class a position, along the axis that is normalised
    if node.name() == "GatherBackward0":
        classes, last = node._saved_index, rows.ndim - 1
        if axis != last or read_signed(node._saved_dim) % rows.ndim != last or classes.shape[-1] != 1:
            return None
        gradients = -coefficients
    else:
        classes = node._saved_target
        # an ignored position has an index that is no class
        counts = classes != read_signed(node._saved_ignore_index)
        classes = torch.where(counts, classes, 0)
        gradients = torch.where(counts, coefficients, 0.0)
        if node._saved_weight is not None:
            gradients = gradients * node._saved_weight[classes]
    positions = rows.numel() // rows.shape[axis]
    # not one entry a position, or positions that are not as many for every sample
    if coefficients.numel() != positions or positions % samples:
        return None
    logarithms = rows.movedim(axis, -1).reshape(samples, positions // samples, -1)
    ends = GradientEdge(*behind.next_functions[0]), GradientEdge(*end)
    classes, gradients = classes.reshape(samples, -1), gradients.reshape(samples, -1)
    return Picked(logarithms, classes, gradients, axis, rows.shape, ends)


def find_average(graph: Graph, layer: Layer, record: Any, valid: Positions) -> tuple[Any, ...] | None:
    """Return the views behind a last layer whose gradient can be averaged as it is formed, else None."""
    gradient = record.output_gradients
    # a frozen layer's gradient is read as it arrives; a small one is formed in fewer calls
    if not layer.trains or gradient.ndim != 3 or gradient.numel() < FEWEST:
        return None
    found, place = _pick(graph, layer), layer.place
    if found is None or found.logarithms.shape != gradient.shape or not isinstance(place, Axis):
        return None
    kept = found.keeps(lambda one: flatten_positions(place.move_to_front(one)))
    return found.views if kept and agrees(found, gradient, valid) else None


def average_again(graph: Graph, plan: Plan, valid: Positions) -> Tensor | None:
    """Return the last layer's mean gradient in another batch of a plan; None where it has to be formed."""
    found = _pick(graph, plan.last[0])
    # other views may mix positions
    if found is None or found.views != plan.averaged:
        return None
    return found.mean(valid, found.logarithms.shape[1])


def _pick(graph: Graph, layer: Layer) -> Picked | None:
    own = graph.nodes[layer.node]
    return match_picked(graph.losses, lambda node, result: node == own and result == 0, graph.samples)


def agrees(found: Picked, gradient: Tensor, valid: Positions) -> bool:
    """Whether the mean is that of the gradient itself, `(n, t, c)`."""
    mean = found.mean(valid, gradient.shape[1]) if gradient.ndim == 3 else None
    expected = average_valid(gradient, valid) if gradient.ndim == 3 else gradient
    precision = max(torch.finfo(one.dtype).eps for one in (gradient, found.logarithms))
    roundings = 4.0 if precision > 1e-4 else 64.0  # half precision has few digits to give away
    largest = expected.abs().nan_to_num(0.0, 0.0, 0.0).max()
    within = roundings * precision * float(largest)
    return mean is not None and mean.shape == expected.shape and not differ(mean, expected, within)


def _walk_to_picking(start: Any, is_output: Callable[[Any, int], bool]) -> Iterator[tuple[Any, int]]:
    """Yield the places in a graph up to where an entry is picked, or the outputs are."""
    pending, seen = [(start, 0)], set()
    while pending:
        place = pending.pop()
        if place[0] is None or place in seen:
            continue
        seen.add(place)
        yield place
        if place[0].name() not in _PICKING and not is_output(*place):
            pending.extend(place[0].next_functions)


def _skip_views(node: Any, result: int) -> tuple[Any, int]:
    """Return the first node that does more than move entries, and which of its results is read."""
    while node is not None and node.name() in _VIEWS:
        node, result = node.next_functions[0]
    return node, result
