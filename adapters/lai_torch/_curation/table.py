"""Rows of the score table: scores with their errors, losses, gradient norms."""

import math
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core.estimators.policies import standard_errors
from lai_core.estimators.scores import SUMMED
from lai_torch._curation.scorers.base import Batch, Reading
from lai_torch._curation.scorers.choice import scorer
from lai_torch._curation.scorers.records import UnlikeError
from lai_torch._curation.validation import own_stream
from lai_torch._model.batch import Loss, mapped
from lai_torch._model.preserve import alone, evaluating
from lai_torch.options import Estimator


class Columns:
    """Scores batches against a validation set, which is summed up in parts when the first one comes."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        estimator: Estimator,
        validation: Batch,
        *,
        size: int,
    ) -> None:
        self.model, self.validation, self.size = model, validation, size
        self._scorer = scorer(model, loss, None, estimator, own_stream())
        sketched = getattr(estimator, "sketch", None) is not None
        self._measured = estimator.name if estimator.name in SUMMED and not sketched else None
        self._summary: Any = None

    @alone
    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Return the columns of a batch."""
        with evaluating(self.model):
            reading = None
            while reading is None:
                if self._summary is None:
                    self._summary = self._scorer.summarize(placed(self.validation, self.model), self.size)
                try:
                    reading = self._scorer.read(batch, self._summary)
                except UnlikeError:
                    self._summary = None
            scored = self._scorer.score(iter([reading]), self._summary)
        nothing = torch.full_like(scored.losses, math.nan)
        sizes = scored.sizes or ()
        error = nothing if scored.parts is None else standard_errors(scored.parts, sizes=sizes)
        found = {"score": scored.scores, "standard_error": error, "loss": scored.losses}
        return {name: values.double() for name, values in found.items()} | {
            "gradient_norm": self._norms(reading, scored.positions)
        }

    def _norms(self, reading: Reading, positions: str | None) -> Tensor:
        norms = torch.full_like(reading.losses, math.nan, dtype=torch.double)
        if self._measured is not None and reading.seen is not None:
            squared = lai.self_influence(reading.seen, self._measured, positions=positions or "tokens")
            norms[slice(None) if reading.rows is None else reading.rows] = squared.double().sqrt()
        return norms


def placed(batch: Batch, model: nn.Module) -> Batch:
    """Return a batch on the model's device."""
    device = next((parameter.device for parameter in model.parameters()), None)
    return batch if device is None else mapped(batch, lambda tensor: tensor.to(device))
