"""From a curator's options to the scorer that they mean."""

from typing import Any

import torch
from torch import nn

from lai_torch._curation.scorers.base import Scorer, TraceScorer
from lai_torch._curation.scorers.calibrated import CalibratedScorer
from lai_torch._curation.scorers.exact import ExactScorer, MidpointScorer
from lai_torch._curation.scorers.gated import GateScorer
from lai_torch._curation.scorers.preconditioned import PreconditionedScorer
from lai_torch._curation.sketch import Sketch
from lai_torch._model.batch import Loss


def scorer(
    model: nn.Module,
    loss: Loss,
    optimizer: Any,
    estimator: str,
    positions: str | None,
    last: str | None,
    sketch: int | None,
    generator: torch.Generator,
    *,
    decay: float,
    exponent: float,
) -> Scorer:
    """Return the scorer of an estimator."""
    sketched = None if sketch is None else Sketch(sketch, generator)
    if estimator == "exact":
        return ExactScorer(model, loss)
    if estimator == "midpoint":
        return MidpointScorer(model, loss, optimizer)
    if estimator == "gate_lai":
        return GateScorer(model, loss, last)
    if estimator == "calibrated_lai":
        return CalibratedScorer(model, loss, positions, last, sketched)
    if estimator == "preconditioned_lai":
        return PreconditionedScorer(model, loss, positions, last, decay=decay, exponent=exponent)
    return TraceScorer(model, loss, estimator, positions, last, sketched)
