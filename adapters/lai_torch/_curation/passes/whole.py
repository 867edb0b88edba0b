"""Score the forward pass of a training step, run eagerly, and go back through all of it with weights."""

import functools
from typing import Any

from torch import Tensor, nn

from lai_torch._curation.deferred import DeferredChecks
from lai_torch._curation.passes.base import Forward, Gradient, Pass, check_precision, check_uncoupled
from lai_torch._curation.scorers.base import Batch, Reading
from lai_torch._curation.scorers.tracer import Tracer
from lai_torch._model.preserve import evaluating


class WholePass(Pass):
    """One forward pass in the model's own mode, and a weighted backward pass of the full batch."""

    def __init__(
        self,
        model: nn.Module,  # what is trained; it must couple no samples
        tracer: Tracer,  # reads the trace off the forward pass
        # the pass to take for a batch with a loss that is not finite: its row would spoil the
        # gradient
        kept: Pass,
        deferred: DeferredChecks,  # what the step asks about values
    ) -> None:
        self.model, self.tracer, self.kept, self.deferred = model, tracer, kept, deferred

    def forward(self, batch: Batch, summary: Any) -> Forward:
        """Run the whole batch; the trace is that of the pass that is trained on."""
        check_uncoupled(self.model, "whole")
        check_precision(batch[0], "whole")
        if not self.tracer.knows_last or self.tracer.mixing:
            with evaluating(self.model):
                self.tracer(batch)
        with self.tracer.masks.asking(self.deferred.holds):
            trace, losses = self.tracer(batch, summary.positions, live=True)
        if not losses.requires_grad:
            msg = (
                "backward: 'whole' expects the same last layer in training mode as in eval mode; use "
                "backward='kept'"
            )
            raise ValueError(msg)
        if not self.deferred.finite(losses):
            return self.kept.forward(batch, summary)
        reading = Reading(losses.detach(), trace, batch)
        return Forward("whole", iter((reading,)), functools.partial(self.backward, losses))

    def backward(self, losses: Tensor, weights: Tensor, parts: int, *_: Any) -> Gradient:
        """Go back through the whole batch; nothing runs a second time."""
        kept = self.deferred.rows(weights > 0).numel()
        if kept:
            (losses * (weights / parts).to(losses)).sum().backward()
        return Gradient(weights, losses.detach(), kept=kept)
