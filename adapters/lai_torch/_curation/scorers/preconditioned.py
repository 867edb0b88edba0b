"""LAI with the output gradients preconditioned by their running second moment."""

from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._curation.scorers.base import Batch, Scored, TraceScorer
from lai_torch._model.batch import Loss


class PreconditionedScorer(TraceScorer):
    """LAI whose product of output gradients is divided by a power of their second moment.

    Parameters
    ----------
    decay
        Share of the second moment that stays at each batch.
    exponent
        The power.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        positions: str | None,
        last: str | None,
        *,
        decay: float,
        exponent: float,
    ) -> None:
        super().__init__(model, loss, "preconditioned_lai", positions, last)
        self.decay, self.exponent = decay, exponent
        self.second_moment: Tensor | None = None

    def scored(self, summary: Any, trace: Any, losses: Tensor, batch: Batch, *, exclude_self: bool) -> Scored:
        """Take the batch's finite rows into the second moment, and score it."""
        outputs: Any = trace.layers[-1].output_gradients[torch.isfinite(losses)]
        if outputs.shape[0]:
            self.second_moment = lai.update_second_moment(self.second_moment, outputs, decay=self.decay)
        return super().scored(summary, trace, losses, batch, exclude_self=exclude_self)

    def product(self, side: Any, trace: Any, **options: Any) -> Tensor:
        """Return the preconditioned scores."""
        return lai.preconditioned_lai_scores(
            side, trace, self.second_moment, exponent=self.exponent, **options
        )

    def state(self) -> dict[str, Any]:
        """Return the second moment too."""
        return {**super().state(), "second_moment": self.second_moment}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        super().load_state(state)
        self.second_moment = state["second_moment"]
