"""The shape of a pass, a forward pass to be scored with its backward pass, and two that run the model itself.

`kept` scores all samples in a pass of its own, then trains on the kept rows; `whole` scores the forward pass
that trains, and goes back through all of it with weights.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._curation.estimators import Scorer, Tracer
from lai_torch._curation.readings import Batch, Reading, chunks
from lai_torch._curation.weigh import Weighed
from lai_torch._graph.prove import are_close
from lai_torch._graph.record import DrawnError, NotFiniteError
from lai_torch._model.batch import call, check_auxiliary, check_losses, rows, tensors
from lai_torch._model.function import losses_of
from lai_torch._model.precision import float8_linear
from lai_torch._model.preserve import preserve, use_eval_mode
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of
from lai_torch.options import KeptOptions


@dataclass(frozen=True)
class Gradient:
    """What was added to `.grad`."""

    name: str  # which pass it is of: `kept`, `selective` or `whole`
    losses: Tensor  # `(n,)`: the losses that the backward pass found; NaN where it did not look
    # what was minimised here, a number; None where no row ran
    objective: Tensor | None = None
    moved: bool = False  # whether rows that ran here may be other processes' own
    used: bool = True  # whether it stayed: what is not finite is taken away again
    updated: bool = False  # whether the optimizer steps with it


Backward = Callable[..., Gradient]
"""Adds the gradient of `sum_j weights_j loss_j / parts` to `.grad`, given what was weighed, and parts.

`parts` is how many batches make the step: `accumulate`. The third argument, a function that restores the
buffers, is called before rows run a second time; without it they stay as the first pass left them.
"""


@dataclass(frozen=True)
class Forward:
    """One batch's forward pass; that of `kept` runs as its readings are taken."""

    # what there is to score, in consecutive parts of the batch; each is there once, so that it is freed
    readings: Iterator[Reading]
    backward: Backward  # the backward pass that goes with it


def check_uncoupled(model: nn.Module, name: str) -> None:
    """Raise if a module normalises over the batch or rounds to float8, naming it."""
    found = find_coupling(model)
    if found is not None:
        msg = (
            f"backward: {name!r} expects a model that couples no samples, BatchNorm {found!r} in "
            "training mode does; use backward='kept', or GroupNorm"
        )
        raise ValueError(msg)
    kind = float8_linear()
    found = None
    if kind is not None:
        found = _find_module(model, lambda one: isinstance(one, kind))
    if found is not None:
        msg = (
            f"backward: {name!r} expects layers that compute in their parameters' type, {found!r} rounds to "
            "float8; use backward='kept', which scores without that rounding and trains with it"
        )
        raise ValueError(msg)


def find_coupling(model: nn.Module) -> str | None:
    """Return the name of a module that normalises over the batch; None if there is none."""
    kind = nn.modules.batchnorm._BatchNorm
    return _find_module(model, lambda one: isinstance(one, kind) and one.training)


def _find_module(model: nn.Module, matches: Callable[[nn.Module], bool]) -> str | None:
    found = next(filter(matches, modules_of(model)), None)
    if found is None:  # as in most steps: the walk that finds names is slow
        return None
    return next(name for name, one in model.named_modules() if one is found)


def acts_alike(tracer: Tracer, batch: Batch) -> bool:
    """Whether a model computes in training mode what it does in eval mode, and draws nothing."""
    model, loss = tracer.model, tracer.loss
    modules = modules_of(model, loss)
    try:
        check_uncoupled(model, "auto")
        check_precision(batch[0], "auto")
        with preserve(model, loss), torch.no_grad():
            streams = Streams(modules)
            losses_of(model, loss, batch)
            drawn = streams.has_moved()
        own = tracer.reader.record(batch).trace
        with use_eval_mode(model):
            still = tracer.reader.record(batch).trace
    except ValueError:  # what is refused of one mode alone
        return False
    arrays = [
        [array for layer in trace.layers for array in layer.arrays().values()] for trace in (own, still)
    ]
    same = len(arrays[0]) == len(arrays[1])
    return same and not drawn and all(are_close(*pair) for pair in zip(*arrays, strict=True))


def check_precision(inputs: Any, name: str) -> None:
    """Raise under autocast: the pass that trains is the one that is scored."""
    for device in {tensor.device.type for tensor in tensors(inputs)}:
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            msg = (
                f"backward: {name!r} scores the forward pass that it trains on, and scores of one under "
                "autocast lose three digits; leave autocast, and use an estimator that asks for it, "
                "lai_torch.LAI(autocast=torch.bfloat16), or backward='kept', which scores with it off"
            )
            raise ValueError(msg)


def weigh_losses(terms: Sequence[Tensor], weights: Tensor, fraction: float = 1.0) -> Tensor:
    """Return the weighted sum over the first rows, one for each weight, and a fraction of a single number.

    The terms are the losses that are scored, `(n,)`, and what trains and does not score, if anything does.
    Rows without a weight, behind the others, count for nothing, but are in the graph.
    """
    size = len(weights)
    parts = []
    for each in terms:
        if not each.ndim:
            parts.append(each * fraction if fraction else 0.0 * each.nan_to_num())
            continue
        counted = each if len(each) == size else each[:size]
        parts.append((counted * weights.to(each)).sum())
        if len(each) > size:
            parts.append(0.0 * each[size:].nan_to_num().sum())
    return functools.reduce(torch.add, parts)


