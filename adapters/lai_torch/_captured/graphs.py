"""Reading captured graphs: products with parameters, the last of them, and what follows it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

RESHAPES = {
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.reshape.default,
}
"""Other shapes of the same numbers."""


@dataclass(frozen=True)
class Layer:
    """A product of what depends on the samples with what is computed from parameters alone."""

    inputs: fx.Node  # inputs, output: the nodes of its input and of itself
    output: fx.Node
    names: tuple[str, ...]  # the parameters that its weight is computed from
    geometry: dict[str, Any] | None = None  # what else a convolution has

    @property
    def name(self) -> str:
        """The layer's name: that of its weight, without the last word."""
        return self.names[0].removesuffix(".weight")


_PRODUCTS: dict[Any, tuple[int, int]] = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
    torch.ops.aten.convolution.default: (0, 1),
}
"""Where each product has its input and its weight."""


def is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def results(graph: fx.Graph) -> list[Any]:
    (result,) = (node for node in graph.nodes if node.op == "output")
    returned: Any = result.args[0]
    return list(returned)


def find_final_products(outputs: Iterable[fx.Node], products: Iterable[fx.Node]) -> list[fx.Node]:
    """Return the products that reach the outputs without passing another, in order."""
    # Backwards from the outputs, along each path to its first product: what lies before that is read through
    # it. A detached value ends a path too, since no gradient passes it.
    known = dict.fromkeys(products)
    pending, seen = list(outputs), set()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            if node not in known and node.target is not torch.ops.aten.detach.default:
                pending.extend(node.all_input_nodes)
    return [node for node in known if node in seen]


def tail(graph: fx.Graph, start: Iterable[fx.Node], outputs: Iterable[fx.Node]) -> list[fx.Node]:
    """Return the nodes between `start` and the outputs, in order."""
    # What lies between depends on `start`, seen forwards, and is needed by the outputs, seen backwards.
    after, begin = set(start), set(start)
    for node in graph.nodes:
        if any(before in after for before in node.all_input_nodes):
            after.add(node)
    wanted = set(outputs)
    for node in reversed(graph.nodes):
        if node in wanted and node not in begin:
            wanted.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in after and node in wanted and node not in begin]


def find_layers(
    graph: fx.Graph, parameters: Mapping[str, str], samples: Sequence[fx.Node]
) -> dict[fx.Node, Layer]:
    """Return the layers, in order, of a graph whose inputs `samples` depend on the samples."""
    batched, names, found = set(samples), dict[fx.Node, tuple[str, ...]](), dict[fx.Node, Layer]()
    # Inputs stand before what reads them, so that one pass settles all: a node depends on the samples if any
    # of its inputs does, and is computed from the parameters of all of them.
    for node in graph.nodes:
        before: list[fx.Node] = node.all_input_nodes
        arguments: Any = node.args
        names[node] = tuple(dict.fromkeys(name for one in before for name in names[one]))
        if node.name in parameters:
            names[node] = (parameters[node.name],)
        if any(one in batched for one in before):
            batched.add(node)
        if node.op != "call_function" or node.target not in _PRODUCTS:
            continue
        inputs, weight = (arguments[index] for index in _PRODUCTS[node.target])
        if inputs not in batched or weight in batched or not names[weight]:
            continue
        geometry = None
        if node.target is torch.ops.aten.convolution.default:
            if arguments[6]:  # transposed
                continue
            kernel = tuple(map(int, weight.meta["val"].shape[2:]))
            # of padding="valid" a graph holds one number for all axes
            stride, padding, dilation = (
                tuple(given) * (len(kernel) // len(given)) for given in arguments[3:6]
            )
            sides = tuple((each, each) for each in padding)
            geometry = {"kernel": kernel, "stride": stride, "padding": sides, "dilation": dilation}
            geometry["groups"] = arguments[8]
        found[node] = Layer(inputs, node, names[weight], geometry)
    return found


def vjp_through(
    nodes: Sequence[fx.Node],
    layer: Layer,
    values: dict[str, Any],
    gradients: dict[fx.Node, Tensor],
) -> Tensor:
    """Return the gradient at a layer's output from those at the outputs, which `nodes` compute from it."""
    # With s the layer's output and g_i the gradient at output i, d loss / d s = sum_i (d out_i / d s)^T g_i:
    # one backward pass through the few nodes that follow the layer, run again from s as a leaf.
    with torch.enable_grad():
        leaf = values[layer.output.name].detach().requires_grad_()
        env: dict[str, Any] = {**values, layer.output.name: leaf}
        for node in nodes:
            target: Any = node.target
            arguments = fx.node.map_arg((node.args, node.kwargs), lambda one: env[one.name])
            env[node.name] = target(*arguments[0], **arguments[1])
        pairs = [(env[node.name], one) for node, one in gradients.items()]
    reached = [(value, one) for value, one in pairs if value.requires_grad]
    (found,) = torch.autograd.grad([value for value, _ in reached], leaf, [one for _, one in reached])
    return found
