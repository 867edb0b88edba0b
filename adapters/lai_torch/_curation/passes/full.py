"""One forward pass of the whole batch for scoring and training both, run eagerly."""

from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._curation.passes.selective import check_precision, check_uncoupled
from lai_torch._curation.scorers.base import TraceScorer
from lai_torch._model.preserve import evaluating

BREAK_EVEN = 2 / 3
"""The share kept at which 1 + 3 k forwards, to score and then train on the kept rows, are 3."""


class Whole:
    """A forward pass that is scored, and the backward pass of its weighted losses.

    Parameters
    ----------
    model
        What to train; it must couple no samples.
    scorer
        Reads the trace off the forward pass.
    """

    def __init__(self, model: nn.Module, scorer: TraceScorer) -> None:
        self.model, self.scorer = model, scorer
        self._losses = torch.empty(0)

    @property
    def fits(self) -> bool:
        """Whether no module couples samples in the mode it is in."""
        try:
            check_uncoupled(self.model, "whole")
        except ValueError:
            return False
        return True

    def forward(self, inputs: Any, targets: Any, positions: str | None) -> tuple[lai.Trace, Tensor]:
        """Run the whole batch in the model's own mode; return the trace that LAI needs, and the losses.

        Raises
        ------
        ValueError
            If a module couples samples, or the layers are others than in eval mode.
        """
        check_uncoupled(self.model, "whole")
        check_precision(inputs, "whole")
        if not self.scorer.known:
            with evaluating(self.model):
                self.scorer.trace((inputs, targets))
        trace, self._losses = self.scorer.trace((inputs, targets), positions, live=True)
        if not self._losses.requires_grad:
            msg = (
                "backward: 'whole' expects the same last layer in training mode as in eval mode; use "
                "backward='kept'"
            )
            raise ValueError(msg)
        return trace, self._losses.detach()

    def backward(self, weights: Tensor) -> None:
        """Add the gradient of `sum_j weights_j loss_j` to `.grad`."""
        (self._losses * weights.to(self._losses)).sum().backward()
        self._losses = torch.empty(0)
