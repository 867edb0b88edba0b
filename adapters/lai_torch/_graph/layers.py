"""The layers that LAI reads: products with a trainable parameter, and the last product of all."""

from collections.abc import Container, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from lai_torch._graph.places import DEAD, NONE, RAGGED, SUMMED, Axis, Place, Places
from lai_torch._graph.products import CONVOLUTION, NORMS, PRODUCTS, find_weight, read_geometry, read_sides
from lai_torch._graph.saved import Saved
from lai_torch._graph.uses import COPIES, MOVES, Source, Sources, Use, is_moved_parameter
from lai_torch._graph.walk import Graph, name_function


@dataclass(frozen=True)
class Layer:
    """A product with a parameter: the node, which argument is the parameter, and its name."""

    node: int
    slot: int
    name: str
    place: Place
    # the parameter that trains; None of a frozen one
    source: Source | None


@dataclass(frozen=True)
class Bias:
    """A vector that is added to the output of a product: the node that adds it, and by which argument."""

    node: int
    slot: int
    name: str
    width: int


def find_biases(graph: Graph, sources: Sources) -> dict[int, Bias]:
    """Return of each product the vector that is added to its output, by itself or by the node after it."""
    readers, found = graph.list_readers(), {}
    for node, name in enumerate(graph.names):
        if name not in PRODUCTS:
            continue
        bias = _find_bias(graph, node, readers)
        if bias is None:
            continue
        edge = graph.edges[bias[0]][bias[1]]
        assert edge is not None
        source = sources(edge)
        if source.turned is False and source.leaves[0].ndim == 1:
            found[node] = Bias(*bias, source.names[0], len(source.leaves[0]))
    return found


def _find_bias(graph: Graph, node: int, readers: Mapping[int, list[int]]) -> tuple[int, int] | None:
    """Return the node and the argument by which a bias is added to a product."""
    slot = PRODUCTS[graph.names[node]].bias
    if slot is not None and slot < len(graph.edges[node]) and graph.edges[node][slot] is not None:
        return node, slot
    # `F.linear` of an input that is not contiguous is a product, views, and a sum with the bias.
    below = node
    while len(readers[below]) == 1:
        (above,) = readers[below]
        if graph.names[above] not in MOVES:
            break
        below = above
    if len(readers[below]) != 1 or graph.names[readers[below][0]] != "AddBackward0":
        return None
    (adding,) = readers[below]
    if getattr(graph.nodes[adding], "_saved_alpha", 1) != 1:
        return None
    shape = graph.shape((adding, 0))
    width = shape[-1:]
    # That of a convolution is a number a channel, which all pixels get; of maps that were moved since, as of
    # a single sample's, it cannot be told which axis holds the channels.
    if graph.names[node] == CONVOLUTION:
        if shape != graph.shape((node, 0)):
            return None
        width = torch.Size((shape[1], *(1,) * (len(shape) - 2)))
    for other, edge in enumerate(graph.edges[adding]):
        if edge is not None and is_moved_parameter(graph, edge):
            own = graph.shape(edge)
            if own[-len(width) :] == width and own.numel() == width.numel():
                return adding, other
    return None


def find_layers(
    graph: Graph,
    saved: Saved,
    places: Places,
    sources: Sources,
    frozen: Mapping[int, str],  # the names of frozen parameters by the memory that they are kept in
    unread: Set[str],  # parameters of which LAI reads no layer
) -> list[Layer]:
    """Return the products with a parameter, frozen ones included, in the order of the forward pass."""
    summed = {edge[0] for edge, place in places.items() if place == SUMMED}
    # no gradient tells what is made of parameters alone where none arrives
    if DEAD in places.values():
        summed |= find_made(graph, sources.names, saved)
    layers = []
    for node, name in enumerate(graph.names):
        place = places.get((node, 0))
        if name not in PRODUCTS or node in summed or place is None or place == NONE:
            continue
        if graph.dtype((node, 0)).is_complex or 0 in graph.shape((node, 0)):
            continue
        slot = find_weight(graph, node, lambda edge: edge[0] in graph.leaves or edge[0] in summed)
        source, key = None, ""
        # no argument leads to a leaf: a frozen parameter is seen by its memory alone
        if slot is None:
            slot, key = _find_frozen(graph, saved, node, frozen)
        else:
            edge = graph.edges[node][slot]
            assert edge is not None
            source = sources(edge)
            if source.names:
                key = source.key
        if slot is None or not key or place == RAGGED:
            continue
        if isinstance(place, str):
            # LAI leaves these out wherever they lie: what data route, and the idle matrix of a bank
            if source is not None and (source.matrix is not None or not unread.isdisjoint(source.names)):
                continue
            msg = (
                f"layer {key!r}: expected output gradients that are not all zero, or inputs that tell the "
                "samples apart, got neither, so that LAI cannot tell where the samples lie; use estimator "
                "'ghost' or 'exact'"
            )
            raise ValueError(msg)
        layers.append(Layer(node, slot, key.removesuffix(".weight"), place, source))
    return sorted(layers, key=lambda layer: graph.nodes[layer.node]._sequence_nr())


