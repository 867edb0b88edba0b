"""The estimators as the curator uses them: sum a validation set up, score a batch against it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._curation.cost import TokenCost
from lai_torch._curation.sketch import Sketch
from lai_torch._model.batch import Loss, call, check_losses, count, rows
from lai_torch._model.function import UnusableError
from lai_torch._model.preserve import preserved
from lai_torch._recording.assemble import assemble
from lai_torch._recording.record import record
from lai_torch._recording.recorder import Shortcut
from lai_torch._recording.sample_axis import Layout
from lai_torch.trace import check_explained

Batch = tuple[Any, Any]


@dataclass(frozen=True)
class Scored:
    """Scores and losses of a batch, `(n,)`, and how they came about; see `Report` for the rest."""

    scores: Tensor
    losses: Tensor
    positions: str | None = None
    layer_weights: Tensor | None = None
    cost: float | None = None
    method: str | None = None
    reason: str | None = None
    backward: str = "kept"


@dataclass(frozen=True)
class Sides:
    """The traces of a validation set's parts, for scores that have no sum to come from."""

    parts: tuple[Any, ...]
    positions: str | None


class Scorer(ABC):
    """One estimator on one model."""

    def __init__(self, model: nn.Module, loss: Loss, estimator: str, positions: str | None) -> None:
        self.model, self.loss, self.estimator, self.positions = model, loss, estimator, positions

    @abstractmethod
    def summarize(self, validation: Batch, size: int) -> Any:
        """Sum a validation set up, at most `size` rows at a time, without what is not finite."""

    def fits(self, summary: Any) -> bool:
        """Say whether a summary made earlier is still one of this model."""
        del summary
        return True

    @abstractmethod
    def score(self, summary: Any, batch: Batch) -> Scored:
        """Score every sample of a batch; NaN where it is not finite."""

    @abstractmethod
    def score_itself(self, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a batch against its own summed gradient, each sample left out of its own score or not."""

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as tensors and plain values."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        del state  # nothing of its own

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


def nothing_finite() -> UnusableError:
    """Build the error of a validation set without a single finite loss."""
    return UnusableError("validation: expected at least one sample with a finite loss, got none")


def joined(parts: list[Scored]) -> Scored:
    """Return the scores of consecutive parts of a batch as those of the batch."""
    scores, losses = (torch.cat([getattr(part, name) for part in parts]) for name in ("scores", "losses"))
    costs = [part.cost for part in parts if part.cost is not None]  # each in forwards of its own part
    return replace(parts[0], scores=scores, losses=losses, cost=costs[0] if costs else None)


class TraceScorer(Scorer):
    """Ghost, LAI and LLI, from traces; sketched ones where there is a `sketch`."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        estimator: str,
        positions: str | None,
        last: str | None = None,
        sketch: Sketch | None = None,
    ) -> None:
        super().__init__(model, loss, estimator, positions)
        self.last, self.sketch = last, sketch
        self.proved = False
        self._last: int | None = None
        self._known: tuple[Layout, ...] = ()
        self._stated = TokenCost(model)

    def trace(self, batch: Batch, positions: str | None = None, *, live: bool = False) -> tuple[Any, Tensor]:
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

    def summarize(self, validation: Batch, size: int) -> Any:
        """Sum the parts' summaries, or keep their traces where there is no such sum.

        Raises
        ------
        ValueError
            If no validation sample has a finite loss.
        """
        if self.sketch is not None:
            self.sketch.forget()
        found: lai.ValidationSummary | None = None
        sides: list[lai.Trace] = []
        positions: str | None = None
        for part, trace, positions in self.finite_traces(validation, size):
            if positions == "flatten" and trace.layers[-1].output_gradients.ndim == 3:
                sides.append(self._sketched(trace))
                continue
            self._forwards(trace, positions, part)
            one = lai.summarize(self._sketched(trace), self.estimator, positions=positions or "tokens")
            found = one if found is None else found + one
        return Sides(tuple(sides), positions) if found is None else found

    def finite_traces(self, validation: Batch, size: int) -> Iterator[tuple[Batch, Any, str | None]]:
        """Yield parts of at most `size` rows with finite losses, their traces and how to read positions.

        Raises
        ------
        ValueError
            If no validation sample has a finite loss.
        """
        positions, nothing = self.positions, True
        for chunk in self.chunks(validation, size):
            trace, losses = self.trace(chunk, positions)
            if not bool(torch.isfinite(losses).all()):
                finite = self.finite(chunk)
                if finite is None:
                    continue
                chunk = finite
                trace, _ = self.trace(chunk, positions)
            positions, nothing = positions or self.positions_for(trace), False
            yield chunk, trace, positions
        if nothing:
            raise nothing_finite()

    def score(self, summary: Any, batch: Batch) -> Scored:
        """Score against a summary."""
        return self._alone(summary, batch, exclude_self=False)

    def score_itself(self, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a batch against its own summed gradient, each sample left out of its own score or not."""
        return self._alone(None, batch, exclude_self=exclude_self)

    def _alone(self, summary: Any, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a batch on a forward pass for that alone, its finite rows by themselves."""
        positions = self.positions if summary is None else summary.positions
        trace, losses = self.trace(batch, positions)
        finite = torch.isfinite(losses)
        if not bool(finite.any()):
            weights = getattr(summary, "layer_weights", None)
            return Scored(torch.full_like(losses, torch.nan), losses, positions, layer_weights=weights)
        if bool(finite.all()):
            self.proved = True
            return self.scored(summary, trace, losses, batch, exclude_self=exclude_self)
        kept = finite.nonzero().squeeze(1)
        part = rows(batch, kept, losses.shape[0])
        trace, _ = self.trace(part, positions)
        self.proved = True
        found = self.scored(summary, trace, losses[kept], part, exclude_self=exclude_self)
        scores = torch.full_like(losses, torch.nan, dtype=found.scores.dtype)
        scores[kept] = found.scores
        return replace(found, scores=scores, losses=losses)

    def scored(self, summary: Any, trace: Any, losses: Tensor, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a trace against a summary or itself."""
        if summary is None and self.sketch is not None:
            self.sketch.forget()
        positions = self.positions_for(trace) if summary is None else summary.positions
        cost = self._forwards(trace, positions, batch)
        trace = self._sketched(trace)
        scores = self.against(trace if summary is None else summary, trace, positions, exclude_self)
        weights = getattr(summary, "layer_weights", None)
        return Scored(scores, losses, positions, layer_weights=weights, cost=cost)

    def against(self, side: Any, trace: Any, positions: str | None, exclude_self: bool) -> Tensor:
        """Return the scores of a trace against a summary, the parts of a set, or a trace."""
        if isinstance(side, Sides):
            parts = [self.against(part, trace, positions, exclude_self) for part in side.parts]
            return torch.stack(parts).sum(0)
        if self.estimator == "ghost":
            return lai.ghost_scores(side, trace, exclude_self=exclude_self)
        if self.estimator == "lli":
            return lai.lli_scores(side, trace, exclude_self=exclude_self)
        return self.product(side, trace, positions=positions, exclude_self=exclude_self)

    def product(self, side: Any, trace: Any, **options: Any) -> Tensor:
        """Return LAI's scores, or those of an estimator that is made like them."""
        return lai.lai_scores(side, trace, **options)

    def positions_for(self, trace: Any) -> str | None:
        """Return the meaning of positions: `tokens` if every layer has the last layer's, else `mean`."""
        if self.estimator in {"ghost", "lli"}:
            return None
        if self.positions is not None:
            return self.positions
        return "tokens" if "tokens" in lai.fitting_positions(trace) else "mean"

    def state(self) -> dict[str, Any]:
        """Return the sketch, and what earlier traces told of the model's layers."""
        return {
            "sketch": None if self.sketch is None else self.sketch.state(),
            "last": self._last,
            "layouts": [astuple(layout) for layout in self._known],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        if self.sketch is not None:
            self.sketch.load_state(state["sketch"])
        self._last = state["last"]
        self._known = tuple(Layout(*layout) for layout in state["layouts"])

    def _sketched(self, trace: lai.Trace) -> lai.Trace:
        return trace if self.sketch is None else self.sketch(trace)

    def _forwards(self, trace: lai.Trace, positions: str | None, batch: Batch) -> float | None:
        """Say what scoring by pairs of tokens takes, before it runs; None where it takes next to nothing."""
        width = None if self.sketch is None else self.sketch.width
        return self._stated(trace, batch, width) if positions == "tokens" else None
