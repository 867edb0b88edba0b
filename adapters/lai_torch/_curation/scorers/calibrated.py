"""LAI with layer weights that are calibrated on the model's own gradients."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lai_core._adapters import computed_weight, fitted_weights, layer_parts
from lai_torch._curation.scorers.base import Batch, ValidationSide
from lai_torch._curation.scorers.traces import TraceScorer
from lai_torch._model.batch import count, rows
from lai_torch._model.function import UnusableError
from lai_torch._recording.assemble import layers_of
from lai_torch._recording.record import record
from lai_torch._recording.watching.recording import CachedProof, Recording


class CalibratedScorer(TraceScorer):
    """LAI whose layer weights are fitted to Ghost on validation samples at every refresh."""

    _known: CachedProof | None = None

    def summary_of(self, validation: Batch, size: int) -> ValidationSide:
        """Sum the set up, and fit the weights on at most `size` of its samples (two at least)."""
        side = super().summary_of(validation, size)
        weights = self._fitted(validation, max(size, 2), str(side.positions))
        return replace(side, layer_weights=weights)

    def _fitted(self, validation: Batch, size: int, positions: str) -> Tensor:
        """Fit on the pairs of different samples among rows at equal distances."""
        samples = count(*validation)
        used = min(samples, size)
        part = self.finite(rows(validation, torch.arange(used, device="cpu") * samples // used, samples))
        if part is None or count(*part) < 2:
            msg = (
                "validation: estimator 'calibrated_lai' expects at least two samples with a finite loss "
                f"among the {used} it is calibrated on"
            )
            raise UnusableError(msg)
        options: dict[str, Any] = {"last": self.tracer.last, "valid": self.tracer.masks}
        with self.tracer.lowered():
            recording = record(self.model, self.loss, *part, every_layer=True, known=self._known, **options)
        self._known = recording.known
        return _weights(recording, positions)


def _weights(recording: Recording, positions: str) -> Tensor:
    """Return each layer's slope of Ghost's part on LAI's, over pairs of different samples."""
    layers = layers_of(recording)
    last, parts = layers[-1].record, []
    for layer in layers:
        names = layer.use.weight.names
        if not layer.own and any(name in recording.parameters for name in names):
            raise computed_weight(layer.use.name)
        parts.append(layer_parts(layer.record, last, positions, trains=layer.own))
    device = recording.losses.device
    others = ~torch.eye(recording.samples, dtype=torch.bool, device=device)
    weights: Tensor = fitted_weights(parts, others)
    return weights
