"""LAI with layer weights that are calibrated on the model's own gradients."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core.calibration import block_weights
from lai_torch._curation.scorers.base import Batch, TraceScorer
from lai_torch._curation.sketch import Sketch
from lai_torch._model.batch import Loss, count, rows
from lai_torch._model.function import UnusableError
from lai_torch._recording.assemble import layers_of
from lai_torch._recording.record import Recording, record


@dataclass(frozen=True)
class Calibrated:
    """What LAI scores against, and the weights `(L,)` of the layers that it sees."""

    side: Any
    layer_weights: Tensor

    @property
    def positions(self) -> str | None:
        """How positions are read."""
        return self.side.positions


class CalibratedScorer(TraceScorer):
    """LAI whose layer weights are fitted to Ghost on validation samples at every refresh."""

    def __init__(
        self, model: nn.Module, loss: Loss, positions: str | None, last: str | None, sketch: Sketch | None
    ) -> None:
        super().__init__(model, loss, "lai", positions, last, sketch)

    def summarize(self, validation: Batch, size: int) -> Any:
        """Sum the set up, and fit the weights on at most `size` of its samples (two at least).

        Raises
        ------
        ValueError
            If a layer's weight is computed from others, or fewer than two losses are finite.
        """
        side = super().summarize(validation, size)
        return Calibrated(side, self._fitted(validation, max(size, 2), side.positions))

    def against(self, side: Any, trace: Any, positions: str | None, exclude_self: bool) -> Tensor:
        """Score against the summary or the parts, each layer by its weight."""
        if not isinstance(side, Calibrated):
            return super().against(side, trace, positions, exclude_self)
        parts = getattr(side.side, "parts", (side.side,))
        options: dict[str, Any] = {"positions": positions, "layer_weights": side.layer_weights}
        return torch.stack([lai.lai_scores(part, trace, **options) for part in parts]).sum(0)

    def _fitted(self, validation: Batch, size: int, positions: str) -> Tensor:
        """Fit on the pairs of different samples among rows at equal distances."""
        samples = count(*validation)
        used = min(samples, size)
        part = self.finite(rows(validation, torch.arange(used) * samples // used, samples))
        if part is None or count(*part) < 2:
            msg = (
                "validation: estimator 'calibrated_lai' expects at least two samples with a finite loss "
                f"among the {used} it is calibrated on"
            )
            raise UnusableError(msg)
        recording = record(
            self.model, self.loss, *part, every_layer=True, verify=not self.proved, last=self.last
        )
        return _weights(recording, positions)


def _weights(recording: Recording, positions: str) -> Tensor:
    """Return each layer's slope of Ghost's part on LAI's, over pairs of different samples.

    A layer's part of Ghost is that of its matrix and bias from this use alone; it is nothing for a
    frozen layer, whose weight is then 0.

    Raises
    ------
    ValueError
        If a layer's weight is computed from trainable parameters.
    """
    layers = layers_of(recording)
    last = layers[-1].record
    ours, theirs = [], []
    for layer in layers:
        alone = layer.record is last
        pair = lai.Trace([last] if alone else [layer.record, last])
        part = lai.lai_kernel(pair, pair, positions=positions, layer_weights=[1.0] if alone else [1.0, 0.0])
        if layer.own:
            single = lai.Trace([layer.record])
            exact = lai.ghost_kernel(single, single)
        elif any(name in recording.parameters for name in layer.use.weight.names):
            msg = (
                f"estimator: 'calibrated_lai' expects layers whose weight is a parameter, {layer.use.name!r} "
                "has one that is computed from others or used in several ways; use estimator='lai', which "
                "weighs all layers alike, or 'ghost'"
            )
            raise ValueError(msg)
        else:
            exact = torch.zeros_like(part)
        ours.append(part)
        theirs.append(exact)
    others = 1.0 - torch.eye(recording.samples, dtype=ours[0].dtype, device=ours[0].device)
    return block_weights(torch.stack(ours) * others, torch.stack(theirs))