def _find_frozen(graph: Graph, saved: Saved, node: int, frozen: Mapping[int, str]) -> tuple[int | None, str]:
    """Return which argument of a product is a frozen parameter, by the memory that it is kept in."""
    product = PRODUCTS[graph.names[node]]
    for slot, name in zip(reversed(product.slots), reversed(product.saved), strict=True):
        if graph.edges[node][slot] is None:
            kept = saved(graph.nodes[node], name)
            # a view of a parameter shares its memory; what `torch.func` wraps has none, and is no parameter's
            with suppress(RuntimeError):
                if isinstance(kept, Tensor) and (key := frozen.get(kept.untyped_storage().data_ptr())):
                    return slot, key
    return None, ""


def find_last(graph: Graph, layers: list[Layer], last: str | None, unread: Mapping[str, str]) -> list[Layer]:
    """Return the last layer: its one use, or those of one parameter side by side.

    It is the layer whose output reaches the losses without passing another layer.

    Raises
    ------
    ValueError
        If there is none, or several and no `last` names one of them.
    """
    near = graph.reach(0, {layer.node for layer in layers})
    reached = [layer for layer in layers if layer.node in near]
    names = list(dict.fromkeys(layer.name for layer in reached))
    if last is not None:
        found = [layer for layer in reached if last in {layer.name, f"{layer.name}.weight"}]
        if not found:
            expected = "expected the name of one layer whose output the loss uses"
            msg = f"last: {expected}, got {last!r}, not one of {names}"
            raise ValueError(msg)
        return found
    if not reached:
        left = "".join(f"; LAI leaves out {name!r} ({why})" for name, why in unread.items())
        msg = (
            "model: expected the loss to depend on the output of a layer with a registered weight, real and "
            f"dense, it depends on none{left}; use estimator 'ghost' or 'exact'"
        )
        raise ValueError(msg)
    if len(names) > 1:
        msg = (
            f"model: expected one final layer, found {len(names)} whose outputs reach the loss: {names}; "
            f"pass last={names[0]!r} (or another of them)"
        )
        raise ValueError(msg)
    return reached


def check_readable(graph: Graph, saved: Saved, last: list[Layer]) -> None:
    """Raise unless the rows, or the patches, are read that a last layer multiplies with its own matrix."""
    for layer in last:
        node, place = graph.nodes[layer.node], layer.place
        if layer.source is None:
            continue
        if graph.names[layer.node] == CONVOLUTION:
            axes = len(graph.shape((layer.node, 0))) - 2
            maps = layer.slot == 1 and isinstance(place, Axis) and place.axis == 0
            readable = maps and read_geometry(saved, node, axes) is not None
        else:
            # of routed rows their gradients tell
            routed = not isinstance(place, Axis)
            readable = routed or read_sides(graph, saved, layer.node, layer.slot, None, place) is not None
        if not readable:
            msg = (
                f"layer {layer.name!r}: expected a last layer whose rows LAI and LLI can read, got a "
                "transposed convolution, a matrix that is several ones' in a batch of products, or samples "
                "that do not come first; use estimator 'ghost' or 'exact'"
            )
            raise ValueError(msg)


