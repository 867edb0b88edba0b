"""Uses of parameters: where the part of the graph that has samples ends at an edge that has none."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lai_torch._graph.places import SUMMED, Place, Places
from lai_torch._graph.walk import Edge, Graph, name_function
from lai_torch._model.function import densify
from lai_torch._model.preserve import remove_hooks

_MOVING = (
    "T Transpose Permute View UnsafeView ReshapeAlias Unsqueeze Squeeze ToCopy Clone Alias Numpy_T Mt Select"
)
MOVES = frozenset(f"{name}Backward{number}" for name in _MOVING.split() for number in (0, 1))
"""Functions that move a parameter's entries or cast them, and do no more."""
COPIES = MOVES | {"ExpandBackward0", "RepeatBackward0"}


class CoupledError(ValueError):
    """A sample's loss or gradient depends on the other samples of its batch."""


@dataclass(frozen=True)
class Source:
    """What a use reads: a parameter as it is, or a tensor computed from parameters."""

    edge: Edge
    names: tuple[str, ...]
    leaves: tuple[Tensor, ...]
    # whether a matrix is read transposed; None of what is more than moved
    turned: bool | None = None
    # which matrix of a parameter that holds several
    matrix: int | None = None

    @property
    def key(self) -> str:
        """The name under which records of the same matrix are summed."""
        if self.matrix is None:
            return self.names[0]
        return f"{self.names[0]}[{self.matrix}]"


@dataclass(frozen=True)
class Use:
    """One use: the node that reads, the argument by which it reads, and where the samples lie there."""

    node: int
    slot: int
    source: Source
    received: tuple[Edge, ...]
    places: tuple[Place, ...]

    @property
    def place(self) -> Place:
        """Where the samples lie in the first of the gradients that the node receives."""
        return self.places[0]


class Sources:
    """Finds what lies behind the edges of one graph that have no samples."""

    def __init__(self, graph: Graph, names: Mapping[int, str]) -> None:
        self.graph, self.names = graph, names
        self.foreign: dict[int, Tensor] = {}
        self._found: dict[Edge, Source] = {}

    def __call__(self, edge: Edge) -> Source:
        """Return the source behind an edge; it has no names where no parameter of the model is behind."""
        if edge not in self._found:
            self._found[edge] = self._find(edge)
        return self._found[edge]

    def _find(self, edge: Edge) -> Source:
        graph, below = self.graph, self.graph.reach(edge[0])
        leaves = [graph.leaves[node] for node in below if node in graph.leaves]
        own = tuple(leaf for leaf in leaves if id(leaf) in self.names)
        self.foreign |= {id(leaf): leaf for leaf in leaves if id(leaf) not in self.names}
        named = tuple(self.names[id(leaf)] for leaf in own)
        plain = Source(edge, named, own)
        # computed from several tensors, or from one that is no parameter of the model
        if len(leaves) != 1 or len(own) != 1:
            return plain
        if edge[0] in graph.leaves:
            return Source(edge, named, own, turned=False)
        # more than moved: its gradient has to be pulled back
        if any(graph.names[node] not in MOVES for node in below if node not in graph.leaves):
            return plain
        return self._find_move(plain)

    def _find_move(self, source: Source) -> Source:
        """Return how the entries of a parameter were moved, by what becomes of random ones on the way back.

        Names alone miss the orientation of a matrix; numbers alone take W * s with s = 1 for W.
        """
        graph, leaf = self.graph, source.leaves[0]
        generator = torch.Generator().manual_seed(0)  # for the pass that trains may draw
        probe = torch.rand(graph.shape(source.edge), generator=generator, dtype=leaf.real.dtype, device="cpu")
        probe = probe.to(leaf.device, graph.dtype(source.edge))
        (back,) = pull_back(graph, source, probe)
        ways = [(False, probe)]
        if probe.ndim > 1:
            ways.append((True, probe.mT))
        for turned, seen in ways:
            # The parameter as it is, or a view of all of it.
            if seen.numel() == back.numel() and torch.equal(seen.reshape(back.shape).to(back.dtype), back):
                return Source(source.edge, source.names, source.leaves, turned)
        # One matrix of several: which one is seen of where random entries arrive.
        flat, reached = probe, []
        if probe.ndim > 2:
            flat = probe.squeeze()
        if back.ndim == 3:
            reached = back.flatten(1).any(1).nonzero().flatten().tolist()
        if len(reached) == 1 and flat.ndim == 2:
            slab = back[reached[0]]
            for turned, seen in ((False, flat), (True, flat.mT)):
                if seen.shape == slab.shape and torch.equal(seen.to(slab.dtype), slab):
                    return Source(source.edge, source.names, source.leaves, turned, reached[0])
        return source


def pull_back(graph: Graph, source: Source, gradient: Tensor) -> list[Tensor]:
    """Return what a gradient at a source's edge is at each of its parameters, without hooks on these."""
    edge = graph.gradient_edge(source.edge)
    with remove_hooks(leaf for leaf in source.leaves if isinstance(leaf, nn.Parameter)):
        found = torch.autograd.grad(
            [edge], list(source.leaves), [gradient], retain_graph=True, materialize_grads=True
        )
    return [densify(one).detach() for one in found]


def find_uses(graph: Graph, places: Places, sources: Sources) -> list[Use]:
    """Return the uses of trainable parameters at which something arrives, in the order of the forward pass.

    Raises
    ------
    CoupledError
        If a sum over samples is computed from what has samples again.
    """
    received: dict[int, Places] = defaultdict(dict)
    for at, place in places.items():
        received[at[0]][at] = place
    summed = {node for node, states in received.items() if SUMMED in states.values()}
    _check_uncoupled(graph, places, summed, sources.names)
    uses: list[Use] = []
    for node in sorted(received, key=lambda one: graph.nodes[one]._sequence_nr()):
        placed = {edge: place for edge, place in received[node].items() if not isinstance(place, str)}
        if node in summed or not placed:
            continue
        for slot, edge in enumerate(graph.edges[node]):
            if edge is None or (edge[0] not in graph.leaves and edge[0] not in summed):
                continue
            source = sources(edge)
            if source.names:
                uses.append(Use(node, slot, source, tuple(placed), tuple(placed.values())))
    return uses


def _check_uncoupled(graph: Graph, places: Places, summed: set[int], names: Mapping[int, str]) -> None:
    """Raise if a sum over samples is computed from what has samples again."""
    placed = {edge[0] for edge, place in places.items() if not isinstance(place, str)} - summed
    for node in summed:
        below = graph.reach(node)
        if placed.isdisjoint(below):
            continue
        near = [repr(names[id(graph.leaves[one])]) for one in below if id(graph.leaves.get(one)) in names]
        where = ["the inputs", *near][-1]
        msg = (
            "model: expected samples that do not depend on each other, got a "
            f"{name_function(graph.names[node])} over samples behind {where} (BatchNorm in training "
            "mode, or a statistic of the batch): samples are coupled, so that no sample has a gradient of "
            "its own; call model.eval() where a normalisation couples them, or score what is coupled as one "
            "sample (the sum of its rows' losses)"
        )
        raise CoupledError(msg)


def is_moved_parameter(graph: Graph, edge: Edge | None, through: frozenset[str] = MOVES) -> bool:
    """Whether an edge leads to a leaf through functions that only move a tensor's entries."""
    while edge is not None and edge[0] not in graph.leaves:
        children = graph.edges[edge[0]]
        if graph.names[edge[0]] not in through or len(children) != 1:
            return False
        edge = children[0]
    return edge is not None
