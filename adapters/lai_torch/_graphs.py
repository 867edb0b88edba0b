"""Reading captured graphs: products with parameters, and the rows of what a forward pass saved."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

_VIEWS = {
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.reshape.default,
    torch.ops.aten.detach.default,
    torch.ops.aten.alias.default,
}
_TRANSPOSES = {torch.ops.aten.t.default, torch.ops.aten.permute.default, torch.ops.aten.transpose.int}


@dataclass(frozen=True)
class Layer:
    """A product with a parameter: the nodes of its input and of itself, the parameter, a bias or none."""

    inputs: fx.Node
    output: fx.Node
    weight: str
    bias: bool
    geometry: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The layer's name: that of its weight, without the last word."""
        return self.weight.removesuffix(".weight")


def product(node: fx.Node) -> Layer | None:
    """Return the layer that a node computes, named by the graph input that is its weight; None if none."""
    places: dict[Any, tuple[int, int, int | None]] = {
        torch.ops.aten.mm.default: (0, 1, None),
        torch.ops.aten.addmm.default: (1, 2, 0),
        torch.ops.aten.convolution.default: (0, 1, 2),
    }
    if node.op != "call_function" or node.target not in places:
        return None
    arguments: tuple[Any, ...] = node.args
    inputs, weight, bias = places[node.target]
    source, entry = _source(arguments[weight]), arguments[inputs]
    if source is None or not isinstance(entry, fx.Node):
        return None
    geometry = None
    if node.target is torch.ops.aten.convolution.default:
        if arguments[6]:  # transposed
            return None
        geometry = {
            "kernel": tuple(int(length) for length in source.meta["val"].shape[2:]),
            "stride": tuple(arguments[3]),
            "padding": tuple((each, each) for each in arguments[4]),
            "dilation": tuple(arguments[5]),
            "groups": arguments[8],
        }
    biased = bias is not None and arguments[bias] is not None
    return Layer(entry, node, source.name, biased, geometry)


def _source(node: Any) -> fx.Node | None:
    """Return the graph input that a node is, or is the transpose of."""
    while isinstance(node, fx.Node) and node.op == "call_function" and node.target in _TRANSPOSES:
        node = node.args[0]
    return node if isinstance(node, fx.Node) and node.op == "placeholder" else None


def found_layers(graph: fx.Graph, parameters: dict[str, str]) -> list[Layer]:
    """Return the layers whose weight is a parameter, the one that makes the output last.

    Raises
    ------
    ValueError
        If the output is not one layer's.
    """
    found = {
        node: replace(layer, weight=parameters[layer.weight])
        for node in graph.nodes
        if (layer := product(node)) is not None and layer.weight in parameters
    }
    (result,) = (node for node in graph.nodes if node.op == "output")
    outputs: Any = result.args[0]
    last = outputs[0]
    while isinstance(last, fx.Node) and last.target in _VIEWS:
        last = last.args[0]
    if last not in found or found[last].geometry is not None:
        msg = (
            "backward: 'selective' expects the model's output to be that of its last linear layer, it is "
            f"computed by {getattr(last, 'target', last)}; move what follows the layer into the loss"
        )
        raise ValueError(msg)
    return [*(layer for node, layer in found.items() if node is not last), found[last]]


def kept_rows(value: Any, symbolic: Any, kept: Tensor, samples: int) -> Any:
    """Return the rows `kept` of a saved value along every axis that its symbolic shape says is the batch's.

    Raises
    ------
    ValueError
        If an axis mixes the batch with something that is no multiple of it.
    """
    if not isinstance(value, Tensor):
        return _resized(symbolic, kept.numel(), samples) if isinstance(symbolic, torch.SymInt) else value
    for axis, length in enumerate(symbolic.shape):
        if not isinstance(length, torch.SymInt) or not length.node.expr.free_symbols:
            continue
        inner = _resized(length, 1, samples)
        value = _gathered(value, axis, inner, kept, samples)
    return value


def _resized(symbolic: torch.SymInt, batch: int, samples: int) -> int:
    """Return a size for another batch size.

    Raises
    ------
    ValueError
        If it is no multiple of the batch size.
    """
    expression = symbolic.node.expr
    symbols = expression.free_symbols
    if not symbols:
        return int(expression)
    (symbol,) = symbols if len(symbols) == 1 else (None,)
    if symbol is None or expression.subs(symbol, 2) != 2 * expression.subs(symbol, 1):
        msg = (
            f"backward: 'selective' expects sizes that are multiples of the batch size {samples}, got "
            f"{expression}; use backward='kept'"
        )
        raise ValueError(msg)
    return int(expression.subs(symbol, batch))


def _gathered(value: Tensor, axis: int, inner: int, kept: Tensor, samples: int) -> Tensor:
    """Gather samples on an axis of length `samples * inner`, keeping the order of the strides."""
    strides = value.stride()
    order = sorted(range(value.ndim), key=lambda one: -strides[one])
    physical = value.permute(order)
    place = order.index(axis)
    split = physical.unflatten(place, (samples, inner)) if inner > 1 else physical
    rows = split.index_select(place, kept)
    rows = rows.flatten(place, place + 1) if inner > 1 else rows
    return rows.permute([order.index(one) for one in range(value.ndim)])
