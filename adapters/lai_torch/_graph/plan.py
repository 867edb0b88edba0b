"""What was found out of a program once, and holds for every batch with the same graph."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lai_torch._graph.layers import SCALING, Bias, Layer
from lai_torch._graph.places import Axis, Entries, Places
from lai_torch._graph.products import CONVOLUTION, LINEAR, PRODUCTS
from lai_torch._graph.saved import read_signed
from lai_torch._graph.uses import Use
from lai_torch._graph.walk import Edge, Graph

_MOVING = ("Index", "Gather", "Scatter", "Sort", "Topk", "Take", "Slice", "Roll", "Masked", "Flip")
"""Beginnings of the names of nodes that may move samples by an index."""


@dataclass
class Plan:
    """The uses and layers of one graph, and all that a batch with the same graph must share."""

    uses: list[Use]
    layers: list[Layer]
    last: list[Layer]
    biases: dict[int, Bias]
    # node and slot of the layers, and of those that the samples of this batch do not all reach
    order: tuple[tuple[int, int], ...] = ()
    # why LAI has no last layer, of a plan for Ghost
    refusal: str = ""
    # of nodes that may move samples: where these lie, and the integers that were seen
    indices: dict[int, tuple[Axis, tuple[Any, ...]]] = field(default_factory=dict)
    # of the nodes past the last layer the numbers that they multiply by, if these are tensors
    factors: dict[int, list[float]] = field(default_factory=dict)
    # of what arrives at the uses and layers
    shapes: dict[Edge, torch.Size] = field(default_factory=dict)
    # edges at which nothing but zeros arrived: uses behind them are not known
    dead: tuple[Edge, ...] = ()
    # layers that train and that LAI does not read, and why
    unread: dict[str, str] = field(default_factory=dict)
    # parameters that are left out, and why
    unexplained: dict[str, str] = field(default_factory=dict)
    # parameters that take one backward pass a sample
    left: frozenset[str] = frozenset()
    # parameters of which rows are routed to several matrices
    routed: frozenset[str] = frozenset()
    # whether all of it holds for other batches with the same graph
    settled: bool = True
    # whether samples lie elsewhere in another batch with the same graph
    varies: bool = False
    calls: int = 0
    # of the parameters when the graph was first proved, until it is proved after a step
    versions: dict[str, int] | None = None

    @cached_property
    def uses_by_name(self) -> Mapping[str, list[Use]]:
        found: dict[str, list[Use]] = defaultdict(list)
        for use in self.uses:
            for name in use.source.names:
                found[name].append(use)
        return found

    @cached_property
    def last_uses(self) -> Mapping[str, list[Use]]:
        """The uses of the parameters that nothing but the last layer uses, its bias among them."""
        nodes = {layer.node for layer in self.last}
        adding = {bias.name: bias.node for node, bias in self.biases.items() if node in nodes}
        return {
            name: uses
            for name, uses in self.uses_by_name.items()
            if all(use.node in nodes or use.node == adding.get(name) for use in uses)
        }

    def list_edges(self, *, every: bool) -> list[Edge]:
        """Return the edges whose gradients the records need: of `every` use, or of the last layer alone."""
        found = {(layer.node, 0): None for layer in self.last}
        found |= {(self.biases[one.node].node, 0): None for one in self.last if one.node in self.biases}
        if every:
            found |= {edge: None for use in self.uses for edge in use.received}
            found |= {(layer.node, 0): None for layer in self.layers}
            found |= dict.fromkeys(self.dead)
        return list(found)

    def resize(self, graph: Graph) -> "Plan | None":
        """Return the plan for a batch of another size with the same graph; None where it does not fit."""
        known: Places = {(layer.node, 0): layer.place for layer in [*self.layers, *self.last]}
        known |= {edge: one for use in self.uses for edge, one in zip(use.received, use.places, strict=True)}
        places: dict[Edge, Any] | None = resize_places(known, graph)
        if places is None:
            return None
        uses = [replace(use, places=tuple(places[edge] for edge in use.received)) for use in self.uses]
        layers, last = (
            [replace(layer, place=places[layer.node, 0]) for layer in found]
            for found in (self.layers, self.last)
        )
        return replace(self, uses=uses, layers=layers, last=last)

    def watch(self, graph: Graph, places: Places) -> None:
        """Note what another batch must share: shapes, and the integers by which nodes move samples.

        And the numbers past the last layer by which losses are multiplied, as by a count of tokens.
        """
        past = graph.reach(0, {layer.node for layer in self.last})
        found = read_factors(graph, [node for node in past if graph.names[node] in SCALING])
        self.factors = {node: numbers for node, numbers in found.items() if numbers}
        self.shapes = {edge: graph.shape(edge) for edge in self.list_edges(every=True)}
        for (node, result), place in places.items():
            moves = graph.names[node].startswith(_MOVING) or not callable(graph.nodes[node])
            if result == 0 and isinstance(place, Axis) and moves:
                index = read_index(graph, node, place)
                if index:
                    self.indices[node] = (place, index)

    def holds(self, graph: Graph) -> bool:
        """Whether a batch with the same graph moves its samples as the one that was proved did."""
        if any(graph.shape(edge) != shape for edge, shape in self.shapes.items()):
            return False
        return all(
            _are_same(before, read_index(graph, node, place))
            for node, (place, before) in self.indices.items()
        )


def read_index(graph: Graph, node: int, place: Axis) -> tuple[Any, ...]:
    """Return the integers by which a node may move samples, which can differ from batch to batch."""
    kept = graph.nodes[node]
    # a function written in Python: what it kept has no names that are known
    if not callable(kept):
        own = [*getattr(kept, "saved_tensors", ()), *vars(kept).values()]
        real = [isinstance(one, Tensor) and (one.is_floating_point() or one.is_complex()) for one in own]
        pairs = zip(own, real, strict=True)
        return tuple(one for one, is_real in pairs if isinstance(one, int | Tensor) and not is_real)
    dim = getattr(kept, "_saved_dim", None)
    # it moves entries along another axis than that of the samples
    if isinstance(dim, int) and read_signed(dim) % len(graph.shape((node, 0))) != place.axis:
        return ()
    found: list[Any] = []
    for name in ("index", "indices", "start", "end", "shifts", "mask"):
        value = getattr(kept, f"_saved_{name}", None)
        if isinstance(value, tuple | list):
            value = tuple(one for one in value[: place.axis + 1] if one is not None)
        if value is not None:
            found.append(value)
    return tuple(found)


def read_factors(graph: Graph, nodes: Iterable[int]) -> dict[int, list[float]]:
    """Return the single numbers without a gradient that nodes multiply or divide by, but for Python's."""
    found = {}
    for node in nodes:
        kept = [getattr(graph.nodes[node], name, None) for name in ("_saved_self", "_saved_other")]
        single = [one for one in kept if one is not None and not (one.ndim or one.requires_grad)]
        # a number of Python gives way to any type of its kind
        narrow = [torch.zeros((), dtype=kind, device="cpu") for kind in (torch.int8, torch.float16)]
        own = [torch.result_type(narrow[one.is_floating_point()], one) == one.dtype for one in single]
        found[node] = [one.item() for one, is_tensor in zip(single, own, strict=True) if is_tensor]
    return found


