"""Selective backward: one forward pass of the whole batch, scored, and the backward pass of kept rows.

The model is captured once as a forward and a backward graph with a symbolic batch size. What the
forward saves for the backward has the batch symbol in its shape, so that the kept rows of it, and the
kept count as the symbol, make the backward pass of a smaller batch.
"""

import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import Block, sums_agree
from lai_torch._captured.capture import Captured
from lai_torch._captured.graphs import Layer, vjp_through
from lai_torch._captured.pair import coarsest
from lai_torch._captured.run import Run, find_nodes_after, order_layers
from lai_torch._captured.sample_axis import IN_FRONT
from lai_torch._curation.estimators import Tracer
from lai_torch._curation.passes.base import (
    Forward,
    Gradient,
    KeptPass,
    check_precision,
    check_uncoupled,
)
from lai_torch._curation.readings import Batch, Reading
from lai_torch._curation.weigh import Weighed
from lai_torch._exact.directional import check_reads_outputs
from lai_torch._graph.prove import draw_weights, norm
from lai_torch._graph.record import Reader
from lai_torch._model.batch import check_losses, count
from lai_torch._model.preserve import use_eval_mode
from lai_torch._model.valid import Positions
from lai_torch._model.walk import list_parameters

Given = Sequence[Tensor | None]
"""Gradients with respect to the model's outputs."""


class SelectivePass:
    """A model's forward and backward graph, run on the whole batch and on the kept rows.

    Batches 1, 2, 4, 8, ... of a graph are proved. An eager trace proves that no sample's loss moves with the
    others; layers of the graph that are not those of the trace are refused. And a gradient from every second
    row is compared with that of every row, the others with weight zero, through the same graph: samples that
    are merged with something else on an axis show there.

    Attributes
    ----------
    captured
        The captured model.
    """

    def __init__(
        self,
        # has model and loss, names the final layer, finds the positions that count, and says in which type
        # the model computes. It must compile in one graph and couple no samples.
        tracer: Tracer,
        kept: KeptPass,  # the pass to take for a batch of one
    ) -> None:
        self.model, self.loss, self.kept = tracer.model, tracer.loss, kept
        self.last, self.masks = tracer.last, tracer.masks
        self.captured = Captured(tracer.model, tracer.autocast)

    def forward(self, batch: Batch, side: Any) -> Forward:
        """Run the whole batch, and keep of it what the trace and the backward pass need."""
        check_uncoupled(self.model, "selective")
        check_precision(batch[0], "selective")
        # no engine runs that would call hooks on gradients
        for name, parameter in list_parameters(self.model).items():
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                msg = (
                    f"backward: 'selective' calls no hooks on gradients, parameter {name!r} has one; remove "
                    "it, or use backward='kept'"
                )
                raise ValueError(msg)
        samples = count(*batch)
        if samples < 2:  # torch specialises on size 1
            return self.kept.forward(batch, side)
        with torch.enable_grad():
            outputs = self.captured(batch[0], samples)
            losses = check_losses(self.loss(outputs, batch[1]), samples)
            found = [one for one in _leaves(outputs) if one.requires_grad]
            check_reads_outputs(self.model, self.loss, losses, found)
            run = self.captured.read(found)
            run.pair.calls += 1
            if not run.pair.calls & (run.pair.calls - 1):
                run.pair.own = None
            valid = self.masks(self.model, batch[0], samples)
            gradients = torch.autograd.grad(losses, found, torch.ones_like(losses), allow_unused=True)
        losses = losses.detach()
        proves = run.pair.own is None
        ordered = [gradients[index] for index in run.order]
        trace = self._trace(run, ordered, valid, batch)
        if proves:
            _check_rows(run, ordered, losses)
        reading = Reading(losses, trace)
        return Forward(iter((reading,)), functools.partial(self._backward, run, ordered, losses))

    def _trace(self, run: Run, gradients: Given, valid: Positions, batch: Batch) -> lai.Trace:
        """Return what LAI sees of the layers."""
        pairs = zip(run.outputs, gradients, strict=True)
        used = {node: gradient for node, gradient in pairs if gradient is not None}
        *layers, last = run.pair.memoise(order_layers, tuple(used), self.last)
        # it takes an eager trace of the batch, and holds for all batches of these graphs
        if run.pair.own is None:
            run.pair.own = self._find_owned([*layers, last], batch)
        *others, final = run.pair.own
        records = [
            self._record(run, layer, None, valid, weight=one[0], bias=one[1])
            for layer, one in zip(layers, others, strict=True)
            if one is not None
        ]
        key, bias = final or (last.names[0], False)
        after = run.pair.memoise(find_nodes_after, last.output, last.name, tuple(used))
        gradient = vjp_through(after, last, run.values, used)
        record: Any = self._record(run, last, gradient, valid, weight=key, bias=bias)
        # a frozen last layer is recorded as the graph's reader does: its output gradients alone
        if final is None:
            rows = record.output_gradients
            record = lai.ReadoutTrace(rows.new_zeros(*rows.shape[:-1], 1), rows, name=record.name)
        return lai.Trace([*records, record])

    def _record(
        self,
        run: Run,
        layer: Layer,
        gradient: Tensor | None,
        valid: Positions,
        *,
        weight: Hashable,
        bias: bool,
    ) -> lai.Record:
        """Return what LAI sees of a layer: its input, samples first; Ghost sees it too by its `weight`."""
        inputs = run.values[layer.inputs.name]
        record_type: Any = lai.ReadoutTrace
        named: dict[str, Any] = {"bias": bias, "weight": weight, "name": layer.name}
        if weight is not None:
            record_type = lai.LayerTrace
        if layer.geometry is None:
            outputs = None
            if gradient is not None:
                outputs = run.lay_out(layer.output, gradient, layer)
            rows = record_type(run.lay_out(layer.inputs, inputs, layer), outputs, **named)
            for mask in valid:
                rows = rows.masked(mask.to(inputs.device))
            return rows
        if run.sample_axis(layer.inputs, layer.name) != IN_FRONT:
            msg = (
                f"layer {layer.name!r}: expected the samples on the first axis of a convolution's input, "
                "found them merged with another; use backward='kept'"
            )
            raise ValueError(msg)
        if weight is not None or gradient is not None:
            record = lai.ConvolutionTrace(inputs, gradient, **layer.geometry, **named)
            return record if gradient is None else record.unfolded()
        return record_type(inputs.flatten(2).movedim(1, 2), None, **named)

    def _find_owned(self, layers: list[Layer], batch: Batch) -> list[tuple[Hashable, bool] | None]:
        """Return of each layer Ghost's key, if any, and whether its bias trains; None if LAI reads none.

        It is compared with an eager trace in eval mode, as summaries are made of.
        """
        with use_eval_mode(self.model):
            reader = Reader(self.model, self.loss, every=False, last=self.last, valid=self.masks)
            readouts = [one for one in reader.record(batch).readouts if one.layer.source is not None]
        trains = {name for name, one in list_parameters(self.model).items() if one.requires_grad}
        found: list[tuple[Hashable, bool] | None] = []
        expected = list(readouts)
        for layer in layers:
            training = trains.intersection(layer.names)
            source = expected[0].layer.source if expected else None
            # what is frozen has no part in scores, nor has a product that the eager trace left out; those
            # that it read come in the same order
            if not training or source is None or not training <= set(source.names):
                found.append(None)
                continue
            record: Any = expected.pop(0).record
            found.append((record.weight, bool(record.bias)))
        if expected:
            msg = (
                "backward: 'selective' expects the layers of an eager trace, "
                f"{[one.layer.name for one in readouts]}, in the captured graph, found "
                f"{[layer.names[0] for layer in layers]}; use backward='kept'"
            )
            raise ValueError(msg)
        return found

    def _backward(
        self, run: Run, gradients: Given, losses: Tensor, weighed: Weighed, parts: int, *_: Any
    ) -> Gradient:
        """Run the backward graph on the kept rows."""
        shares, index = weighed.shares, weighed.rows
        if not len(shares):
            return Gradient("selective", losses)
        found = _vjp(run, gradients, shares if parts == 1 else shares / parts, index, release=True)
        parameters = list_parameters(self.model)
        for name, gradient in found.items():
            before = parameters[name].grad
            parameters[name].grad = gradient if before is None else before + gradient
        kept = losses if index is None else losses.index_select(0, index)
        return Gradient("selective", losses, torch.dot(kept, shares.to(kept)))