_ADDING = frozenset(f"{name}Backward{number}" for name in ("Add", "Sub", "Rsub") for number in (0, 1))
_PLACING = (
    "Cat Stack Expand Repeat Where MaskedFill MaskedScatter IndexPut IndexCopy IndexAdd Scatter ScatterAdd "
    "SliceScatter SelectScatter CopySlices Clone"
)
_BESIDE = frozenset(f"{name}Backward{number}" for name in _PLACING.split() for number in (0, 1)) | _ADDING
SCALING = frozenset({"MulBackward0", "DivBackward0"})
_CURVES = (
    "Abs BinaryCrossEntropy BinaryCrossEntropyWithLogits Clamp ClampMax ClampMin Elu Exp Gelu HuberLoss "
    "LeakyRelu Log LogSigmoid LogSoftmax Logsumexp MseLoss Pow Relu Sigmoid Silu SmoothL1Loss Softmax "
    "Softplus Tanh"
)
_BENDING = frozenset(f"{name}Backward{number}" for name in _CURVES.split() for number in (0, 1))
"""Functions behind which sums of entries are no sums of products any more."""
_LOOKUPS = frozenset({"EmbeddingBackward0", "IndexBackward0", "IndexSelectBackward0", "GatherBackward0"})


_SHAPING = (
    "AsStrided Cat Cumsum Diagonal Flip LinalgInvEx LinalgMatrixExp LinalgQr LinalgSolveEx LinalgVectorNorm "
    "Mean Neg Norm Prod Reciprocal Roll Rsqrt Slice Split SplitWithSizes Sqrt Stack Std Sum Tril Triu Unbind "
    "Unfold Var"
)
_MAKING = frozenset(f"{name}Backward{number}" for name in _SHAPING.split() for number in (0, 1))
_MAKING |= MOVES | COPIES | PRODUCTS.keys() | _ADDING | SCALING | _BENDING | {"WeightNormInterfaceBackward0"}
"""Functions whose arguments are all edges of their nodes, or numbers."""


_BY_OTHERS = SCALING | {"MvBackward0", "DotBackward0", "VdotBackward0"}
"""Functions that keep each argument that has no gradient."""


def find_made(
    graph: Graph, names: Container[int], saved: Saved, passes: tuple[Graph, Graph] | None = None
) -> set[int]:
    """Return the nodes that were computed from parameters alone, as 2 * p and p @ q, whatever arrives.

    Of two passes with other samples, what a function kept of its arguments tells whether these are of them.
    """
    made = {node for node, leaf in graph.leaves.items() if id(leaf) in names}
    for node in sorted(range(len(graph.nodes)), key=lambda one: graph.nodes[one]._sequence_nr()):
        name, children = graph.names[node], [edge for edge in graph.edges[node] if edge is not None]
        if not children or not all(edge[0] in made for edge in children):
            continue
        # What is multiplied and has no gradient may be of the batch, but for a number.
        other = getattr(graph.nodes[node], "_saved_other", None) if name in SCALING else None
        whole = len(children) == len(graph.edges[node]) or (other is not None and not other.ndim)
        if name in _MAKING and whole:
            made.add(node)
        elif passes is not None and name in _BY_OTHERS:
            # A constant that spreads a parameter over more entries may spread it over samples.
            spread = graph.shape((node, 0)).numel() > max(graph.shape(edge).numel() for edge in children)
            kept = ("self", "other", "vec", "tensor")
            pairs = ([saved(one.nodes[node], own) for one in passes] for own in kept)
            if not spread and all(torch.equal(*pair) for pair in pairs if isinstance(pair[0], Tensor)):
                made.add(node)
    return made


def check_past(
    graph: Graph, uses: list[Use], layers: list[Layer], last: list[Layer], biases: Mapping[int, Bias]
) -> None:
    """Raise if the losses read a parameter past the last layer, by a function that may be one more layer.

    An offset is added, and a gain multiplies entry by entry: neither is a layer. Any other function of
    several entries may be one, as are products by entries that are added up.
    """
    readers = graph.list_readers()
    stops = {layer.node for layer in layers}
    near, finals = graph.reach(0, stops), {layer.node for layer in last}
    own = {name for layer in last if layer.source is not None for name in layer.source.names}
    added = [biases[layer.node] for layer in last if layer.node in biases]
    own |= {bias.name for bias in added}
    places = {(bias.node, bias.slot) for bias in added}
    for use in uses:
        inside = use.node in finals or (use.node, use.slot) in places
        # uses before the last layer, and those that are the last layer
        if use.node not in near or inside or not use.source.names:
            continue
        name, function = use.source.names[0], name_function(graph.names[use.node])
        # a penalty on the last layer's weight, or weights that are tied to it
        if not own.isdisjoint(use.source.names):
            msg = (
                f"model: the loss reads {name!r}, a parameter of the last layer, in another way too, which "
                "LAI and LLI do not see: leave a penalty to the optimizer's weight_decay or "
                "lai_torch.KeptOptions(auxiliary=), or use estimator 'ghost' or 'exact'"
            )
            raise ValueError(msg)
        if _is_offset(graph, use) or graph.names[use.node] in NORMS:
            continue
        # What is used entry by entry may be put together later on.
        apart = any(leaf.ndim > len(graph.shape(use.source.edge)) for leaf in use.source.leaves)
        apart = apart or graph.names[use.node] in _ADDING
        if not apart and not _may_be_product(graph, readers, use.node):
            continue
        # One number, a parameter or made of some, is a temperature or an offset.
        if 1 in {sum(leaf.numel() for leaf in use.source.leaves), graph.shape((use.node, 0)).numel()}:
            continue
        if use.node in stops:
            continue
        msg = (
            f"model: the loss depends on {name!r} (used by {function}) without another layer behind it: LAI "
            "and LLI read no such layer, and would take an earlier one for the last; use estimator 'ghost' "
            "or 'exact', or write a product as nn.Linear, and a gain into the layer before it"
        )
        raise ValueError(msg)


def _may_be_product(graph: Graph, readers: Mapping[int, list[int]], start: int) -> bool:
    """Whether entries of a parameter may be multiplied and then added up, as a matrix product does."""
    pending, seen = [(start, False)], {(start, False)}
    while pending:
        node, multiplied = pending.pop()
        name = graph.names[node]
        multiplied = multiplied or name in SCALING
        if name in _BESIDE | SCALING | _LOOKUPS | MOVES | COPIES:
            following = {(one, multiplied) for one in readers[node]} - seen
            seen |= following
            pending += following
        elif node == start or (multiplied and name not in _BENDING | NORMS):
            return True
    return False


def _is_offset(graph: Graph, use: Use) -> bool:
    """Whether a use adds a parameter to each sample: a matrix beside rows of another shape is prototypes."""
    if graph.names[use.node] not in _ADDING:
        return False
    others = [
        edge for slot, edge in enumerate(graph.edges[use.node]) if slot != use.slot and edge is not None
    ]
    whole = [graph.shape(edge) == graph.shape((use.node, 0)) for edge in others]
    # Rows of a matrix that are added one by one are prototypes as well.
    axes = len(graph.shape(use.source.edge))
    if any(leaf.ndim > max(axes, 1) for leaf in use.source.leaves) and axes:
        return False
    return axes <= 1 or (bool(whole) and all(whole))


def find_unread(graph: Graph, uses: list[Use], layers: list[Layer]) -> dict[str, str]:
    """Return the matrices that multiply something of the batch from which LAI has no readout, and by what."""
    read = {layer.node for layer in layers}
    found: dict[str, str] = {}
    named = {name for layer in layers if layer.source is not None for name in layer.source.names}
    multiplied = {
        edge[0]
        for node, name in enumerate(graph.names)
        if name in PRODUCTS
        for slot in PRODUCTS[name].slots
        if (edge := graph.edges[node][slot]) is not None and is_moved_parameter(graph, edge, COPIES)
    }
    for use in uses:
        function = graph.names[use.node]
        # Rows of a table are vectors; what is looked up in more axes are matrices.
        least = 1 + (function in _LOOKUPS)
        matrices = [
            name for name, leaf in zip(use.source.names, use.source.leaves, strict=True) if leaf.ndim > least
        ]
        beside = function in _BESIDE | NORMS and use.node not in multiplied
        if use.node not in read and not beside:
            unread = [name for name in matrices if use.node not in multiplied or name not in named]
            found |= dict.fromkeys(unread, name_function(function))
    return found
