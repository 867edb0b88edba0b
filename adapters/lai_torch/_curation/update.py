"""Optimizer steps that cannot make a parameter non-finite, and that happen as a whole or not at all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.passes.base import Gradient
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.undo import Undo


@dataclass(frozen=True)
class Update:
    """What became of one batch.

    Attributes
    ----------
    weights
        `(n,)`: the weights it was trained with; zeros where a sample was dropped.
    losses
        `(n,)`: the losses of the rows the model was trained on, NaN elsewhere.
    dropped
        How many rows with a positive weight were left out, their loss being not finite.
    used
        Whether the batch contributed a gradient.
    updated
        Whether the optimizer stepped.
    moved
        As for `Gradient`.
    """

    weights: Tensor
    losses: Tensor
    dropped: int
    used: bool
    updated: bool
    moved: float | None = None

    @property
    def loss(self) -> float:
        """The weighted loss that was minimised here; NaN if there was none."""
        return weighted_loss(self.weights, self.losses) if self.moved is None else self.moved


def weighted_loss(weights: Tensor, losses: Tensor) -> float:
    """Return the sum of the losses with a positive weight, weighted; NaN if there is none."""
    kept = weights > 0
    if not bool(kept.any()):
        return float("nan")
    return float((weights[kept] * losses[kept].to(weights)).sum())


class Updater:
    """Accumulates the gradients of `accumulate` batches, then steps.

    Parameters
    ----------
    optimizer
        What steps.
    accumulate
        How many batches make a step; each counts with one part in so many.
    scaler
        A `torch.amp.GradScaler`, for half precision.
    engine
        Who adds gradients up.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, accumulate: int, scaler: Any, engine: Engine
    ) -> None:
        self.optimizer, self.accumulate, self.scaler = optimizer, accumulate, scaler
        self.engine = engine
        self.batches = self.contributions = 0

    def step(self, weights: Tensor, backward: Callable[[Tensor, int], Gradient], undo: Undo) -> Update:
        """Add the gradient of `sum_j weights_j loss_j`, and step if the batch is the last of a step's.

        Where a gradient is not finite nothing is stepped.
        """
        earlier = undo.set_gradients_aside(begins=self.batches == 0)
        with self.engine.group.agreed():
            found = backward(weights, self.accumulate)
        _add(earlier)
        used = bool(self.engine.group.most(bool((found.weights > 0).any())))
        dropped = int((weights > 0).sum()) - int((found.weights > 0).sum())
        self.batches += 1
        self.contributions += used
        updated = False
        if self.batches >= self.accumulate:
            updated = self.contributions > 0 and self._stepped(undo)
            if not updated:
                self.optimizer.zero_grad(set_to_none=True)
            used = used and updated
            self.batches = self.contributions = 0
        weights = found.weights if used else torch.zeros_like(found.weights)
        return Update(weights, found.losses, dropped, used, updated, found.moved)

    def _stepped(self, undo: Undo) -> bool:
        """Step if every gradient is finite; say whether they were."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.engine.add_up(parameters)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        finite = self.engine.finite([p.grad for p in parameters if p.grad is not None])
        if finite:
            undo.hold_parameters()
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif finite:
            self.optimizer.step()
        return finite


def _add(earlier: list[tuple[Tensor, Tensor]]) -> None:
    """Add the gradients of earlier batches of a step to this one's."""
    for parameter, gradient in earlier:
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient
