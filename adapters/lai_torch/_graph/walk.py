"""The autograd graph of a batch's losses: its nodes, its edges, and the gradients that arrive at them."""

import re
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

Node = Any
Edge = tuple[int, int]
"""A node's number, and which of its function's results."""
LEAF = "torch::autograd::AccumulateGrad"


@dataclass(eq=False, repr=False)
class Graph:
    """Nodes in the order of a walk from the losses, and of each the edges to what it was computed from."""

    losses: Tensor
    nodes: list[Node]
    # what two graphs of the same program share: of each node its name and edges, one behind the other
    signature: tuple[str | int | None, ...]

    @cached_property
    def names(self) -> list[str]:
        return [name for name in self.signature if type(name) is str]

    @cached_property
    def edges(self) -> list[tuple[Edge | None, ...]]:
        """An argument without a gradient has no node; edges are found by their place."""
        number = {node: index for index, node in enumerate(self.nodes)}
        return [
            tuple(None if child is None else (number[child], result) for child, result in node.next_functions)
            for node in self.nodes
        ]

    @cached_property
    def leaves(self) -> dict[int, Tensor]:
        return {index: self.nodes[index].variable for index, name in enumerate(self.names) if name == LEAF}

    @property
    def samples(self) -> int:
        return int(self.losses.shape[0])

    def shape(self, edge: Edge) -> torch.Size:
        return torch.Size(self.nodes[edge[0]]._input_metadata[edge[1]].shape)

    def dtype(self, edge: Edge) -> torch.dtype:
        found: torch.dtype = self.nodes[edge[0]]._input_metadata[edge[1]].dtype
        return found

    def coarsest(self) -> float:
        """Return the machine epsilon of the type with the fewest digits among the gradients."""
        found = {self.dtype(edge) for edge in self.list_received()} | {self.losses.dtype}
        return max(torch.finfo(one).eps for one in found if one.is_floating_point or one.is_complex)

    def list_received(self) -> list[Edge]:
        """Return every edge into a node that is no leaf, each once."""
        found = {(0, self.losses.output_nr): None}
        for edges in self.edges:
            found.update((edge, None) for edge in edges if edge is not None and edge[0] not in self.leaves)
        return list(found)

    def list_readers(self) -> dict[int, list[int]]:
        """Return for each node those that were computed from it, once for each argument."""
        readers: dict[int, list[int]] = defaultdict(list)
        for node, edges in enumerate(self.edges):
            for edge in edges:
                if edge is not None:
                    readers[edge[0]].append(node)
        return readers

    def reach(self, start: int, stops: Container[int] = ()) -> dict[int, None]:
        """Return the nodes that a node was computed from, the node itself first, and none behind `stops`."""
        found, pending = {start: None}, [start]
        while pending:
            node = pending.pop()
            if node in stops:
                continue
            for edge in self.edges[node]:
                if edge is not None and edge[0] not in found:
                    found[edge[0]] = None
                    pending.append(edge[0])
        return found

    def gradient_edge(self, edge: Edge) -> GradientEdge:
        return GradientEdge(self.nodes[edge[0]], edge[1])

    def gradients(self, edges: list[Edge], weights: Tensor) -> list[Tensor | None]:
        """Return the gradients of the weighted sum of the losses that arrive at `edges`; keep the graph."""
        # torch refuses an empty list
        if not edges:
            return []
        wanted = [self.gradient_edge(edge) for edge in edges]
        found = torch.autograd.grad(self.losses, wanted, weights, retain_graph=True, allow_unused=True)
        return [None if one is None else one.detach() for one in found]


def walk(losses: Tensor) -> Graph:
    """Return the graph that computed the losses.

    Raises
    ------
    ValueError
        If the losses depend on nothing that requires a gradient.
    """
    root = losses.grad_fn
    if root is None:
        msg = (
            "model: expected the loss to depend on a trainable parameter, it depends on none; its output may "
            "be detached"
        )
        raise ValueError(msg)
    numbers: dict[Node, int] = {root: 0}
    nodes: list[Node] = [root]
    signature: list[str | int | None] = []
    for node in nodes:  # grows while it is read
        signature.append(node.name())
        for child, result in node.next_functions:
            if child is None:
                signature.append(None)
                continue
            number = numbers.get(child)
            if number is None:
                number = numbers[child] = len(nodes)
                nodes.append(child)
            signature += (number, result)
    return Graph(losses, nodes, tuple(signature))


def name_function(name: str) -> str:
    """Return what a node's function is called in messages: `MulBackward0` is `mul`."""
    short = re.sub(r"Backward\d*$", "", name.rpartition("::")[2])
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", short).lower()


def run_node(node: Node, received: Mapping[int, Tensor]) -> tuple[Tensor | None, ...]:
    """Run the backward formula of one node on the gradients that some of its function's results received."""
    gradients = [received.get(result) for result in range(len(node._input_metadata))]
    with torch.no_grad():
        # A function that is written in Python has its formula under another name.
        formula: Any = getattr(node, "apply", node)
        found = formula(*gradients)
    if isinstance(found, tuple):
        return found
    return (found,)
