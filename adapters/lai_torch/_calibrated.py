"""LAI with layer weights that are calibrated on the model's own similarities."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core.calibration import decoupled_weights
from lai_core.similarities import similarities
from lai_torch._assemble import assemble
from lai_torch._batch import Loss, count, rows
from lai_torch._record import record
from lai_torch._scoring import Batch, Scored, TraceScorer


@dataclass(frozen=True)
class Calibrated:
    """An `lai` summary and the weights `(L,)` of the layers that LAI sees."""

    summary: lai.ValidationSummary
    layer_weights: Tensor


class CalibratedScorer(TraceScorer):
    """LAI whose layer weights are fitted to Ghost on validation samples at every refresh."""

    def __init__(self, model: nn.Module, loss: Loss, positions: str | None, last: str | None) -> None:
        super().__init__(model, loss, "lai", positions, last)
        self._layer_weights: Tensor | None = None

    def summarize(self, validation: Batch, size: int) -> Any:
        """Sum the set up, and fit the weights on at most `size` of its samples (two at least).

        Raises
        ------
        ValueError
            If a layer has no single pair of similarities, or fewer than two losses are finite.
        """
        return Calibrated(super().summarize(validation, size), self._fitted(validation, max(size, 2)))

    def score(self, summary: Any, batch: Batch) -> Scored:
        """Score against the summary, each layer by its weight."""
        self._layer_weights = summary.layer_weights
        found = super().score(summary.summary, batch)
        return replace(found, layer_weights=summary.layer_weights)

    def _against(
        self, summary: lai.ValidationSummary | None, trace: lai.Trace, *, exclude_self: bool
    ) -> tuple[Tensor, str | None]:
        if self._layer_weights is None or summary is None:
            return super()._against(summary, trace, exclude_self=exclude_self)
        return lai.lai_scores(summary, trace, layer_weights=self._layer_weights), summary.positions

    def _fitted(self, validation: Batch, size: int) -> Tensor:
        """Fit on the pairs of different samples among rows at equal distances."""
        samples = count(*validation)
        used = min(samples, size)
        part = self.finite(rows(validation, torch.arange(used) * samples // used, samples))
        if part is None or count(*part) < 2:
            msg = (
                "validation: estimator 'calibrated_lai' expects at least two samples with a finite loss "
                f"among the {used} it is calibrated on"
            )
            raise ValueError(msg)
        recording = record(
            self.model, self.loss, *part, every_layer=True, verify=not self.proved, last=self.last
        )
        unseen = lai.GainTrace | lai.EmbeddingTrace  # their parameters reach no layer weight
        seen = lai.Trace(layer for layer in assemble(recording).layers if not isinstance(layer, unseen))
        for layer in seen.layers:
            if isinstance(layer, lai.ReadoutTrace):
                raise _refused(f"layer {layer.name!r} has a frozen or computed weight, not in Ghost")
        try:
            found = similarities(seen, seen)
        except ValueError as error:
            raise _refused(str(error)) from error
        others = 1.0 - torch.eye(count(*part), dtype=found.alpha.dtype, device=found.alpha.device)
        return decoupled_weights(found.alpha * others, found.beta)


def _refused(reason: str) -> ValueError:
    """Build the error of a model that has no layer weights."""
    return ValueError(
        "estimator: 'calibrated_lai' expects layers with one pair of similarities per pair of samples "
        f"({reason}); use estimator='lai', which weighs all layers alike, or 'ghost'"
    )
