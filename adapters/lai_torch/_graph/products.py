"""Matrix products and convolutions: the two sides of a matrix's gradient, read off one node."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lai_torch._graph.places import Axis, Entries, Place
from lai_torch._graph.saved import Saved
from lai_torch._graph.uses import COPIES, is_moved_parameter
from lai_torch._graph.walk import Edge, Graph, Node


@dataclass(frozen=True)
class Product:
    """A function `first @ second (+ bias)`: its arguments' numbers, and how a node names what it keeps."""

    slots: tuple[int, int]
    saved: tuple[str, str]
    bias: int | None = None
    # whether the second argument is read as `(out, in)`
    natural: bool = False


GROUPED = "GroupedMmBackward0"
CONVOLUTION, LINEAR = "ConvolutionBackward0", "LinearBackward0"
PRODUCTS = {
    "MmBackward0": Product((0, 1), ("self", "mat2")),
    "AddmmBackward0": Product((1, 2), ("mat1", "mat2"), 0),
    "BmmBackward0": Product((0, 1), ("self", "mat2")),
    "BaddbmmBackward0": Product((1, 2), ("batch1", "batch2"), 0),
    "MvBackward0": Product((0, 1), ("self", "vec")),
    LINEAR: Product((0, 1), ("input", "weight"), 2, natural=True),
    CONVOLUTION: Product((0, 1), ("input", "weight"), 2),
}


@dataclass(frozen=True)
class Sides:
    """The sides of a matrix's gradient: inputs `(n, [t,] d_in)`, output gradients `(n, [t,] d_out)`."""

    activations: Tensor
    gradients: Tensor | None = None
    groups: int = 1
    routed: bool = False


def is_argument(graph: Graph, node: int, slot: int) -> bool:
    name = graph.names[node]
    return name in PRODUCTS and slot in PRODUCTS[name].slots


def find_weight(graph: Graph, node: int, trains: Callable[[Edge], bool]) -> int | None:
    """Return which argument of a product is a trainable parameter, or copies of one; None if neither is."""
    product = PRODUCTS[graph.names[node]]
    edges = [(slot, graph.edges[node][slot]) for slot in reversed(product.slots)]
    for slot, edge in edges:
        if edge is not None and trains(edge):
            return slot
    return next((slot for slot, edge in edges if is_moved_parameter(graph, edge, COPIES)), None)


def read_sides(
    graph: Graph, saved: Saved, node: int, slot: int, gradient: Tensor | None, place: Place
) -> Sides | None:
    """Return the sides of a product's use of its argument `slot`; None if its gradient has no such form."""
    name, product = graph.names[node], PRODUCTS[graph.names[node]]
    if name == CONVOLUTION or (product.bias == 0 and graph.nodes[node]._saved_alpha != 1):
        return None
    first = slot == product.slots[0]
    other = saved(graph.nodes[node], product.saved[int(first)])
    if other is None or other.is_complex() or (first and name in {LINEAR, "MvBackward0"}):
        return None
    sides: list[Tensor] = [one for one in (other, gradient) if one is not None]
    if name == "MvBackward0":
        sides[1:] = [one[..., None] for one in sides[1:]]
    elif first:
        # A = first @ second is read as A^T = second^T @ first^T.
        sides = [one.mT for one in sides]
    if isinstance(place, Entries):
        if sides[-1].ndim != 2 or len(sides) < 2:
            return None
        owners = place.owners.mT if first else place.owners
        rows = Entries(owners.reshape(sides[1].shape), place.samples).rows
        return None if rows is None else _gather(sides[0], sides[1], rows, place.samples)
    turned = place
    if first:
        turned = place.swap(other.ndim)
    if not turned.fits_rows(sides[0].shape):
        return None
    if other.ndim > 2 and turned.axis > 0 and name != LINEAR:
        sides, turned = [one.movedim(0, 1) for one in sides], replace(turned, axis=0)
        edge, matrices = graph.edges[node][slot], len(other)
        if edge is not None:
            matrices = _count_matrices(graph, edge)
        if matrices not in {1, len(other)}:
            return None
        # Of a batch of products, each with a matrix of its own, all are groups of one.
        if matrices > 1:
            laid: Any = [turned.move_to_front(one.flatten(1)) for one in sides]
            return replace(Sides(*laid), groups=matrices)
    # with the samples in front, and all positions, also those of copies of one matrix, on one axis
    laid = [flatten_positions(turned.move_to_front(one)) for one in sides]
    return Sides(*laid)


def _count_matrices(graph: Graph, edge: Edge) -> int:
    """Return how many of the matrices `(b, rows, columns)` at an edge are not copies of one another."""
    entries, matrix = [graph.shape(edge).numel()], graph.shape(edge)[-2:].numel()
    while graph.names[edge[0]] in COPIES and len(graph.edges[edge[0]]) == 1:
        (child,) = graph.edges[edge[0]]
        if child is None:
            break
        edge = child
        entries.append(graph.shape(edge).numel())
    # fewer where they are expanded, more where one of many is selected
    return min(entries) // matrix


