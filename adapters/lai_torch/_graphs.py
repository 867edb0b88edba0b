"""Reading captured graphs: products with parameters, the last of them, and what follows it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

RESHAPES = {
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.reshape.default,
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

    @property
    def is_matrix(self) -> bool:
        """Whether the layer is one matrix on every position: a linear layer or a 1x1 convolution."""
        if self.geometry is None:
            return True
        plain = set(self.geometry["stride"]) == {1} and set(self.geometry["padding"]) == {(0, 0)}
        return plain and set(self.geometry["kernel"]) == {1} and self.geometry["groups"] == 1


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
    biased = _biased_after(node) if bias is None else arguments[bias] is not None
    return Layer(entry, node, source.name, biased, geometry)


def _biased_after(node: fx.Node) -> bool:
    """Whether the call that made this product adds a bias to it, as linear layers do on strided inputs."""
    call, users = node.meta.get("source_fn_stack"), list(node.users)
    while users:
        user = users.pop()
        if user.target in RESHAPES:
            users.extend(user.users)
        elif user.target is torch.ops.aten.add.Tensor and call and user.meta.get("source_fn_stack") == call:
            return any(one.op == "placeholder" for one in user.all_input_nodes)
    return False


def _source(node: Any) -> fx.Node | None:
    """Return the graph input that a node is, or is the transpose of."""
    while isinstance(node, fx.Node) and node.op == "call_function" and node.target in _TRANSPOSES:
        node = node.args[0]
    return node if isinstance(node, fx.Node) and node.op == "placeholder" else None


def is_random(node: fx.Node) -> bool:
    """Whether a node draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def results(graph: fx.Graph) -> list[Any]:
    """Return the nodes that a graph returns."""
    (result,) = (node for node in graph.nodes if node.op == "output")
    returned: Any = result.args[0]
    return list(returned)


def reaching(outputs: Iterable[fx.Node], products: Iterable[fx.Node]) -> list[fx.Node]:
    """Return the products that reach the outputs without passing another, in order."""
    known = dict.fromkeys(products)
    pending, seen = list(outputs), set()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(() if node in known else node.all_input_nodes)
    return [node for node in known if node in seen]


def tail(graph: fx.Graph, start: Iterable[fx.Node], outputs: Iterable[fx.Node]) -> list[fx.Node]:
    """Return the nodes between `start` and the outputs, in order."""
    after, begin = set(start), set(start)
    for node in graph.nodes:
        if any(before in after for before in node.all_input_nodes):
            after.add(node)
    wanted = set(outputs)
    for node in reversed(graph.nodes):
        if node in wanted and node not in begin:
            wanted.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in after and node in wanted and node not in begin]


def found_layers(graph: fx.Graph, parameters: dict[str, str]) -> dict[fx.Node, Layer]:
    """Return the layers whose weight is a parameter, in order, named by it."""
    return {
        node: replace(layer, weight=parameters[layer.weight])
        for node in graph.nodes
        if (layer := product(node)) is not None and layer.weight in parameters
    }


def final_layer(layers: dict[fx.Node, Layer], outputs: Sequence[fx.Node], last: str | None) -> Layer:
    """Return the last layer: the one that reaches the outputs without passing another, or of that name.

    Raises
    ------
    ValueError
        If there is none, or several, or it is no matrix.
    """
    reached = [layers[node] for node in reaching(outputs, layers)]
    if last is not None:
        reached = [layer for layer in reached if layer.name == last]
    if len(reached) != 1:
        names = [layer.name for layer in reached]
        way_out = f"; pass last={names[0]!r} (or another of them)" if names else "; use backward='kept'"
        msg = f"backward: 'selective' expects one final layer, found {len(names)}: {names}{way_out}"
        raise ValueError(msg)
    (layer,) = reached
    if not layer.is_matrix:
        msg = (
            f"layer {layer.name!r}: expected a last layer that is a matrix, got a convolution with "
            f"{layer.geometry}; put a linear layer or a 1x1 convolution last"
        )
        raise ValueError(msg)
    return layer


def pulled_through(
    nodes: Sequence[fx.Node],
    layer: Layer,
    values: dict[str, Any],
    gradients: dict[fx.Node, Tensor],
) -> Tensor:
    """Return the gradient at a layer's output from those at the outputs, which `nodes` compute from it.

    Raises
    ------
    ValueError
        If what follows the layer draws random numbers.
    """
    with torch.enable_grad():
        leaf = values[layer.output.name].detach().requires_grad_()
        env: dict[str, Any] = {**values, layer.output.name: leaf}
        for node in nodes:
            target: Any = node.target
            if is_random(node):
                msg = (
                    f"backward: 'selective' expects nothing random behind the last layer {layer.name!r}, "
                    f"{target} is; use backward='kept'"
                )
                raise ValueError(msg)
            arguments = fx.node.map_arg((node.args, node.kwargs), lambda one: env[one.name])
            env[node.name] = target(*arguments[0], **arguments[1])
        pairs = [(env[node.name], one) for node, one in gradients.items()]
    reached = [(value, one) for value, one in pairs if value.requires_grad]
    (found,) = torch.autograd.grad([value for value, _ in reached], leaf, [one for _, one in reached])
    return found