def _vjp(
    run: Run, gradients: Given, weights: Tensor, rows: Tensor | None, **options: bool
) -> dict[str, Tensor]:
    """Return the gradient of the weighted losses of some rows; None: all."""
    try:
        return run.vjp(gradients, weights, rows, **options)
    # memory says nothing about the rows
    except torch.OutOfMemoryError:
        raise
    except (IndexError, RuntimeError) as error:
        msg = (
            "backward: 'selective' expects a backward pass that runs on the kept rows alone, this one "
            f"does not ({str(error).splitlines()[0]}); use backward='kept'"
        )
        raise ValueError(msg) from error


def _check_rows(run: Run, gradients: Given, losses: Tensor) -> None:
    """Raise unless the gradient from every second row is the masked one, but for the roundings of a sum.

    With `draw_weights`, as the step's own gradient may nearly cancel. An error of 1% in one sample is seen,
    but not in bfloat16, whose bound is 6% of the root of the samples' sum of squares.
    """
    everyone = torch.isfinite(losses).nonzero().squeeze(1)
    rows = everyone[1::2]
    # with one finite sample there is nothing to leave out
    if not rows.numel():
        return
    signed = draw_weights(losses, torch.zeros_like(losses).index_fill_(0, rows, 1.0) > 0)
    found = _vjp(run, gradients, signed[rows], rows)
    masked = _vjp(run, gradients, signed[everyone], everyone if len(everyone) < len(losses) else None)
    precision, blocks = run.pair.memoise(coarsest), []
    for name, expected in masked.items():
        eps = max(precision, torch.finfo(expected.dtype).eps)
        blocks.append(Block(norm(found[name] - expected), norm(expected), eps))
    # of sums that one sample's infinite gradient spoils nothing is told
    agreed = sums_agree(blocks, float(signed.double().square().sum()))
    for name in (name for name, agrees in zip(masked, agreed, strict=True) if not agrees):
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
        if isinstance(one, Mapping):
            parts += one.values()
        fresh = [part for part in parts if id(part) not in seen and not isinstance(part, nn.Module | type)]
        seen.update(map(id, fresh))
        pending.extend(fresh)
    return list(found.values())
