"""Scorers along the exact validation gradient: no trace, any architecture."""

from typing import Any

import torch
from torch import nn

from lai_torch._curation.scorers.base import Batch, Itself, Reading, Scored, Scorer, chunks, nothing_finite
from lai_torch._curation.state import CuratorState
from lai_torch._exact.optimizer_step import check_optimizer, stepped
from lai_torch._exact.prover import Prover
from lai_torch._model.batch import Loss, count, rows
from lai_torch._model.function import Function, Point, finite_gradient


class ExactScorer(Scorer):
    """Exact scores along the validation gradient; the summary is that gradient."""

    def __init__(self, model: nn.Module, loss: Loss, method: str | None = None) -> None:
        super().__init__(model, loss)
        self.function = Function(model, loss)
        self.prover = Prover(self.function, method)

    def summary_of(self, validation: Batch, size: int, seed: int | None = None) -> Point:
        """Return the gradient of the summed validation loss.

        Raises
        ------
        ValueError
            If no validation sample has a finite loss.
        """
        total: Point | None = None
        for chunk in chunks(validation, size):
            if (one := finite_gradient(self.function, chunk, reduction="sum")) is not None:
                total = one if total is None else {name: total[name] + one[name] for name in one}
        if total is None:
            raise nothing_finite()
        return total

    def finite(self, batch: Batch) -> Batch | None:
        """Return the rows whose loss is finite; None if there are none."""
        with self.function.preserved():
            kept = torch.isfinite(self.function(batch)).nonzero().squeeze(1)
        samples = count(*batch)
        return None if not kept.numel() else batch if kept.numel() == samples else rows(batch, kept, samples)

    def fits(self, summary: Any) -> bool:
        """Say whether a summary is of the parameters that train now."""
        return summary.keys() == self.function.parameters().keys()

    def read(self, batch: Batch, summary: Point | Itself) -> Reading:
        """Return the directional derivatives along the gradient; its own, where a batch scores itself."""
        direction = self.summary_of(batch, count(*batch)) if isinstance(summary, Itself) else summary
        found = self.prover(direction, batch)
        return Reading(found.losses, found)

    def score_part(self, state: CuratorState, summary: Any, reading: Reading) -> Scored:
        """Return the derivatives."""
        found = reading.seen
        return Scored(found.scores, found.losses, method=found.method, reason=found.reason)


class MidpointScorer(ExactScorer):
    """Exact scores along the validation gradient after a step on half of the batch's gradient.

    The step is that of SGD at the optimizer's learning rates, or the optimizer's own.
    """

    def __init__(self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, of: str) -> None:
        super().__init__(model, loss)
        if of == "optimizer":
            check_optimizer(optimizer)
        self.optimizer, self.own_step = optimizer, of == "optimizer"

    def summary_of(self, validation: Batch, size: int, seed: int | None = None) -> Any:
        """Keep the set: its gradient is taken at a point that depends on the batch.

        Raises
        ------
        ValueError
            If no validation sample has a finite loss.
        """
        if all(self.finite(chunk) is None for chunk in chunks(validation, size)):
            raise nothing_finite()
        return validation, size

    def read(self, batch: Batch, summary: Any) -> Reading:
        """Return the derivatives at the middle of the batch's step, each group at its learning rate."""
        validation, size = (batch, count(*batch)) if isinstance(summary, Itself) else summary
        middle, vjp = self.function.point(), None
        step = finite_gradient(self.function, batch, reduction="mean", role="inputs")
        if step is not None:
            half = {name: 0.5 * part for name, part in step.items()}
            if self.own_step:
                middle, vjp = stepped(self.function, middle, half, self.optimizer, None)
            else:
                middle = self._descended(middle, half)
        with self.function.at(middle):
            target = super().summary_of(validation, size)
        return super().read(batch, target if vjp is None else vjp(target))

    def _descended(self, point: Point, step: Point) -> Point:
        """Return the parameters after a step of SGD, each group at its learning rate."""
        rates = {
            id(parameter): float(group["lr"])
            for group in self.optimizer.param_groups
            for parameter in group["params"]
        }
        parameters = self.function.parameters()
        return {
            name: value - rates.get(id(parameters[name]), 0.0) * step[name] for name, value in point.items()
        }

    def fits(self, summary: Any) -> bool:
        """Say that a set suits any parameters."""
        del summary
        return True
