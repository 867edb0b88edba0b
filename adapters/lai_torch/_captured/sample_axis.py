"""Where the samples lie in the tensors of a captured graph, read off its symbolic shapes.

An axis whose length is the batch symbol holds one row per sample. Where the batch is merged with
another axis, as positions with samples inside time-first attention, its length is a multiple of the
symbol, and which of the two is outermost follows from the reshaping that merged them.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from lai_torch._captured.graphs import RESHAPES, is_random
from lai_torch._graph.places import Axis

SYMBOLIC = (torch.SymInt, torch.SymFloat)
ANY = -1
"""The number of samples of a graph for every one."""
IN_FRONT = Axis(0, 1, 1, ANY)


@dataclass(frozen=True)
class Sizes:
    """The values of a graph's symbols on one batch."""

    symbols: dict[Any, int]
    batch: frozenset[Any]  # the symbols that are the number of samples

    def varies(self, number: Any) -> bool:
        """Whether a number depends on how many samples there are."""
        return isinstance(number, SYMBOLIC) and bool(number.node.expr.free_symbols & self.batch)

    def value(self, number: Any, samples: int | None = None) -> Any:
        """Return a number, for this batch or one of so many samples."""
        if not isinstance(number, SYMBOLIC):
            return number
        symbols = self.symbols
        if samples is not None:
            symbols = symbols | dict.fromkeys(self.batch, samples)
        found = number.node.expr.subs(symbols)
        if found.free_symbols:
            msg = (
                "backward: 'selective' expects sizes that go by the shapes of the batch, this model has one "
                "that goes by its values (a longest length that is read from a tensor, say); use "
                "backward='kept'"
            )
            raise ValueError(msg)
        return float(found) if isinstance(number, torch.SymFloat) else int(found)

    def multiple(self, length: Any) -> int:
        """Return how many entries of an axis belong to each sample; 0 if the axis holds no samples."""
        if not self.varies(length):
            return 0
        # The length is f(n), an expression in the number of samples n. An axis that holds m entries of each
        # sample and nothing else has f(n) = m n, hence f(2) = 2 f(1); a length such as n + 1 has not.
        one, two = self.value(length, 1), self.value(length, 2)
        if two != 2 * one:
            msg = (
                "backward: 'selective' expects sizes that are multiples of the batch size, got "
                f"{length.node.expr}; use backward='kept'"
            )
            raise ValueError(msg)
        return one


def sample_axes(graph: fx.Graph, sizes: Sizes) -> dict[fx.Node, list[Axis]]:
    """Return where each tensor of a forward graph holds samples; an empty list where none are.

    On an axis of length `outer n inner`, sample j owns the entries `(i n + j) inner + k` for `i < outer` and
    `k < inner`. The symbolic length says how many entries that is, `m = outer inner`, and not which: `m = 6`
    may be positions before, after, or on both sides of the samples. So the split follows from the node that
    merged the axes, and is passed on from there: a node that does not reshape keeps an axis of as many
    entries a sample as it was.
    """
    found: dict[fx.Node, list[Axis]] = {}
    merged: dict[fx.Node, dict[int, tuple[int, int]]] = {}
    for node in graph.nodes:
        inherited: dict[int, tuple[int, int]] = {}
        for one in node.all_input_nodes:
            inherited |= merged.get(one, {})
        merged[node] = inherited
        if not isinstance(node.meta.get("val"), Tensor):
            continue
        shape: Any = node.meta["val"].shape
        before = [place for one in node.all_input_nodes[:1] for place in found.get(one, ())]
        multiples = {axis: many for axis, length in enumerate(shape) if (many := sizes.multiple(length))}
        found[node] = []
        for axis, many in multiples.items():
            # as an input's axis of as many entries; samples outermost where no input has one
            outer, inner = inherited.get(many, (1, many))
            if node.target in RESHAPES and len(before) == len(multiples) == 1:
                # Reshaping keeps the order of the entries. So the number of blocks of samples that lie one
                # after another, prod(shape before the axis) outer, is the same on both sides:
                #   prod(shape'[:axis']) outer' = prod(shape[:axis]) outer,  and  outer' inner' = m.
                source = node.all_input_nodes[0].meta["val"].shape
                blocks = math.prod(map(sizes.value, source[: before[0].axis])) * before[0].outer
                outer = blocks // math.prod(map(sizes.value, shape[:axis]))
                inner = many // max(outer, 1)
            if outer * inner != many:  # a division above left a rest: the axis cuts a block of samples in two
                msg = (
                    f"backward: 'selective' expects samples side by side on an axis, {node.target} mixes "
                    "them with another; use backward='kept'"
                )
                raise ValueError(msg)
            found[node].append(Axis(axis, outer, inner, ANY))
        # an axis with one entry a sample can be split in one way alone: nothing has to be passed on
        splits = [(one.outer, one.inner) for one in found[node] if one.outer * one.inner > 1]
        inherited |= {outer * inner: (outer, inner) for outer, inner in splits}
    return found


def find_sized(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that are computed from sizes alone, as row numbers are.

    Rows of `arange(n)` are not `arange(rows)`: what is computed from sizes is computed again for fewer
    samples, not cut. A node is one if all its inputs are, and the sizes themselves are; random numbers are
    drawn once.
    """
    found: set[fx.Node] = set()
    for node in graph.nodes:
        entry = isinstance(node.meta.get("val"), SYMBOLIC)
        computed = node.op == "call_function" and all(one in found for one in node.all_input_nodes)
        if entry or (computed and not is_random(node)):
            found.add(node)
    return found


def compute_from_sizes(node: fx.Node, sizes: Sizes, samples: int) -> Any:
    if isinstance(node.meta["val"], SYMBOLIC):
        return sizes.value(node.meta["val"], samples)
    target: Any = node.target
    arguments = fx.node.map_arg((node.args, node.kwargs), lambda one: compute_from_sizes(one, sizes, samples))
    return target(*arguments[0], **arguments[1])


def take_rows(place: Axis, value: Tensor, rows: Tensor) -> Tensor:
    """Return the samples `rows`, in the order of the strides that the value has."""
    # The backward graph was captured for these strides, so rows are taken with the axes in their order in
    # memory, from the largest stride to the smallest, and the axes put back.
    strides = value.stride()
    order = sorted(range(value.ndim), key=lambda one: -strides[one])
    axis, ordered = order.index(place.axis), value.permute(order)
    if place.outer == place.inner == 1:
        taken = ordered.index_select(axis, rows)
    else:
        split = ordered.unflatten(axis, (place.outer, -1, place.inner))
        taken = split.index_select(axis + 1, rows).flatten(axis, axis + 2)
    return taken.permute([order.index(one) for one in range(value.ndim)])


def weigh_rows(place: Axis, value: Tensor, weights: Tensor) -> Tensor:
    split = place.split(value)
    factors = weights.to(split).reshape(-1, *[1] * (split.ndim - place.axis - 2))
    return (split * factors).flatten(place.axis, place.axis + 2)
