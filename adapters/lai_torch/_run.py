"""One run of a captured model: what it kept, and the backward pass of some of its samples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from lai_torch._graphs import Layer, final_layer, found_layers, tail
from lai_torch._places import Place, Sizes, places, resized, sized

Values = list[Any]


@dataclass
class Pair:
    """A captured forward and backward graph.

    Attributes
    ----------
    forward, backward
        The graphs.
    outputs
        What the forward returns to the caller, before what it saves for the backward.
    final
        The products that reach the outputs first, whatever their weights are.
    parameters
        Parameter names by graph input, once a run has told.
    layers
        The layers by node, likewise.
    layouts
        Where each tensor holds samples, by the sizes that are not the batch's.
    sized
        The nodes that are computed from sizes alone.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    outputs: list[fx.Node]
    final: list[fx.Node]
    parameters: dict[str, str] | None = None
    layers: dict[fx.Node, Layer] = field(default_factory=dict)
    layouts: dict[Any, dict[fx.Node, list[Place]]] = field(default_factory=dict)
    sized: set[fx.Node] = field(default_factory=set)


class Run:
    """What one forward pass of a captured model kept.

    Parameters
    ----------
    pair
        The graphs.
    values
        What the forward computed, by the name of its node.
    samples
        How many samples the batch has.
    batched
        Where in memory the inputs that hold them are.
    parameters
        The model's parameters by name.
    found
        The model's differentiable outputs.
    last
        Name of the final layer, if one was asked for.

    Attributes
    ----------
    order
        Which of `found` each input of the backward graph is the gradient of.
    outputs
        The nodes that compute those.

    Raises
    ------
    ValueError
        If an output is not a tensor of its own.
    """

    def __init__(
        self,
        pair: Pair,
        values: dict[str, Any],
        samples: int,
        batched: set[int],
        parameters: dict[str, nn.Parameter],
        found: Sequence[Tensor],
        last: str | None,
    ) -> None:
        self.pair, self.values, self.samples, self.last = pair, values, samples, last
        inputs = [node for node in pair.forward.graph.nodes if node.op == "placeholder"]
        if pair.parameters is None:
            known = {p.data_ptr(): name for name, p in parameters.items() if p.numel()}
            tensors = [(node.name, values[node.name]) for node in inputs]
            pair.parameters = {
                name: known[value.data_ptr()]
                for name, value in tensors
                if isinstance(value, Tensor) and value.data_ptr() in known
            }
            pair.sized = sized(pair.forward.graph)
            pair.layers = found_layers(pair.forward.graph, pair.parameters)
        self.sizes = self._sizes(inputs, batched)
        others = tuple(
            value
            for symbol, value in sorted(self.sizes.symbols.items(), key=str)
            if symbol not in self.sizes.batch
        )
        if others not in pair.layouts:
            pair.layouts[others] = places(pair.forward.graph, self.sizes)
        self._places = pair.layouts[others]
        self.order, self.outputs = self._matched(found)

    def _sizes(self, inputs: Sequence[fx.Node], batched: set[int]) -> Sizes:
        """Read the values of the symbols off the inputs, and which of them are the number of samples."""
        symbols, batch = {}, set()
        for node in inputs:
            value, symbolic = self.values[node.name], node.meta["val"]
            if isinstance(symbolic, torch.SymInt):
                symbols[symbolic.node.expr] = int(value)
            elif isinstance(value, Tensor):
                for axis, length in enumerate(symbolic.shape):
                    if isinstance(length, torch.SymInt) and length.node.expr.is_Symbol:
                        symbols[length.node.expr] = value.shape[axis]
                        if axis == 0 and value.data_ptr() in batched:
                            batch.add(length.node.expr)
        return Sizes(symbols, frozenset(batch))

    def _matched(self, found: Sequence[Tensor]) -> tuple[list[int], list[fx.Node]]:
        """Say which of the differentiable outputs each gradient that the backward graph takes is of."""
        where = {_identity(one): index for index, one in enumerate(found)}
        pairs = []
        for node in self.pair.outputs:
            value = self.values.get(node.name)
            if isinstance(value, Tensor) and (index := where.pop(_identity(value), None)) is not None:
                pairs.append((index, node))
        wanted = [node for node in self.pair.backward.graph.nodes if _is_tangent(node)]
        if where or len(pairs) != len(wanted):
            msg = (
                f"backward: 'selective' expects differentiable outputs that share no memory, found "
                f"{len(found)} with {len(wanted)} gradients; use backward='kept'"
            )
            raise ValueError(msg)
        return [index for index, _ in pairs], [node for _, node in pairs]

    def layers(self, outputs: Sequence[fx.Node]) -> list[Layer]:
        """Return the layers, the last one last.

        Raises
        ------
        ValueError
            If no one layer is the last, or what follows it was not kept.
        """
        last = final_layer(self.pair.layers, outputs, self.last)
        if last.output not in self.pair.final:
            msg = (
                f"backward: 'selective' expects the last layer {last.name!r} to be the last product with an "
                "input of the graph, another that is no parameter follows; use backward='kept'"
            )
            raise ValueError(msg)
        return [*(layer for layer in self.pair.layers.values() if layer.output is not last.output), last]

    def behind(self, last: Layer, outputs: Sequence[fx.Node]) -> list[fx.Node]:
        """Return the nodes between the last layer and the outputs, in order."""
        return tail(self.pair.forward.graph, [last.output], outputs)

    def place(self, node: fx.Node, name: str) -> Place:
        """Return where a layer's input or output holds the samples.

        Raises
        ------
        ValueError
            If it holds none, or on several axes.
        """
        found = self._places[node]
        if len(found) != 1:
            msg = (
                f"layer {name!r}: expected one axis for the samples, got shape "
                f"{tuple(node.meta['val'].shape)}; use backward='kept'"
            )
            raise ValueError(msg)
        return found[0]

    def pulled(
        self, gradients: Sequence[Tensor | None], weights: Tensor, rows: Tensor, *, release: bool = False
    ) -> dict[str, Tensor]:
        """Return the gradient of the weighted losses of the samples `rows`, by parameter.

        `gradients` are those of the unweighted losses at the outputs. With `release`, what was kept is
        freed as its rows are taken, so that this can be done once.
        """
        taken = iter(self._tangents(gradients, weights, rows))
        forward = {node.name: node for node in self.pair.forward.graph.nodes}
        places = [node for node in self.pair.backward.graph.nodes if node.op == "placeholder"]
        values = {node.name: self.values[node.name] for node in places if not _is_tangent(node)}
        if release:
            self.values = {}
        arguments: Values = []
        for node in places:
            if _is_tangent(node):
                arguments.append(next(taken))
                continue
            source, value = forward[node.name], values.pop(node.name)
            if not isinstance(value, Tensor):
                number = node.meta["val"]
                value = self.sizes.value(number, rows.numel()) if self.sizes.varies(number) else value
            elif source in self.pair.sized and self._places[source]:
                value = resized(source, self.sizes, rows.numel())
            else:
                for place in self._places[source]:
                    value = place.kept(value, rows)
            arguments.append(value)
        with torch.no_grad():
            found = fx.Interpreter(self.pair.backward).boxed_run(arguments)  # frees what it has used
        return self._named(found)

    def _tangents(self, gradients: Sequence[Tensor | None], weights: Tensor, rows: Tensor) -> list[Tensor]:
        """Return the weighted gradients of the samples `rows` at the outputs; zeros where none arrives."""
        result = []
        for node, gradient in zip(self.outputs, gradients, strict=True):
            value = self.values[node.name]
            place = self.place(node, "output")
            kept = place.kept(_laid_out_as(value, gradient), rows)
            result.append(place.weighted(kept, weights[rows]))
        return result

    def _named(self, found: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Return the backward graph's results by parameter, each in memory of its own."""
        inputs = [node.name for node in self.pair.forward.graph.nodes if node.op == "placeholder"]
        names = self.pair.parameters or {}
        result: dict[str, Tensor] = {}
        seen = set()
        for place, gradient in zip(inputs, found, strict=True):
            if place in names and gradient is not None:
                if gradient.layout is not torch.strided:
                    msg = (
                        f"backward: 'selective' expects dense gradients, that of {names[place]!r} is not; "
                        "use Embedding(sparse=False), or backward='kept'"
                    )
                    raise ValueError(msg)
                own = gradient.clone() if gradient.data_ptr() in seen else gradient
                seen.add(own.data_ptr())
                name = names[place]
                result[name] = result[name] + own if name in result else own
        return result


def _is_tangent(node: fx.Node) -> bool:
    return node.op == "placeholder" and node.name.startswith("tangents")


def _laid_out_as(value: Tensor, gradient: Tensor | None) -> Tensor:
    """Return the gradient with the strides of its output, which the backward graph was captured for."""
    if gradient is None:
        return torch.zeros_like(value)
    return gradient if gradient.stride() == value.stride() else torch.empty_like(value).copy_(gradient)


def _identity(value: Tensor) -> tuple[Any, ...]:
    return value.data_ptr(), tuple(value.shape), value.stride()
