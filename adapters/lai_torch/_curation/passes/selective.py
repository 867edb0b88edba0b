"""Selective backward: one forward pass of the whole batch, scored, and the backward pass of kept rows.

The model is captured once as a forward and a backward graph with a symbolic batch size. What the
forward saves for the backward has the batch symbol in its shape, so that the kept rows of it, and the
kept count as the symbol, make the backward pass of a smaller batch.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._captured.capture import Captured
from lai_torch._captured.graphs import Layer, pulled_through
from lai_torch._captured.run import Run
from lai_torch._captured.sample_axis import Place
from lai_torch._model.batch import Loss, check_losses, count, tensors
from lai_torch._model.preserve import evaluating
from lai_torch._recording.assemble import assemble
from lai_torch._recording.layer_rules import READ_BY_LAI
from lai_torch._recording.record import record


class Selective:
    """A model's forward and backward graph, run on the whole batch and on the kept rows.

    The first batch is traced eagerly, too: layers of the graph that are not those of a trace are refused.
    The first backward pass that drops a sample is compared with that of every sample, dropped ones
    with weight zero, through the same graph: samples that are coupled, or merged with something else
    on an axis, show there. `selfcheck` compares with plain autograd, which shares nothing.

    Parameters
    ----------
    model, loss
        What to train. The model must compile in one graph and couple no samples.
    last
        Name of the final layer, where several reach the outputs side by side.
    check
        Whether to compare the first backward pass that drops a sample.
    """

    def __init__(self, model: nn.Module, loss: Loss, last: str | None = None, *, check: bool = True) -> None:
        self.model, self.loss, self.last = model, loss, last
        self.proved = not check
        self._captured = Captured(model)
        self._run: Run | None = None
        self._gradients: list[Tensor | None] = []
        self._finite = torch.empty(0)

    @property
    def captures(self) -> int:
        """How many times the model was compiled."""
        return self._captured.captures

    def forward(self, inputs: Any, targets: Any) -> tuple[lai.Trace, Tensor]:
        """Run the whole batch; return the trace that LAI needs, and the losses.

        Raises
        ------
        ValueError
            If samples are coupled, the model does not compile in one graph, or no one layer is the last.
        """
        check_uncoupled(self.model, "selective")
        check_precision(inputs, "selective")
        _check_unhooked(self.model)
        samples = count(inputs, targets)
        if samples < 2:
            msg = f"backward: 'selective' expects at least two samples, got {samples}"
            raise ValueError(msg)
        self._run = None  # what the last batch kept, if it was not trained on
        with torch.enable_grad():
            outputs = self._captured(inputs, samples)
            values = check_losses(self.loss(outputs, targets), samples)
            found = [one for one in _leaves(outputs) if one.requires_grad]
            gradients = torch.autograd.grad(values.sum(), found, allow_unused=True) if found else ()
        self._run = run = self._captured.read(found, self.last)
        self._gradients = [gradients[index] for index in run.order]
        self._finite = torch.isfinite(values.detach())
        return self._trace(run, (inputs, targets)), values.detach()

    def _trace(self, run: Run, batch: tuple[Any, Any]) -> lai.Trace:
        """Return what LAI sees of the layers."""
        pairs = zip(run.outputs, self._gradients, strict=True)
        used = {node: gradient for node, gradient in pairs if gradient is not None}
        *layers, last = run.layers(list(used))
        gradient = pulled_through(run.behind(last, list(used)), last, run.values, used)
        if run.pair.own is None:
            run.pair.own = self._owned([*layers, last], *batch)
        owned = zip(layers, run.pair.own, strict=False)
        records = [self._record(run, layer, None, own=own) for layer, own in owned]
        return lai.Trace([*records, self._record(run, last, gradient, own=True)])

    def _record(self, run: Run, layer: Layer, gradient: Tensor | None, *, own: bool) -> lai.Record:
        """Return what LAI sees of a layer: its input, samples first; Ghost sees it too if `own`."""
        inputs = run.values[layer.inputs.name]
        kind = lai.LayerTrace if own else lai.ReadoutTrace
        weight = layer.names[0] if own else None
        named: dict[str, Any] = {"bias": layer.bias, "weight": weight, "name": layer.name}
        place = run.place(layer.inputs, layer.name)
        if layer.geometry is None:
            outputs = None
            if gradient is not None:
                outputs = run.place(layer.output, layer.name).in_front(gradient, left=layer.left)
            return kind(place.in_front(inputs, left=layer.left), outputs, **named)
        if place != Place(0):
            msg = (
                f"layer {layer.name!r}: expected the samples on the first axis of a convolution's input, "
                "found them merged with another; use backward='kept'"
            )
            raise ValueError(msg)
        if own or gradient is not None:
            record = lai.ConvolutionTrace(inputs, gradient, **layer.geometry, **named)
            return record if gradient is None else record.unfolded()
        return kind(inputs.flatten(2).movedim(1, 2), None, **named)

    def _owned(self, layers: list[Layer], inputs: Any, targets: Any) -> list[bool]:
        """Return which layers Ghost sees too, from an eager trace in eval mode, as summaries are made of.

        Raises
        ------
        ValueError
            If that has other layers.
        """
        with evaluating(self.model):
            recording = record(self.model, self.loss, inputs, targets, every_layer=False, last=self.last)
        uses = [use for use in recording.uses if use.kind in READ_BY_LAI and use is not recording.last]
        uses.append(recording.last)
        expected = [(set(use.weight.names), use.bias is not None) for use in uses]
        if [(set(layer.names), layer.bias) for layer in layers] != expected:
            names = [use.weight.name for use in uses]
            msg = (
                f"backward: 'selective' expects the layers of an eager trace, {names}, in the captured "
                f"graph, found {[layer.names[0] for layer in layers]}; use backward='kept'"
            )
            raise ValueError(msg)
        return [one.weight is not None for one in assemble(recording).layers]

    def backward(self, weights: Tensor) -> None:
        """Add the gradient of `sum_j weights_j loss_j` to `.grad`, from the kept rows alone.

        Raises
        ------
        ValueError
            If the first run differs from the masked gradient: then samples share a row somewhere.
        """
        if self._run is None:
            msg = "backward: expected a forward pass before the backward pass"
            raise ValueError(msg)
        run, kept = self._run, (weights > 0).nonzero().squeeze(1)
        everyone = self._finite.nonzero().squeeze(1)
        masked = None
        if not self.proved and kept.numel() < everyone.numel():  # else both are the same computation
            masked = run.pulled(self._gradients, weights, everyone)
        taken, self._run, self._gradients = self._gradients, None, []
        try:
            gradients = run.pulled(taken, weights, kept, release=True)
        except (IndexError, RuntimeError) as error:
            if masked is None or isinstance(error, torch.OutOfMemoryError):
                raise
            msg = (
                "backward: 'selective' expects a backward pass that runs on the kept rows alone, this one "
                f"does not ({str(error).splitlines()[0]}); use backward='kept'"
            )
            raise ValueError(msg) from error
        if masked is not None and all(bool(torch.isfinite(one).all()) for one in masked.values()):
            _check_equal(gradients, masked)
            self.proved = True
        parameters = dict(self.model.named_parameters())
        for name, gradient in gradients.items():
            before = parameters[name].grad
            parameters[name].grad = gradient if before is None else before + gradient


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


def check_precision(inputs: Any, mode: str) -> None:
    """Raise under autocast: the pass that trains is the one that is scored.

    Raises
    ------
    ValueError
        If autocast is on.
    """
    for kind in {tensor.device.type for tensor in tensors(inputs)}:
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            msg = (
                f"backward: {mode!r} scores the forward pass that it trains on, and scores of one under "
                "autocast lose three digits; leave autocast, or use backward='kept', which scores with it off"
            )
            raise ValueError(msg)


def _check_unhooked(model: nn.Module) -> None:
    """Raise if a parameter has hooks on its gradient: no engine runs that would call them.

    Raises
    ------
    ValueError
        If one has, naming it.
    """
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            msg = (
                f"backward: 'selective' calls no hooks on gradients, parameter {name!r} has one; remove it, "
                "or use backward='kept'"
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


def _leaves(tree: Any) -> list[Tensor]:
    """Return the tensors in what a model returns, each once; objects such as caches are looked into."""
    found: dict[int, Tensor] = {}
    pending, seen = [tree], {id(tree)}
    while pending:
        one = pending.pop()
        if isinstance(one, Tensor):
            found[id(one)] = one
            continue
        parts = list(one) if isinstance(one, list | tuple) else list(getattr(one, "__dict__", {}).values())
        parts += one.values() if isinstance(one, Mapping) else []
        fresh = [part for part in parts if id(part) not in seen and not isinstance(part, nn.Module | type)]
        seen.update(map(id, fresh))
        pending.extend(fresh)
    return list(found.values())
