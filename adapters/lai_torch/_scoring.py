"""The estimators as the curator uses them: sum a validation set up, score a batch against it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._along import along
from lai_torch._assemble import assemble
from lai_torch._batch import Loss, call, check_losses, count, rows
from lai_torch._functional import Function, Point, gradient
from lai_torch._layout import Layout
from lai_torch._preserve import preserved
from lai_torch._record import record
from lai_torch._recorder import Shortcut
from lai_torch.trace import check_explained

TRACED = ("ghost", "lai", "lli", "preconditioned_lai", "calibrated_lai")
ESTIMATORS = (*TRACED, "exact", "midpoint")
Batch = tuple[Any, Any]


@dataclass(frozen=True)
class Scored:
    """Scores and losses of a batch, `(n,)`, how positions were read, calibrated weights, the way taken."""

    scores: Tensor
    losses: Tensor
    positions: str | None
    layer_weights: Tensor | None = None
    backward: str = "kept"


class Scorer(ABC):
    """One estimator on one model."""

    def __init__(self, model: nn.Module, loss: Loss, estimator: str, positions: str | None) -> None:
        self.model, self.loss, self.estimator, self.positions = model, loss, estimator, positions

    @abstractmethod
    def summarize(self, validation: Batch, size: int) -> Any:
        """Sum a validation set up, at most `size` rows at a time, without what is not finite."""

    @abstractmethod
    def score(self, summary: Any, batch: Batch) -> Scored:
        """Score every sample of a batch; NaN where it is not finite."""

    def finite(self, batch: Batch) -> Batch | None:
        """Return the rows whose loss is finite; None if there are none."""
        samples = count(*batch)
        with preserved(self.model), torch.no_grad():
            losses = check_losses(self.loss(call(self.model, batch[0]), batch[1]), samples)
        kept = torch.isfinite(losses).nonzero().squeeze(1)
        return None if not kept.numel() else batch if kept.numel() == samples else rows(batch, kept, samples)

    def chunks(self, batch: Batch, size: int) -> Iterator[Batch]:
        """Cut a batch into consecutive parts of at most `size` rows."""
        samples = count(*batch)
        for start in range(0, samples, size):
            yield rows(batch, slice(start, min(start + size, samples)), samples)


def nothing_finite() -> ValueError:
    """Build the error of a validation set without a single finite loss."""
    return ValueError("validation: expected at least one sample with a finite loss, got none")


class TraceScorer(Scorer):
    """Ghost, LAI, LLI and preconditioned LAI, from traces."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        estimator: str,
        positions: str | None,
        last: str | None = None,
    ) -> None:
        super().__init__(model, loss, estimator, positions)
        self.last = last
        self.second_moment: Tensor | None = None
        self.proved = False
        self._last: int | None = None
        self._known: tuple[Layout, ...] = ()

    def trace(
        self, batch: Batch, positions: str | None = None, *, live: bool = False
    ) -> tuple[lai.Trace, Tensor]:
        """Return the trace the estimator needs, and the losses; on the graph of a training step if `live`.

        Once the model is known, nothing before its last layer is differentiated or, where `positions`
        is `mean` or the estimator is LLI, kept.
        """
        every_layer = self.estimator == "ghost"
        shortcut = None
        if self._last is not None:
            shortcut = Shortcut(self._last, mean=positions == "mean" or self.estimator == "lli")
        recording = record(
            self.model,
            self.loss,
            *batch,
            every_layer=every_layer,
            verify=not self.proved,
            shortcut=shortcut,
            known=self._known,
            last=self.last,
            ghost_alone=every_layer and self.last is None,
            live=live and shortcut is not None,
        )
        check_explained(recording)
        trace = assemble(recording)
        if not recording.averaged:
            self._known = tuple(recording.layouts[use] for use in recording.uses)
        if not every_layer:
            self._last = recording.uses.index(recording.last)
        return trace, recording.losses if recording.live is None else recording.live

    @property
    def known(self) -> bool:
        """Whether an earlier trace told which layer is the last."""
        return self._last is not None

    def summarize(self, validation: Batch, size: int) -> lai.ValidationSummary:
        """Sum the chunks' summaries.

        Raises
        ------
        ValueError
            If no validation sample has a finite loss.
        """
        summary: lai.ValidationSummary | None = None
        for chunk in self.chunks(validation, size):
            known = self.positions if summary is None else summary.positions
            trace, losses = self.trace(chunk, known)
            if not bool(torch.isfinite(losses).all()):
                finite = self.finite(chunk)
                if finite is None:
                    continue
                trace, _ = self.trace(finite, known)
            positions = self._positions_for(trace) if summary is None else summary.positions
            one = lai.summarize(trace, self.estimator, positions=positions or "tokens")
            summary = one if summary is None else summary + one
        if summary is None:
            raise nothing_finite()
        return summary

    def score(self, summary: lai.ValidationSummary, batch: Batch) -> Scored:
        """Score against a summary."""
        return self._scored(summary, batch, exclude_self=False)

    def score_itself(self, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a batch against its own summed gradient, each sample left out of its own score or not."""
        return self._scored(None, batch, exclude_self=exclude_self)

    def _scored(self, summary: lai.ValidationSummary | None, batch: Batch, *, exclude_self: bool) -> Scored:
        positions = self.positions if summary is None else summary.positions
        trace, losses = self.trace(batch, positions)
        finite = torch.isfinite(losses)
        if not bool(finite.any()):
            return Scored(torch.full_like(losses, torch.nan), losses, positions)
        if not bool(finite.all()):
            kept = finite.nonzero().squeeze(1)
            trace, _ = self.trace(rows(batch, kept, losses.shape[0]), positions)
        self.proved = True
        found, positions = self.score_trace(summary, trace, None, exclude_self=exclude_self)
        scores = torch.full_like(losses, torch.nan, dtype=found.dtype)
        scores[finite] = found
        return Scored(scores, losses, positions)

    def score_trace(
        self,
        summary: lai.ValidationSummary | None,
        trace: lai.Trace,
        finite: Tensor | None,
        *,
        exclude_self: bool,
    ) -> tuple[Tensor, str | None]:
        """Score a trace against a summary or itself; return the scores and the meaning of positions."""
        if self.estimator == "preconditioned_lai":
            outputs: Any = trace.layers[-1].output_gradients
            outputs = outputs if finite is None else outputs[finite]
            if outputs.shape[0]:
                self.second_moment = lai.update_second_moment(self.second_moment, outputs)
        return self._against(summary, trace, exclude_self=exclude_self)

    def _against(
        self, summary: lai.ValidationSummary | None, trace: lai.Trace, *, exclude_self: bool
    ) -> tuple[Tensor, str | None]:
        side = trace if summary is None else summary
        if self.estimator == "ghost":
            return lai.ghost_scores(side, trace, exclude_self=exclude_self), None
        if self.estimator == "lli":
            return lai.lli_scores(side, trace, exclude_self=exclude_self), None
        positions = self._positions_for(trace) if summary is None else summary.positions
        options: dict[str, Any] = {"positions": positions, "exclude_self": exclude_self}
        if self.estimator == "lai":
            return lai.lai_scores(side, trace, **options), positions
        return lai.preconditioned_lai_scores(side, trace, self.second_moment, **options), positions

    def _positions_for(self, trace: lai.Trace) -> str:
        """Return the meaning of positions: `tokens` if every layer has the last layer's, else `mean`."""
        if self.positions is not None:
            return self.positions
        return "tokens" if "tokens" in lai.fitting_positions(trace) else "mean"


class ExactScorer(Scorer):
    """Exact scores along the validation gradient; the summary is that gradient."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__(model, loss, "exact", None)
        self.function = Function(model, loss)

    def summarize(self, validation: Batch, size: int) -> Point:
        """Return the gradient of the summed validation loss."""
        return self.gradient_at(self.function.point(), validation, size)

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
        found, losses, _ = along(self.function, self.function.point(), summary, batch)
        return Scored(torch.where(torch.isfinite(losses), found, torch.nan), losses, None)


class MidpointScorer(ExactScorer):
    """Exact scores along the validation gradient after half of the tentative SGD step."""

    def __init__(self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model, loss)
        self.estimator, self.optimizer = "midpoint", optimizer

    def summarize(self, validation: Batch, size: int) -> Any:
        """Keep the set: its gradient is taken at a point that depends on the batch."""
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
