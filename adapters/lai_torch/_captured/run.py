"""One run of a captured model: what it kept, and the backward pass of some of its samples."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from lai_torch._captured.graphs import Layer, find_final_products, is_random, tail
from lai_torch._captured.pair import Pair, Values
from lai_torch._captured.sample_axis import Sizes, compute_from_sizes, sample_axes, take_rows, weigh_rows
from lai_torch._graph.places import Axis
from lai_torch._graph.products import flatten_positions


class Run:
    """What one forward pass of a captured model kept.

    Attributes
    ----------
    order
        Which of `found` each input of the backward graph is the gradient of.
    outputs
        The nodes that compute those.
    """

    def __init__(
        self,
        pair: Pair,  # the graphs
        values: dict[str, Any],  # what the forward computed, by the name of its node
        samples: int,  # how many samples the batch has
        batched: set[int],  # where in memory the inputs that hold them are
        found: Sequence[Tensor],  # the model's differentiable outputs
    ) -> None:
        self.pair, self.values, self.samples = pair, values, samples
        symbols, batch = {}, set()
        for name, axis, symbol in pair.memoise(_symbolic):
            value = values[name]
            symbols[symbol] = int(value) if axis is None else value.shape[axis]
            # the first axis of an input that holds rows: its symbol is the number of samples
            if axis == 0 and value.data_ptr() in batched:
                batch.add(symbol)
        self.sizes = Sizes(symbols, frozenset(batch))
        named = self.sizes.symbols.items()
        self._symbols = tuple(value for _, value in named), self.sizes.batch
        self._others = tuple(value for symbol, value in named if symbol not in self.sizes.batch)
        if self._others not in pair.sample_axes:
            pair.sample_axes[self._others] = sample_axes(pair.forward.graph, self.sizes)
        self._axes = pair.sample_axes[self._others]
        self.order, self.outputs = self._match_gradients(found)

    def _match_gradients(self, found: Sequence[Tensor]) -> tuple[list[int], list[fx.Node]]:
        """Say which of the differentiable outputs each gradient that the backward graph takes is of."""
        where = {_identity(one): index for index, one in enumerate(found)}
        pairs = []
        for node in self.pair.outputs:
            value = self.values.get(node.name)
            if isinstance(value, Tensor) and (index := where.pop(_identity(value), None)) is not None:
                pairs.append((index, node))
        # of outputs that share memory it cannot be told which one a gradient is of
        if where or len(pairs) != len(self.pair.tangents):
            msg = (
                f"backward: 'selective' expects differentiable outputs that share no memory, found "
                f"{len(found)} with {len(self.pair.tangents)} gradients; use backward='kept'"
            )
            raise ValueError(msg)
        return [index for index, _ in pairs], [node for _, node in pairs]

    def sample_axis(self, node: fx.Node, name: str) -> Axis:
        """Return where a layer's input or output holds the samples."""
        found = self._axes[node]
        if len(found) != 1:
            msg = (
                f"layer {name!r}: expected one axis for the samples, got shape "
                f"{tuple(node.meta['val'].shape)}; use backward='kept'"
            )
            raise ValueError(msg)
        return found[0]

    def lay_out(self, node: fx.Node, value: Tensor, layer: Layer) -> Tensor:
        """Return a layer's input or output as `(n, d)`, or as `(n, t, d)` where it has positions."""
        return flatten_positions(self.sample_axis(node, layer.name).move_to_front(value))

    def vjp(
        self,
        gradients: Sequence[Tensor | None],
        weights: Tensor,
        rows: Tensor | None,
        *,
        release: bool = False,
    ) -> dict[str, Tensor]:
        """Return the gradient of the weighted losses of the samples `rows`, by parameter; None: of all.

        `weights` are those of these rows, `gradients` those of the unweighted losses at the outputs. With
        `release`, what was kept is freed as its rows are taken, so that this can be done once.
        """
        tangents = self._tangents(gradients, weights, rows)
        arguments: Values = list(map(self.values.get, self.pair.names))
        # held by the list alone, which the backward graph empties as it runs
        if release:
            self.values = {}
        if rows is not None:
            self._cut(arguments, rows)
        for place, tangent in zip(self.pair.tangents, tangents, strict=True):
            arguments[place] = tangent
        del tangents
        with torch.no_grad():
            found = self.pair.run_backward(arguments)  # frees what it has used
        return self._name_gradients(found)

    def _cut(self, saved: Values, rows: Tensor) -> None:
        """Make of what was saved for the backward graph that of the samples `rows`, which are in order."""
        # A size is that of fewer samples, what is computed from sizes is made again for fewer; of all other
        # tensors the rows are taken on each axis that holds samples (two in a matrix of samples by samples).
        key = self._symbols, rows.numel()
        if key not in self.pair.told:
            numbers = [(place, node.meta["val"]) for place, node in enumerate(self.pair.placeholders)]
            varying = [(place, number) for place, number in numbers if self.sizes.varies(number)]
            found = [(place, self.sizes.value(number, rows.numel())) for place, number in varying]
            self.pair.keep(key, found)
        for place, number in self.pair.told[key]:
            saved[place] = number
        for place, source, axes in self.pair.memoise(_find_batched, self._others):
            if not axes:
                saved[place] = compute_from_sizes(source, self.sizes, rows.numel())
            for axis in axes:
                saved[place] = take_rows(axis, saved[place], rows)

    def _tangents(
        self, gradients: Sequence[Tensor | None], weights: Tensor, rows: Tensor | None
    ) -> list[Tensor]:
        """Return the weighted gradients of the samples `rows` at the outputs; zeros where none arrives."""
        result = []
        if rows is None:
            rows = torch.arange(self.samples, device=weights.device)
        for node, gradient in zip(self.outputs, gradients, strict=True):
            value = self.values[node.name]
            axis = self.sample_axis(node, "output")
            if gradient is None:
                gradient = torch.zeros_like(value)
            # the backward graph was captured for the strides of the output
            elif gradient.stride() != value.stride():
                gradient = torch.empty_like(value).copy_(gradient)
            result.append(weigh_rows(axis, take_rows(axis, gradient, rows), weights))
        return result

    def _name_gradients(self, found: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Return the backward graph's results by parameter, each in memory of its own."""
        names = self.pair.parameters
        result: dict[str, Tensor] = {}
        seen = set()
        for node, gradient in zip(self.pair.inputs, found, strict=True):
            if node.name in names and gradient is not None:
                name = names[node.name]
                if gradient.layout is not torch.strided:
                    msg = (
                        f"backward: 'selective' expects dense gradients, that of {name!r} is not; "
                        "use Embedding(sparse=False), or backward='kept'"
                    )
                    raise ValueError(msg)
                # a graph may return one tensor for two parameters, and `.grad` is written in place
                own = gradient.clone() if gradient.data_ptr() in seen else gradient
                seen.add(own.data_ptr())
                result[name] = result[name] + own if name in result else own
        return result


def _symbolic(pair: Pair) -> list[tuple[str, int | None, Any]]:
    """Return which inputs tell the symbols' values, by the symbols: by name, on which axis, which symbol."""
    found: list[tuple[str, int | None, Any]] = []
    for node in pair.inputs:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            found.append((node.name, None, value.node.expr))
        elif isinstance(value, Tensor):
            lengths: Any = enumerate(value.shape)  # numbers, some of them symbolic
            symbolic = [(axis, one.node.expr) for axis, one in lengths if isinstance(one, torch.SymInt)]
            found += [(node.name, axis, expression) for axis, expression in symbolic if expression.is_Symbol]
    return sorted(found, key=lambda place: str(place[2]))


def _find_batched(pair: Pair, others: tuple[Any, ...]) -> list[tuple[int, fx.Node, Sequence[Axis]]]:
    """Return what is saved of the samples: where, by which node, and where it holds them.

    Of what is computed from sizes alone, nowhere.
    """
    axes = pair.sample_axes[others]
    sources = [(place, pair.nodes.get(node.name)) for place, node in enumerate(pair.placeholders)]
    saved = [(place, node) for place, node in sources if node is not None and axes.get(node)]
    held = {**axes, **dict.fromkeys(pair.sized, ())}
    return [(place, node, held[node]) for place, node in saved]


def order_layers(pair: Pair, outputs: Sequence[fx.Node], name: str | None) -> list[Layer]:
    """Return the layers, last the one that reaches the outputs without passing another, or of that name."""
    reached = [pair.layers[node] for node in find_final_products(outputs, pair.layers)]
    if name is not None:
        reached = [layer for layer in reached if layer.name == name]
    if len(reached) != 1:
        names = [layer.name for layer in reached]
        way_out = "; use backward='kept'"
        if names:
            way_out = f"; pass last={names[0]!r} (or another of them)"
        msg = f"backward: 'selective' expects one final layer, found {len(names)}: {names}{way_out}"
        raise ValueError(msg)
    (last,) = reached
    return [*(layer for layer in pair.layers.values() if layer.output is not last.output), last]


def find_nodes_after(pair: Pair, start: fx.Node, name: str, outputs: Sequence[fx.Node]) -> list[fx.Node]:
    """Return the nodes between the last layer and the outputs, in order, all of them differentiable."""
    found = tail(pair.forward.graph, [start], outputs)
    for node in found:
        # of a custom function the forward graph does not hold the gradient
        custom = any(kind == "autograd.function" for kind, _ in node.meta.get("source_fn_stack") or ())
        if custom or is_random(node):
            what = "no torch.autograd.Function" if custom else "nothing random"
            msg = (
                f"backward: 'selective' expects {what} behind the last layer {name!r}, got {node.target}; "
                "use backward='kept'"
            )
            raise ValueError(msg)
    return found


def _identity(value: Tensor) -> tuple[Any, ...]:
    return value.data_ptr(), tuple(value.shape), value.stride()
