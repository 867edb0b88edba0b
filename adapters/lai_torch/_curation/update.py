"""Optimizer steps on the kept rows of batches that cannot make a parameter non-finite."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import Loss, call, check_losses, count, rows


@dataclass(frozen=True)
class Update:
    """What became of one batch.

    Attributes
    ----------
    weights
        `(n,)`: the weights it was trained with; zeros where a sample was dropped.
    losses
        `(n,)`: the losses of the rows the model ran on, NaN elsewhere.
    dropped
        How many rows with a positive weight were left out, their loss being not finite.
    used
        Whether the batch contributed a gradient.
    updated
        Whether the optimizer stepped.
    """

    weights: Tensor
    losses: Tensor
    dropped: int
    used: bool
    updated: bool

    @property
    def loss(self) -> float:
        """The weighted loss that was minimised; NaN if there was none."""
        if not self.used:
            return float("nan")
        kept = self.weights > 0
        return float((self.weights[kept] * self.losses[kept].to(self.weights)).sum())


class Updater:
    """Accumulates the gradients of `accumulate` batches, then steps.

    Parameters
    ----------
    model, loss, optimizer
        What to train.
    accumulate
        How many batches make a step; each counts with one part in so many.
    autocast
        Type to compute the forward pass in. None: the model's own.
    scaler
        A `torch.amp.GradScaler`, for half precision.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        accumulate: int,
        autocast: torch.dtype | None,
        scaler: Any,
    ) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.accumulate, self.autocast, self.scaler = accumulate, autocast, scaler
        self.batches = self.contributions = 0

    def __call__(self, inputs: Any, targets: Any, weights: Tensor) -> Update:
        """Add the gradient of `sum_j weights_j loss_j`, running the model on the kept rows alone.

        Rows whose loss is not finite are dropped and their weight is spread over the others. If the
        gradient is not finite all the same, nothing is stepped.
        """
        self._begin()
        positive = weights > 0
        losses = torch.full_like(weights, float("nan"))
        kept, values = self._finite(inputs, targets, positive.nonzero().squeeze(1), losses)
        used = torch.zeros_like(weights)
        if values is not None:
            used[kept] = weights[kept] * (weights[positive].sum() / weights[kept].sum())
            total = (values * used[kept].to(values)).sum() / self.accumulate
            (total if self.scaler is None else self.scaler.scale(total)).backward()
        dropped = int(positive.sum()) - kept.numel()
        return self._end(used, losses, dropped, contributed=values is not None)

    def take(self, weights: Tensor, losses: Tensor, backward: Callable[[Tensor], None]) -> Update:
        """Add the gradient of a forward pass that has been run, which `backward(weights)` adds to `.grad`."""
        self._begin()
        contributed = bool((weights > 0).any())
        if contributed:
            backward(weights / self.accumulate)
        return self._end(weights, losses, 0, contributed=contributed)

    def _begin(self) -> None:
        """Start from nothing where a step begins."""
        if self.batches == 0:
            self.optimizer.zero_grad(set_to_none=True)

    def _end(self, weights: Tensor, losses: Tensor, dropped: int, *, contributed: bool) -> Update:
        """Count a batch, and step if it is the last of those that make a step."""
        self.batches += 1
        self.contributions += contributed
        updated = False
        if self.batches >= self.accumulate:
            updated = self.contributions > 0 and self._step()
            if not updated:
                self.optimizer.zero_grad(set_to_none=True)
            contributed = contributed and updated
            self.batches = self.contributions = 0
        used = weights if contributed else torch.zeros_like(weights)
        return Update(used, losses, dropped, contributed, updated)

    def _finite(
        self, inputs: Any, targets: Any, kept: Tensor, losses: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Run the model on the rows `kept`, once more without those whose loss is not finite."""
        samples = count(inputs, targets)
        for _ in range(2):
            if not kept.numel():
                break
            whole = kept.numel() == samples
            batch = (inputs, targets) if whole else rows((inputs, targets), kept, samples)
            try:
                with self._autocast(losses.device):
                    values = check_losses(self.loss(call(self.model, batch[0]), batch[1]), kept.numel())
            except ValueError as error:  # BatchNorm cannot normalise the one sample that was kept
                if kept.numel() > 1 or whole or "more than 1 value per channel" not in str(error):
                    raise
                break
            losses[kept] = values.detach().to(losses)
            finite = torch.isfinite(values.detach())
            if bool(finite.all()):
                return kept, values
            kept = kept[finite]
        return kept[:0], None

    def _autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        return nullcontext() if self.autocast is None else torch.autocast(device.type, self.autocast)

    def _step(self) -> bool:
        """Step if every gradient is finite."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"]]
        finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients if gradient is not None)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif finite:
            self.optimizer.step()
        return finite
