"""Selective backward: one forward pass of the whole batch, scored, and the backward pass of kept rows.

The model is captured once as a forward and a backward graph with a symbolic batch size. What the
forward saves for the backward has the batch symbol in its shape, so that the kept rows of it, and the
kept count as the symbol, make the backward pass of a smaller batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

import lai_core as lai
from lai_torch._batch import Loss, call, check_losses, count
from lai_torch._graphs import Layer, found_layers, kept_rows, product

Values = list[Any]


@dataclass(frozen=True)
class _Graphs:
    """The captured graphs, which inputs of the forward are parameters, and which nodes are layers."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    parameters: dict[str, str]
    layers: list["Layer"]


class Selective:
    """A model's forward and backward graph, run on the whole batch and on the kept rows.

    Parameters
    ----------
    model, loss
        What to train. The model must compile in one graph and couple no samples.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss
        self._graphs: _Graphs | None = None
        self._pair: tuple[fx.GraphModule, fx.GraphModule] | None = None
        self._saved: dict[str, Any] = {}
        self._given: dict[str, Any] = {}
        self._gradient = self._finite = torch.empty(0)
        self._compiled = _compiled(model, self._partition, self._run)
        self.proved = False

    def forward(self, inputs: Any, targets: Any) -> tuple[lai.Trace, Tensor]:
        """Run the whole batch; return the trace that LAI needs, and the losses.

        Raises
        ------
        ValueError
            If samples are coupled, the model does not compile in one graph, or its output is not a layer's.
        """
        check_uncoupled(self.model, "selective")
        samples = count(inputs, targets)
        if samples < 2:
            msg = f"backward: 'selective' expects at least two samples, got {samples}"
            raise ValueError(msg)
        with torch.enable_grad():
            outputs = self._compiled(_with_symbolic_batch(inputs, samples))
            values = check_losses(self.loss(outputs, targets), samples)
        found = [tensor for tensor in _leaves(outputs) if tensor.requires_grad]
        if len(found) != 1:
            msg = f"backward: 'selective' expects a model with one differentiable output, got {len(found)}"
            raise ValueError(msg)
        (gradient,) = torch.autograd.grad(values.sum(), found)
        self._gradient = gradient.detach()
        self._finite = torch.isfinite(values.detach())
        *layers, last = self._analysed().layers
        records = [self._record(layer, None, samples) for layer in layers]
        return lai.Trace([*records, self._record(last, self._gradient, samples)]), values.detach()

    def _record(self, layer: Layer, gradient: Tensor | None, samples: int) -> lai.Record:
        """Return what LAI sees of a layer: its input, samples first."""
        inputs = self._saved[layer.inputs.name]
        trains = self.model.get_parameter(layer.weight).requires_grad or gradient is not None
        named: dict[str, Any] = {
            "bias": layer.bias,
            "weight": layer.weight if trains else None,
            "name": layer.name,
        }
        if layer.geometry is not None and not trains:
            return lai.ReadoutTrace(inputs.flatten(2).movedim(1, 2), None, **named)
        if layer.geometry is not None:
            return lai.ConvolutionTrace(inputs, None, **layer.geometry, **named)
        if inputs.shape[0] != samples:
            inputs = inputs.reshape(samples, -1, inputs.shape[-1])
        return (lai.LayerTrace if trains else lai.ReadoutTrace)(inputs, gradient, **named)

    def backward(self, weights: Tensor) -> None:
        """Set `.grad` to the gradient of `sum_j weights_j loss_j`, from the kept rows alone.

        Raises
        ------
        ValueError
            If the first run differs from the masked gradient: then samples share a row somewhere.
        """
        graphs = self._analysed()
        kept = (weights > 0).nonzero().squeeze(1)
        scaled = self._gradient * weights.to(self._gradient).reshape(-1, *[1] * (self._gradient.ndim - 1))
        gradients = self._pulled(graphs, scaled[kept], kept, weights.shape[0])
        everyone = self._finite.nonzero().squeeze(1)
        if not self.proved and kept.numel() < everyone.numel():  # else both are the same computation
            masked = self._pulled(graphs, scaled[everyone], everyone, weights.shape[0])
            _check_equal(gradients, masked)
            self.proved = True
        parameters = dict(self.model.named_parameters())
        for name, gradient in gradients.items():
            parameters[name].grad = gradient
        self._saved = {}

    def _partition(self, joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        """Split the joint graph and keep both halves."""
        from torch._functorch.partitioners import default_partition

        self._pair = default_partition(joint, inputs, **options)
        self._graphs = None
        return self._pair

    def _run(self, graph: fx.GraphModule, example: Any) -> Callable[[Values], Any]:
        """Compile the forward graph to one that also keeps what it computes for us."""
        nodes = list(graph.graph.nodes)
        (result,) = (node for node in nodes if node.op == "output")
        layers = [found.inputs for node in nodes if (found := product(node)) is not None]
        names = [node.name for node in layers]
        env: dict[fx.Node, fx.Node] = {}
        widened = fx.Graph()
        copied = widened.graph_copy(graph.graph, env)
        widened.output((copied, tuple(env[node] for node in layers)))
        module = fx.GraphModule(graph, widened)
        places = [node for node in nodes if node.op == "placeholder"]

        def run(arguments: Values) -> Any:
            given = list(arguments)
            arguments.clear()
            outputs, inputs = module(*given)
            self._saved = dict(zip(names, inputs, strict=True))
            self._saved |= {
                node.name: value
                for node, value in zip(result.args[0], outputs, strict=True)
                if node is not None
            }
            self._given = {node.name: value for node, value in zip(places, given, strict=True)}
            return outputs

        run._boxed_call = True  # type: ignore[attr-defined]  # takes its arguments as one list
        return run

    def _analysed(self) -> _Graphs:
        """Read off the graphs which inputs are parameters and which nodes are layers."""
        if self._graphs is None:
            if self._pair is None:
                msg = "backward: expected a forward pass before the backward pass"
                raise ValueError(msg)
            forward, backward = self._pair
            known = {p.data_ptr(): name for name, p in self.model.named_parameters()}
            parameters = {
                node: known[value.data_ptr()]
                for node, value in self._given.items()
                if isinstance(value, Tensor) and value.data_ptr() in known
            }
            layers = found_layers(forward.graph, parameters)
            self._graphs = _Graphs(forward, backward, parameters, layers)
        return self._graphs

    def _pulled(self, graphs: _Graphs, tangent: Tensor, kept: Tensor, samples: int) -> dict[str, Tensor]:
        """Run the backward graph on the rows `kept` of what was saved."""
        arguments: Values = []
        for node in graphs.backward.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name.startswith("tangents"):
                arguments.append(tangent)
            else:
                value = self._saved[node.name]
                arguments.append(kept_rows(value, node.meta["val"], kept, samples))
        with torch.no_grad():
            found = graphs.backward(*arguments)
        places = [node.name for node in graphs.forward.graph.nodes if node.op == "placeholder"]
        return {
            graphs.parameters[place]: gradient
            for place, gradient in zip(places, found, strict=True)
            if place in graphs.parameters and gradient is not None
        }


def _compiled(model: nn.Module, partition: Any, run: Any) -> Callable[[Any], Any]:
    """Return the model as a function that dynamo captures whole, to be split by `partition`."""
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(
        fw_compiler=run,
        bw_compiler=_never_called,
        partition_fn=partition,
    )
    captured = torch.compile(lambda inputs: call(model, inputs), backend=backend, fullgraph=True)

    def run_captured(inputs: Any) -> Any:
        try:
            return captured(inputs)
        except torch._dynamo.exc.TorchDynamoException as error:
            msg = (
                "backward: 'selective' expects a model that compiles in one graph with a free batch size, "
                f"this one does not ({str(error).splitlines()[0]}); use backward='kept'"
            )
            raise ValueError(msg) from error

    return run_captured


def _never_called(graph: fx.GraphModule, example: Any) -> Any:
    """Stand in for the compiled backward: `Selective.backward` runs the graph itself."""
    return graph.forward


def _with_symbolic_batch(tree: Any, samples: int) -> Any:
    """Return aliases of the inputs whose first axis is declared free."""
    if isinstance(tree, Tensor):
        alias = tree.detach()
        if tree.ndim and tree.shape[0] == samples:
            torch._dynamo.mark_dynamic(alias, 0)
        return alias
    if isinstance(tree, Mapping):
        return {key: _with_symbolic_batch(value, samples) for key, value in tree.items()}
    return tuple(_with_symbolic_batch(part, samples) for part in tree) if isinstance(tree, tuple) else tree


def check_uncoupled(model: nn.Module, mode: str) -> None:
    """Raise if a module normalises over the batch.

    Raises
    ------
    ValueError
        If one does, naming it.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            msg = (
                f"backward: {mode!r} expects a model that couples no samples, BatchNorm {name!r} in "
                "training mode does; use backward='kept', or GroupNorm"
            )
            raise ValueError(msg)


def _check_equal(gradients: dict[str, Tensor], masked: dict[str, Tensor]) -> None:
    """Raise unless the gradient from the kept rows is the masked gradient.

    Raises
    ------
    ValueError
        If it differs by more than half the digits.
    """
    largest = max(float(expected.abs().max()) for expected in masked.values())
    for name, expected in masked.items():
        tolerance = torch.finfo(expected.dtype).eps ** 0.5 * largest
        if not bool((gradients[name] - expected).abs().max() <= tolerance):
            msg = (
                f"backward: the selective gradient of {name!r} differs from the masked one: samples are "
                "coupled, or share an axis with something else; use backward='kept'"
            )
            raise ValueError(msg)


def _leaves(outputs: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
