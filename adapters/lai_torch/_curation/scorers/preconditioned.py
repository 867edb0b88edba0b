"""LAI with the output gradients preconditioned by their running second moment."""

import functools
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_torch._curation.scorers.base import Reading, Scored
from lai_torch._curation.scorers.traces import TraceScorer


class PreconditionedScorer(TraceScorer):
    """LAI whose product of output gradients is divided by a power of their second moment.

    Parameters
    ----------
    decay
        Share of the second moment that stays at each batch.
    """

    def __init__(self, *arguments: Any, decay: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.decay = decay
        self.second_moment: Tensor | None = None

    def take(self, scored: Scored) -> None:
        """Let the batch's second moment be the running one."""
        self.second_moment = scored.second_moment

    def score_part(self, summary: Any, reading: Reading) -> Scored:
        """Score with a second moment that the finite rows are part of; `take` makes it the running one."""
        moment = self.second_moment
        if reading.rows is None and not bool(torch.isfinite(reading.losses).any()):
            reading = replace(reading, seen=None)
        if reading.seen is not None:
            last = reading.seen.layers[-1]
            outputs, valid = last.output_gradients, last.valid
            if reading.rows is None:
                finite = torch.isfinite(reading.losses)
                outputs, valid = outputs[finite], None if valid is None else valid[finite]
            moment = lai.update_second_moment(moment, outputs, decay=self.decay, valid=valid)
        product = functools.partial(self.product, second_moment=moment)
        return replace(self._scored(summary, reading, product), second_moment=moment)

    def state(self) -> dict[str, Any]:
        """Return the second moment too."""
        return {**super().state(), "second_moment": self.second_moment}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        super().load_state(state)
        self.second_moment = state["second_moment"]
