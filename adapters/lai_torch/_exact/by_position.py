"""Exact scores of positions: each token's own loss along the validation gradient.

A loss that returns `(n, t)` is a function with n t outputs. One forward-mode pass along the direction gives
the derivative of each, whether or not positions see one another: `s_jt = <grad l_jt, d>`. The adjoint
identity of `proof.py` holds for any weights of the n t losses: drawn ones prove all scores at once.
"""

from collections.abc import Mapping
from itertools import dropwhile
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._exact.proof import Batch, Derivative, Method, find_proved, resample
from lai_torch._model.batch import Loss, count, usable
from lai_torch._model.function import Function, Point, losses_of


class RowSums(nn.Module):
    """A loss that returns `(n, t)`, as one that returns the samples' sums, `(n,)`."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, outputs: Any, targets: Any) -> Tensor:
        """Return the sums over positions."""
        return check_positions(self.loss(outputs, targets)).sum(1)


class Positions(Function):
    """The losses of a batch's positions as one vector, `(n t,)`, with the parameters of `RowSums`."""

    loss: RowSums

    def __call__(self, batch: Batch) -> Tensor:
        """Return the losses of sample after sample."""
        losses: Tensor = losses_of(self.model, self.loss.loss, usable(batch))
        return losses.flatten()


def check_positions(losses: Any) -> Tensor:
    if not isinstance(losses, Tensor) or losses.ndim != 2:
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        msg = f"loss: expected one number a position, shape (n, t), where per_position=True, got {got}"
        raise ValueError(msg)
    return losses


def score_positions(
    summed: Function, direction: Point, batch: Batch, found: Derivative, methods: Mapping[str, Method]
) -> Derivative:
    """Score the positions of a batch, whose samples' scores were `found`, by the same method or a later one.

    Raises
    ------
    ValueError
        If no method meets the adjoint identity.
    """
    function, samples = Positions(summed.model, summed.loss), count(*batch)
    finite = torch.isfinite(found.scores)
    # the shape is not known without a pass
    if not bool(finite.any()):
        with function.preserve(), torch.no_grad():
            return found._replace(scores=torch.full_like(function(batch), torch.nan).view(samples, -1))
    # what failed before it is not tried again
    left = dict(dropwhile(lambda one: one[0] != found.method, methods.items())) or methods
    usual = resample(batch, finite)
    proved, reasons = find_proved(function, direction, usual, left, [(usual, None)])
    if proved is None:
        reasons = [*filter(None, [found.reason]), *reasons]
        msg = f"model: expected finite gradients of positions with finite losses ({'; '.join(reasons)})"
        raise ValueError(msg)
    table, losses = (
        torch.where(finite[:, None], one.view(samples, -1), torch.nan)
        for one in (proved.scores, proved.losses)
    )
    reason = "; ".join(filter(None, [found.reason, proved.reason])) or None
    return proved._replace(scores=table, losses=losses, reason=reason)