def _are_same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(_are_same(*pair) for pair in zip(left, right, strict=True))
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and left.shape == right.shape and torch.equal(left, right)
    return bool(left == right)


def mixes_by_data(graph: Graph, node: int, places: Places) -> bool:
    """Whether a product sums over samples with a tensor that no gradient reaches: a permutation, at best."""
    if graph.names[node] not in PRODUCTS or graph.names[node] in {CONVOLUTION, LINEAR}:
        return False
    place, axes = places.get((node, 0)), len(graph.shape((node, 0)))
    first, second = (graph.edges[node][slot] for slot in PRODUCTS[graph.names[node]].slots)
    if not isinstance(place, Axis):
        return False
    if first is None and second is not None and isinstance(places.get(second), Axis):
        return place.axis == max(0, axes - 2)
    return (
        second is None
        and first is not None
        and isinstance(places.get(first), Axis)
        and place.axis == axes - 1
    )


def resize_places(places: Places, graph: Graph) -> Places | None:
    """Return the places of a batch in the graph of another size; None where they do not fit there."""
    found: Places = {}
    for edge, place in places.items():
        found[edge] = place
        if isinstance(place, Axis):
            found[edge] = place = replace(place, samples=graph.samples)
        # entries are listed one by one for the batch that was proved
        if isinstance(place, Entries) or (isinstance(place, Axis) and not place.fits(graph.shape(edge))):
            return None
    return found
