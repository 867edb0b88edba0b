"""Gate-corrected LAI in the loop: pair by pair, against a validation set that is kept."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from lai_core.estimators.gates import gate_lai_scores
from lai_torch._curation.scorers.base import Batch, ValidationSide
from lai_torch._curation.scorers.traces import TraceScorer
from lai_torch.trace import GateTrace


class GateScorer(TraceScorer):
    """LAI with every layer's product corrected by the gains of the gates above it."""

    def summary_of(self, validation: Batch, size: int) -> ValidationSide:
        """Keep the traces of the set's parts: the gains are each pair's own, so that nothing sums up."""
        traces = (trace for _, trace, _ in self.finite_traces(validation, size))
        # column norms are those of the weights as they are when a batch is scored, not of now
        return ValidationSide(tuple(replace(trace, column_norms=()) for trace in traces))


def gate_product(validation: GateTrace, training: GateTrace, **options: Any) -> Tensor:
    """Return the scores, with the column norms as they are now."""
    found: Tensor = gate_lai_scores(validation, training, **options)
    return found
