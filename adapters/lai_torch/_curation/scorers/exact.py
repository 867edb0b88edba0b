"""Scorers along the exact validation gradient: no trace, any architecture."""

from typing import Any

import torch
from torch import nn

from lai_torch._curation.scorers.base import Batch, Scored, Scorer, nothing_finite
from lai_torch._exact.directional import along
from lai_torch._model.batch import Loss, count
from lai_torch._model.functional import Function, Point, gradient


class ExactScorer(Scorer):
    """Exact scores along the validation gradient; the summary is that gradient."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__(model, loss, "exact", None)
        self.function = Function(model, loss)

    def summarize(self, validation: Batch, size: int) -> Point:
        """Return the gradient of the summed validation loss."""
        return self.gradient_at(self.function.point(), validation, size)

    def score_itself(self, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a batch along its own summed gradient; no sample can be left out of that.

        Raises
        ------
        ValueError
            If one is to be.
        """
        if exclude_self:
            msg = f"exclude_self: estimator {self.estimator!r} cannot leave a sample out of its own score"
            raise ValueError(msg)
        return self.score(self.summarize(batch, count(*batch)), batch)

    def gradient_at(self, point: Point, validation: Batch, size: int) -> Point:
        """Return the gradient of the summed validation loss at `point`.

        Raises
        ------
        ValueError
            If no validation sample has a finite loss.
        """
        total: Point | None = None
        for chunk in self.chunks(validation, size):
            if (finite := self.finite(chunk)) is not None:
                one = gradient(self.function, point, finite, reduction="sum")
                total = one if total is None else {name: total[name] + one[name] for name in one}
        if total is None:
            raise nothing_finite()
        return total

    def score(self, summary: Point, batch: Batch) -> Scored:
        """Score along the gradient."""
        found, losses, (method, reason) = along(self.function, self.function.point(), summary, batch)
        scores = torch.where(torch.isfinite(losses), found, torch.nan)
        return Scored(scores, losses, method=method, reason=reason)


class MidpointScorer(ExactScorer):
    """Exact scores along the validation gradient after half of the tentative SGD step."""

    def __init__(self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model, loss)
        self.estimator, self.optimizer = "midpoint", optimizer

    def summarize(self, validation: Batch, size: int) -> Any:
        """Keep the set: its gradient is taken at a point that depends on the batch.

        Raises
        ------
        ValueError
            If no validation sample has a finite loss.
        """
        if all(self.finite(chunk) is None for chunk in self.chunks(validation, size)):
            raise nothing_finite()
        return validation, size

    def score(self, summary: Any, batch: Batch) -> Scored:
        """Score along the gradient at the middle of the batch's step, each group at its learning rate."""
        validation, size = summary
        start, finite = self.function.point(), self.finite(batch)
        middle = start
        if finite is not None:
            step = gradient(self.function, start, finite, reduction="mean")
            names = {id(parameter): name for name, parameter in self.model.named_parameters()}
            rates = {
                names[id(parameter)]: float(group["lr"])
                for group in self.optimizer.param_groups
                for parameter in group["params"]
                if id(parameter) in names
            }
            middle = {name: value - 0.5 * rates.get(name, 0.0) * step[name] for name, value in start.items()}
        return super().score(self.gradient_at(middle, validation, size), batch)
