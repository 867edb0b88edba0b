"""Per-sample gradients at one node: by a product's formula, or by calls of the node on masked gradients."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lai_torch._graph.places import Axis
from lai_torch._graph.products import (
    CONVOLUTION,
    NORMS,
    PRODUCTS,
    add_positions,
    is_argument,
    read_normalized,
    read_sides,
)
from lai_torch._graph.saved import Saved
from lai_torch._graph.uses import Use, pull_back
from lai_torch._graph.walk import Edge, Graph, run_node
from lai_torch._model.function import densify

_ENTRYWISE = "Add Sub Rsub Mul Div Where Addcmul Addcdiv Lerp Pow Maximum"
ENTRYWISE = frozenset(f"{name}Backward{number}" for name in _ENTRYWISE.split() for number in (0, 1))
Received = dict[Edge, Tensor | None]
"""The gradients that arrived at edges."""


def split_use(graph: Graph, saved: Saved, use: Use, received: Received) -> dict[str, Tensor]:
    """Return what a use gives to each of its parameters, sample by sample, `(n, *shape)`."""
    source = use.source
    shape, gradient = graph.shape(source.edge), received[use.received[0]]
    found: Tensor | None = None
    if isinstance(use.place, Axis) and len(use.received) == 1 and gradient is not None:
        found = _split_product(graph, saved, use, gradient, shape)
        if found is None:
            found = _split_entrywise(graph, saved, use, gradient, shape)
    if found is None:
        found = torch.stack(list(_mask(graph, use, received, shape)))
    if source.turned is not None and source.matrix is None:
        leaf = source.leaves[0]
        if source.turned:
            found = found.mT
        return {source.names[0]: found.reshape(-1, *leaf.shape).to(leaf.dtype)}
    columns = zip(*(pull_back(graph, source, one) for one in found), strict=True)
    return {name: torch.stack(column) for name, column in zip(source.names, columns, strict=True)}


def _split_product(
    graph: Graph, saved: Saved, use: Use, gradient: Tensor, shape: torch.Size
) -> Tensor | None:
    """Return the outer products of a matrix product's sides; None of another node."""
    if not is_argument(graph, use.node, use.slot):
        return None
    sides = read_sides(graph, saved, use.node, use.slot, gradient, use.place)
    if sides is None or sides.groups > 1 or sides.gradients is None:
        return None
    product = add_positions(sides.gradients).mT @ add_positions(sides.activations)  # (n, out, in)
    kind = PRODUCTS[graph.names[use.node]]
    if product[0].numel() != shape.numel():
        return None
    if use.slot != kind.slots[0] and not kind.natural:
        product = product.mT
    return product.reshape(use.place.samples, *shape)


def _split_entrywise(
    graph: Graph, saved: Saved, use: Use, gradient: Tensor, shape: torch.Size
) -> Tensor | None:
    """Return the sums over a sample's entries of what a node gives to a broadcast argument."""
    place, name, node = use.place, graph.names[use.node], graph.nodes[use.node]
    assert isinstance(place, Axis)
    own: Tensor | None = gradient
    by_channel = name == CONVOLUTION
    if name in ENTRYWISE:
        own = run_node(node, {use.received[0][1]: gradient})[use.slot]
    elif name in PRODUCTS:
        if use.slot != PRODUCTS[name].bias or (not by_channel and saved(node, "beta") not in {1, None}):
            return None
    elif name in NORMS:
        normalized = read_normalized(name, saved, node)
        if normalized is None or use.slot == 0:
            return None
        if use.slot == 1:
            own = gradient * normalized
        by_channel = name.startswith(("NativeGroup", "NativeBatch", "Cudnn"))
    elif name != "ExpandBackward0":
        return None
    padded = (1,) * (gradient.ndim - len(shape)) + tuple(shape)
    # channels are the second axis, before all positions
    if by_channel:
        padded = (1, *shape, *(1,) * (gradient.ndim - 2))
    # not broadcast over the samples: each has an entry of its own
    if own is None or own.shape != gradient.shape or padded[place.axis] != 1:
        return None
    front = place.split(own).movedim(place.axis + 1, 0).flatten(place.axis + 1, place.axis + 2)
    return front.sum_to_size((place.samples, *padded)).reshape(place.samples, *shape)


def _mask(graph: Graph, use: Use, received: Received, shape: torch.Size) -> Iterator[Tensor]:
    """Yield each sample's gradient at the edge of a use: one call of the node on that sample's part."""
    parts = {
        edge[1]: place.isolate(gradient)
        for edge, place in zip(use.received, use.places, strict=True)
        if (gradient := received[edge]) is not None
    }
    for _ in range(use.place.samples):
        own = {result: next(part) for result, part in parts.items()}
        found = run_node(graph.nodes[use.node], own)[use.slot]
        if found is None:
            yield use.source.leaves[0].new_zeros(shape)
        else:
            yield densify(found).detach().sum_to_size(shape)