def fits_factor(graph: Graph, saved: Saved, node: int, slot: int, place: Axis) -> bool:
    """Whether the factor that a product's argument `slot` meets can have the samples there, too."""
    product = PRODUCTS[graph.names[node]]
    first = slot == product.slots[0]
    other = saved(graph.nodes[node], product.saved[int(first)])
    if other is None or graph.names[node] in {CONVOLUTION, "MvBackward0"}:
        return True
    if first:
        return place.swap(other.ndim).fits_rows(other.mT.shape)
    return place.fits_rows(other.shape)


def add_positions(rows: Tensor) -> Tensor:
    """Return `(n, d)` as `(n, 1, d)`."""
    if rows.ndim == 3:
        return rows
    return rows.unsqueeze(1)


def flatten_positions(rows: Tensor) -> Tensor:
    """Return `(n, ..., d)` with at most one axis of positions."""
    if rows.ndim > 3:
        return rows.flatten(1, -2)
    return rows


def _gather(rows: Tensor, gradient: Tensor, owners: Tensor, samples: int) -> Sides:
    """Return rows that belong to the samples `owners`, sample by sample."""
    kept = owners >= 0
    rows, gradient, owners = rows[kept], gradient[kept], owners[kept]
    return Sides(_pad(rows, owners, samples), _pad(gradient, owners, samples), routed=True)


def split_groups(graph: Graph, saved: Saved, node: int, gradient: Tensor, place: Entries) -> list[Sides]:
    """Return the sides of each matrix of a grouped product, whose rows are sorted by their matrix, if any."""
    rows, ends = (saved(graph.nodes[node], name) for name in ("self", "offs"))
    if rows is None or ends is None or rows.ndim != 2 or gradient.ndim != 2 or place.rows is None:
        return []
    starts = [0, *ends.tolist()]
    parts = [slice(*pair) for pair in pairwise(starts)]
    return [_gather(rows[part], gradient[part], place.rows[part], place.samples) for part in parts]


def _pad(rows: Tensor, owners: Tensor, samples: int) -> Tensor:
    """Return rows `(k, d)` of the samples `(k,)` as `(n, t, d)`, filled up with zeros."""
    order = owners.argsort(stable=True)
    own = torch.bincount(owners, minlength=samples)
    first = own.cumsum(0) - own
    position = torch.arange(len(order), device=rows.device) - first[owners[order]]
    most = int(own.clamp(min=1).max())
    padded = rows.new_zeros(samples, most, rows.shape[1])
    padded[owners[order], position] = rows[order]
    return padded


def read_geometry(saved: Saved, node: Node, space: int) -> dict[str, Any] | None:
    """Return the geometry of a convolution over so many axes, as its record takes it; None if transposed."""
    if saved(node, "transposed"):
        return None

    def read(name: str) -> tuple[int, ...]:
        given = tuple(saved(node, name))  # of padding="valid" a node keeps one number for all axes
        return given * (space // len(given))

    return {
        "stride": read("stride"),
        "padding": tuple((one, one) for one in read("padding")),
        "dilation": read("dilation"),
        "groups": saved(node, "groups"),
    }


NORMS = {
    "NativeLayerNormBackward0",
    "NativeGroupNormBackward0",
    "NativeBatchNormBackward0",
    "CudnnBatchNormBackward0",
    "FusedRmsNormBackward0",
}


def read_normalized(name: str, saved: Saved, node: Node) -> Tensor | None:
    """Return what the gain of a norm multiplies; None if the node is no norm."""
    if name not in NORMS or (given := saved(node, "input")) is None:
        return None
    if name.startswith("NativeLayer"):
        return (given - saved(node, "result1")) * saved(node, "result2")
    if name.startswith("FusedRms"):
        scale = saved(node, "result1")
        if scale is None:
            return None
        return given * scale
    if name.startswith("NativeGroup"):
        split = given.reshape(given.shape[0], saved(node, "group"), -1)
        mean, scale = (saved(node, one).unsqueeze(-1) for one in ("result1", "result2"))
        return ((split - mean) * scale).reshape(given.shape)
    # the statistics of the batch; in eval mode, the running ones
    if saved(node, "training"):
        mean, scale = saved(node, "result1"), saved(node, "result2")
    else:
        mean, scale = saved(node, "running_mean"), (saved(node, "running_var") + saved(node, "eps")).rsqrt()
    shape = (1, -1, *(1,) * (given.ndim - 2))
    return (given - mean.view(shape)) * scale.view(shape)
