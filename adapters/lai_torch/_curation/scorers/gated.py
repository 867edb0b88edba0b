"""Gate-corrected LAI as the curator uses it: pair by pair, against a validation set that is kept."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lai_core.estimators.gates import gate_lai_scores
from lai_torch._curation.scorers.base import Batch, Scored, Sides, TraceScorer
from lai_torch._model.batch import Loss
from lai_torch._recording.record import record
from lai_torch.gates import GateTrace, gated


class GateScorer(TraceScorer):
    """LAI with every layer's product corrected by the gains of the gates above it."""

    def __init__(self, model: nn.Module, loss: Loss, last: str | None) -> None:
        super().__init__(model, loss, "gate_lai", None, last)

    def trace(
        self, batch: Batch, positions: str | None = None, *, live: bool = False
    ) -> tuple[GateTrace, Tensor]:
        """Return trace, gates and column norms, and the losses."""
        recording = record(self.model, self.loss, *batch, every_layer=False, last=self.last, gates=True)
        return gated(recording), recording.losses

    def summarize(self, validation: Batch, size: int) -> Sides:
        """Keep the traces of the set's parts: the gains are each pair's own, so that nothing sums up."""
        traces = (trace for _, trace, _ in self.finite_traces(validation, size))
        return Sides(tuple(replace(trace, column_norms=()) for trace in traces), None)  # a step has its own

    def scored(self, summary: Any, trace: Any, losses: Tensor, batch: Batch, *, exclude_self: bool) -> Scored:
        """Score against the kept traces or the batch itself, with the column norms as they are now."""
        parts = (trace,) if summary is None else summary.parts
        found = [
            gate_lai_scores(
                part.trace,
                trace.trace,
                part.gates,
                trace.gates,
                trace.column_norms,
                exclude_self=exclude_self,
            )
            for part in parts
        ]
        return Scored(torch.stack(found).sum(0), losses)

    def positions_for(self, trace: Any) -> None:
        """Return None: a chain has no positions."""
        return
