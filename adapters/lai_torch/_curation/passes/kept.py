"""Two passes: score all samples without a graph, then train on the kept rows."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._curation.passes.base import Forward, Gradient, Pass, nothing
from lai_torch._curation.scorers.base import Batch, Reading, Scorer, chunks
from lai_torch._model.batch import Loss, call, check_auxiliary, check_losses, count, rows
from lai_torch._model.preserve import evaluating
from lai_torch.options import Kept


@dataclass(frozen=True)
class Losses:
    """What is minimised on some rows."""

    losses: Tensor  # `(n,)`, the losses that are scored, too
    # what trains and does not score: `(n,)`, or a single number; None without
    auxiliary: Tensor | None = None

    def total(self, weights: Tensor, share: float = 1.0) -> Tensor:
        """Return the weighted sum over the first rows, one for each weight, and `share` of a single number.

        Rows without a weight, behind the others, count for nothing, but are in the graph.
        """
        size = len(weights)
        terms = [self.losses] if self.auxiliary is None else [self.losses, self.auxiliary]
        parts = []
        for each in terms:
            if not each.ndim:
                parts.append(each * share if share else 0.0 * each.nan_to_num())
                continue
            counted = each if len(each) == size else each[:size]
            parts.append((counted * weights.to(each)).sum())
            if len(each) > size:
                parts.append(0.0 * each[size:].nan_to_num().sum())
        return functools.reduce(torch.add, parts)


class KeptPass(Pass):
    """Scores in eval mode and full precision; its backward pass runs the model again, on the kept rows."""

    def __init__(
        self,
        model: nn.Module,  # model, loss: what is trained
        loss: Loss,
        scorer: Scorer,  # what reads a batch
        chunk: int | None,  # how many samples to read at once; None: the whole batch
        training: Kept,  # the precision in which the kept rows are run
    ) -> None:
        self.model, self.loss, self.scorer, self.chunk = model, loss, scorer, chunk
        self.autocast, self.scaler, self.auxiliary = training.autocast, training.scaler, training.auxiliary

    def forward(self, batch: Batch, summary: Any) -> Forward:
        """Yield the readings one at a time, so that only one is in memory."""
        parts = chunks(batch, self.chunk or count(*batch))
        readings = map(functools.partial(self._read, summary), parts)
        return Forward("kept", readings, functools.partial(self._backward, batch))

    def _read(self, summary: Any, part: Batch) -> Reading:
        with evaluating(self.model):
            return self.scorer.read(part, summary)

    def _backward(
        self, batch: Batch, weights: Tensor, parts: int, restore_buffers: Callable[[], None] = nothing
    ) -> Gradient:
        """Run the kept rows forward and backward.

        Rows whose loss is not finite are dropped, and their weight is spread over the others.
        """
        positive = self.scorer.deferred.rows(weights > 0)
        losses = torch.full_like(weights, torch.nan)
        kept, found = self._finite(batch, positive, losses, restore_buffers)
        used, dropped = weights, positive.numel() - kept.numel()
        if dropped:
            used = torch.zeros_like(weights)
            used[kept] = weights[kept] * (weights[positive].sum() / weights[kept].sum())
        if found is not None:
            total = found.total(used[kept])
            total = total if parts == 1 else total / parts
            (total if self.scaler is None else self.scaler.scale(total)).backward()
        return Gradient(used, losses, kept=kept.numel(), dropped=dropped)

    def _run_rows(self, model: nn.Module, batch: Batch, samples: int) -> "Losses":
        """Run a model forward on rows that are trained on."""
        with self._autocasting():
            outputs = call(model, batch[0])
            losses = check_losses(self.loss(outputs, batch[1]), samples)
            if self.auxiliary is None:
                return Losses(losses)
            return Losses(losses, check_auxiliary(self.auxiliary(outputs, batch[1]), samples))

    def _finite(
        self, batch: Batch, kept: Tensor, losses: Tensor, restore_buffers: Callable[[], None]
    ) -> tuple[Tensor, "Losses | None"]:
        """Run the model on the rows `kept`, once more without those whose loss is not finite."""
        samples = count(*batch)
        for _ in range(2):
            if not kept.numel():
                break
            everyone = kept.numel() == samples
            try:
                part = batch if everyone else rows(batch, kept, samples)
                found = self._run_rows(self.model, part, kept.numel())
            except ValueError as error:  # BatchNorm cannot normalise the one sample that was kept
                if kept.numel() > 1 or everyone or "more than 1 value per channel" not in str(error):
                    raise
                break
            values = found.losses.detach()
            losses[kept] = values.to(losses)
            if self.scorer.deferred.finite(values):
                return kept, found
            kept = kept[torch.isfinite(values)]
            restore_buffers()
        return kept[:0], None

    def _autocasting(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(next(self.model.parameters()).device.type, self.autocast)
