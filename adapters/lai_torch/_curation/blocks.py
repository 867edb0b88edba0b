"""A batch's scores against blocks of a validation set: their sum, and how much it varies with the draw."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core.estimators.scores import SUMMED
from lai_torch._curation.scorers.base import Batch, Reading, Scorer
from lai_torch._curation.scorers.choice import scorer
from lai_torch._curation.scorers.traces import TraceScorer
from lai_torch._curation.validation import own_stream
from lai_torch._model.batch import Loss, count, mapped, rows
from lai_torch._model.preserve import alone, evaluating
from lai_torch.options import Estimator


class BlockScores:
    """Scores batches against the blocks of a validation set, which is summed up when the first one comes."""

    def __init__(
        self, model: nn.Module, loss: Loss, estimator: Estimator, validation: Batch, blocks: int, size: int
    ) -> None:
        self.model, self.validation, self.size = model, validation, size
        self.scorer: Scorer = scorer(model, loss, None, estimator, own_stream())
        # What fits weights, sketches or keeps no trace is of the whole set: its blocks would not add up.
        exact = type(self.scorer) is TraceScorer
        sums = exact and self.scorer.sketch is None  # type: ignore[attr-defined]
        self.blocks = min(blocks, count(*validation)) if sums else 1
        self._measured = estimator.name if sums and estimator.name in SUMMED else None
        self._summaries: list[Any] = []

    @alone
    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Return the columns of a batch."""
        with evaluating(self.model):
            if not self._summaries:
                self._summaries = [self.scorer.summarize(block, self.size) for block in self._dealt()]
            reading = self.scorer.read(batch, self._summaries[0])
            scored = [self.scorer.score_part(summary, reading) for summary in self._summaries]
        parts = torch.stack([each.scores for each in scored]).double()
        return {
            "score": parts.sum(0),
            "standard_error": self._standard_error(parts),
            "loss": reading.losses.double(),
            "gradient_norm": self._norms(reading, scored[0].positions),
        }

    def _dealt(self) -> Iterator[Batch]:
        """Deal the validation samples like cards, so that an order in the set is no order of blocks."""
        samples = count(*self.validation)
        for block in range(self.blocks):
            index = torch.arange(block, samples, self.blocks)
            yield placed(rows(self.validation, index, samples), self.model)

    def _standard_error(self, parts: Tensor) -> Tensor:
        blocks, samples = len(parts), count(*self.validation)
        if blocks == 1:
            return torch.full_like(parts[0], math.nan)
        sizes = torch.tensor([len(range(block, samples, blocks)) for block in range(blocks)])
        shares = (sizes / samples).to(parts)[:, None]
        return ((parts - shares * parts.sum(0)).square().sum(0) * blocks / (blocks - 1)).sqrt()

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
