"""The ways a step can take: a forward pass for scoring alone, or one for scoring and training both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from lai_torch._curation.passes.full import BREAK_EVEN, Whole
from lai_torch._curation.passes.selective import Selective
from lai_torch._curation.scorers.base import Batch, Scored, Scorer, TraceScorer, joined
from lai_torch._model.batch import Loss, count
from lai_torch._model.preserve import evaluating


class Ways:
    """Scores a batch the way that is asked for, and knows the backward pass that goes with it.

    Parameters
    ----------
    model, loss
        What is trained.
    scorer
        What scores it.
    backward
        `kept`, `selective`, `whole`, or `auto`, which chooses between `kept` and `whole` by the running
        mean of the share kept.
    chunk
        How many samples to score at once, by a forward pass for that alone; None: the whole batch.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, scorer: Scorer, backward: str, chunk: int | None
    ) -> None:
        self.model, self.scorer, self.backward, self.chunk = model, scorer, backward, chunk
        self.share: float | None = None
        last = cast("TraceScorer", scorer).last if backward == "selective" else None
        self._selective = Selective(model, loss, last) if backward == "selective" else None
        self._whole = Whole(model, cast("TraceScorer", scorer)) if backward in {"whole", "auto"} else None

    def next(self) -> str:
        """Return which way the next step takes."""
        if self.backward != "auto" or self._whole is None:
            return self.backward
        worth = self.share is not None and self.share > BREAK_EVEN
        return "whole" if worth and self._whole.fits else "kept"

    def observe(self, share: float) -> None:
        """Take the share of a batch that was kept into the running mean."""
        self.share = share if self.share is None else 0.9 * self.share + 0.1 * share

    def backward_of(self, way: str) -> Callable[[Tensor], None] | None:
        """Return what sets the gradients of the forward pass that was scored; None for `kept`."""
        shared = {"selective": self._selective, "whole": self._whole}.get(way)
        return None if shared is None else shared.backward

    def score(self, way: str, summary: Any, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a batch against a summary or, where that is None, itself."""
        if way == "kept" or (way == "selective" and count(*batch) < 2):  # one row fixes a captured size
            return self._alone(summary, batch, exclude_self=exclude_self)
        scorer = cast("TraceScorer", self.scorer)
        if way == "selective":
            trace, losses = cast("Selective", self._selective).forward(*batch)
            if summary is None and not bool(torch.isfinite(losses).all()):  # it would spoil everyone's score
                return self._alone(summary, batch, exclude_self=exclude_self)
        else:
            positions = scorer.positions if summary is None else summary.positions
            trace, losses = cast("Whole", self._whole).forward(*batch, positions)
            if not bool(torch.isfinite(losses).all()):  # their rows would spoil everyone's gradient
                return self._alone(summary, batch, exclude_self=exclude_self)
        found = scorer.scored(summary, trace, losses, batch, exclude_self=exclude_self)
        return replace(found, backward=way)

    def _alone(self, summary: Any, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score a batch by a forward pass for that alone."""
        with evaluating(self.model):
            if summary is None:
                return self.scorer.score_itself(batch, exclude_self=exclude_self)
            parts = self.scorer.chunks(batch, self.chunk or count(*batch))
            found = [self.scorer.score(summary, part) for part in parts]
        return found[0] if len(found) == 1 else joined(found)