class KeptPass:
    """Scores in eval mode and full precision; its backward pass runs the model again, on the kept rows."""

    def __init__(
        self,
        scorer: Scorer,  # what reads a batch; its model is trained
        training: KeptOptions,  # the precision in which the kept rows are run
    ) -> None:
        self.model, self.loss, self.scorer, self.training = scorer.model, scorer.loss, scorer, training

    def forward(self, batch: Batch, side: Any) -> Forward:
        """Return the readings unread: the model runs as each is taken, so that only one is in memory."""
        parts = [batch] if self.scorer.chunk is None else chunks(batch, self.scorer.chunk)
        readings = map(functools.partial(self._read, side), parts)
        return Forward(readings, functools.partial(self.backward, batch))

    def _read(self, side: Any, part: Batch) -> Reading:
        with use_eval_mode(self.model):
            return self.scorer.read(part, side)

    def backward(self, batch: Batch, weighed: Weighed, parts: int, *_: Any) -> Gradient:
        """Run the kept rows forward and backward."""
        samples, index = len(weighed.weights), weighed.rows
        losses = torch.full_like(weighed.weights, torch.nan)
        if not len(weighed.shares):
            return Gradient("kept", losses)
        try:
            part = batch if index is None else rows(batch, index, samples)
            found = self._run_rows(self.model, part, len(weighed.shares))
        except ValueError as error:  # BatchNorm cannot normalise the one sample that was kept
            if len(weighed.shares) > 1 or index is None or "more than 1 value per channel" not in str(error):
                raise
            return Gradient("kept", losses)
        total = weigh_losses(found, weighed.shares)
        # a batch of an accumulated step counts with its part
        if parts != 1:
            total = total / parts
        self._backpropagate(total)
        # a policy's weights may be of fewer digits
        losses = losses.to(torch.promote_types(losses.dtype, found[0].dtype))
        values = found[0].detach().to(losses)
        losses = values if index is None else losses.index_copy_(0, index, values)
        return Gradient("kept", losses, total.detach())

    def _backpropagate(self, total: Tensor) -> None:
        if self.training.scaler is not None:
            total = self.training.scaler.scale(total)
        total.backward()

    def _run_rows(self, model: nn.Module, batch: Batch, samples: int) -> list[Tensor]:
        cast: AbstractContextManager[Any] = nullcontext()
        if self.training.autocast is not None:
            cast = torch.autocast(next(self.model.parameters()).device.type, self.training.autocast)
        with cast:
            outputs = call(model, batch[0])
            losses = check_losses(self.loss(outputs, batch[1]), samples)
            if self.training.auxiliary is None:
                return [losses]
            return [losses, check_auxiliary(self.training.auxiliary(outputs, batch[1]), samples)]


class WholePass:
    """One forward pass in the model's own mode, and a weighted backward pass of the full batch."""

    def __init__(
        self,
        tracer: Tracer,  # reads the trace off the forward pass of its model, which must couple no samples
        # the pass that trains on the other rows where a loss is not finite: its row would spoil the gradient
        kept: KeptPass,
    ) -> None:
        self.tracer, self.kept = tracer, kept

    def forward(self, batch: Batch, side: Any) -> Forward:
        """Run the whole batch; the trace is that of the pass that is trained on."""
        check_uncoupled(self.tracer.model, "whole")
        check_precision(batch[0], "whole")
        try:
            trace, losses = self.tracer.trace(batch, live=True)
        except DrawnError:
            return self.kept.forward(batch, side)
        except NotFiniteError as error:
            losses, trace = error.losses, None
        if trace is None or (self.tracer.every_layer and not bool(torch.isfinite(losses).all())):
            found = self.kept.forward(batch, side)
            # Whether LAI proves this batch depends on earlier ones, and is not to decide whether a step is
            # skipped.
            if not self.tracer.every_layer:
                found = replace(found, backward=functools.partial(self.backward, batch, losses))
            return found
        readings = self._read(trace, losses.detach(), side)
        return Forward(readings, functools.partial(self.backward, batch, losses))

    def _read(self, trace: Any, losses: Tensor, side: Any) -> Iterator[Reading]:
        """Yield the reading; one unlike the side has the pass run again."""
        if self.tracer.remakes:
            self.tracer.check_alike(trace, side)
        yield Reading(losses, trace)

    def backward(
        self,
        batch: Batch,
        losses: Tensor,
        weighed: Weighed,
        parts: int,
        restore_buffers: Callable[[], None] = lambda: None,
    ) -> Gradient:
        """Go back through the whole batch, weighted."""
        if weighed.dropped:  # zero times what is not finite is not zero
            restore_buffers()
            return self.kept.backward(batch, weighed, parts)
        if not len(weighed.shares):
            return Gradient("whole", losses.detach())
        total = (losses * (weighed.weights / parts).to(losses)).sum()
        total.backward()
        return Gradient("whole", losses.detach(), total.detach())
