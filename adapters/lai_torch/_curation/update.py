"""Optimizer steps that cannot make a parameter non-finite."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.passes.base import Backward, Gradient
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.finite import witness
from lai_torch._curation.processes.group import Alone
from lai_torch._curation.undo import DeferredChecks, Undo, clear
from lai_torch.report import weighted_loss


@dataclass(frozen=True)
class Update:
    """What became of one batch."""

    weights: Tensor  # `(n,)`: the weights it was trained with; zeros where a sample was dropped
    losses: Tensor  # `(n,)`: the losses of the rows the model was trained on, NaN elsewhere
    kept: int  # how many weights are positive
    dropped: int  # how many rows with a positive weight were left out, their loss being not finite
    used: bool  # whether the batch contributed a gradient
    updated: bool  # whether the optimizer stepped
    moved: float | None = None  # as for `Gradient`

    @classmethod
    def untrained(cls, weights: Tensor, losses: Tensor | None) -> "Update":
        """Return what became of a batch that was weighed, and not trained on; its losses, where known."""
        losses = torch.full_like(weights, torch.nan) if losses is None else losses
        return cls(weights, losses, int((weights > 0).sum()), 0, used=True, updated=False)

    @property
    def loss(self) -> float:
        """The weighted loss that was minimised here; NaN if there was none."""
        return weighted_loss(self.weights, self.losses) if self.moved is None else self.moved


class Updater:
    """Accumulates the gradients of `accumulate` batches, then steps."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,  # what steps
        accumulate: int,  # how many batches make a step; each counts with one part in so many
        # the longest that a step's gradient may be; a longer one is shortened. None: any.
        max_norm: float | None,
        scaler: Any,  # a `torch.amp.GradScaler`, for half precision
        engine: Engine,  # who adds gradients up
        # what the step asked about values: all is read before anything of the optimizer changes
        deferred: DeferredChecks,
    ) -> None:
        self.optimizer, self.accumulate, self.scaler = optimizer, accumulate, scaler
        self.engine, self.deferred, self.max_norm = engine, deferred, max_norm
        self.batches = self.contributions = 0

    def step(self, weights: Tensor, backward: Backward, undo: Undo) -> Update:
        """Add the gradient of `sum_j weights_j loss_j`, and step if the batch is the last of a step's.

        Where a gradient is not finite nothing is stepped. A batch that contributes nothing leaves buffers as
        they were: BatchNorm's statistics would keep a NaN for good.
        """
        _check_steps(self.optimizer)
        earlier = undo.set_gradients_aside(begins=self.batches == 0)
        with self.engine.group.agreed():
            found = backward(weights, self.accumulate, undo.restore_buffers)
        _add(earlier)
        kept, dropped = _counts(weights, found)
        used = bool(self.engine.group.most(kept > 0))
        if not used:
            undo.restore_buffers()
        ends = self.batches + 1 >= self.accumulate
        seen = self._settled(ask=ends)
        self.batches += 1
        self.contributions += used
        updated = False
        if ends:
            updated = self.contributions > 0 and self._stepped(undo, seen)
            if not updated:
                clear(self.optimizer)
                undo.restore_buffers()
            used = used and updated
            self.batches = self.contributions = 0
        weights = found.weights if used else torch.zeros_like(found.weights)
        kept = kept if used else 0
        return Update(weights, found.losses, kept, dropped, used, updated, found.moved)

    def _settled(self, *, ask: bool) -> bool | None:
        """Read what waits to be read, and whether the gradients' sums are finite if that is asked."""
        # scaled ones may be infinite yet fine, and those of several processes are still to be added up
        asked = ask and self.scaler is None and not self.engine.spread
        number = witness(self._gradients()) if asked else None
        if number is None:
            self.deferred.resolve()
            return None
        return math.isfinite(self.deferred.resolve(number)[0])

    def rates(self) -> list[float]:
        """Return the learning rates that are plain numbers, which the host knows."""
        rates = (group.get("lr") for group in self.optimizer.param_groups)
        return [rate for rate in rates if isinstance(rate, float)]

    def _gradients(self) -> list[Tensor]:
        held = (p.grad for group in self.optimizer.param_groups for p in group["params"])
        return [gradient for gradient in held if gradient is not None]

    def _stepped(self, undo: Undo, seen: bool | None) -> bool:
        """Step if every gradient is finite; say whether they were."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.engine.add_up(parameters)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        finite = seen or self.engine.finite(self._gradients(), seen)  # nothing added to them since
        if finite and self.max_norm is not None:
            clip(self._gradients(), self.max_norm, self.engine.group)
        undo.stepping = finite
        with self.engine.group.agreed():
            if self.scaler is not None:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            elif finite:
                self.optimizer.step()
        return finite


def _check_steps(optimizer: Any) -> None:
    """Raise where accelerate's own accumulation has switched the optimizer off."""
    state = getattr(optimizer, "gradient_state", None)
    if state is not None and not state.sync_gradients:
        msg = (
            "optimizer: expected one that steps, got one inside accelerator.accumulate(), where it does not "
            "at every batch; leave that out, and pass Curator(accumulate=)"
        )
        raise ValueError(msg)


def clip(gradients: list[Tensor], max_norm: float, group: Alone) -> None:
    """Clip gradients to a common norm, in place; of sharded gradients, the norm over all shards."""
    norms = [
        torch.linalg.vector_norm(each.coalesce().values() if each.is_sparse else each) for each in gradients
    ]
    whole = [group.whole(norm) for norm in norms]
    if not whole:
        return
    total = torch.linalg.vector_norm(torch.stack([norm.to(whole[0]) for norm in whole]))
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_ has it
    for each in gradients:
        each.mul_(scale.to(each.device, each.dtype))


def _counts(weights: Tensor, found: Gradient) -> tuple[int, int]:
    """Return how many rows were kept, and how many of those with a positive weight were not."""
    if found.kept is not None:
        return found.kept, found.dropped
    kept = int((found.weights > 0).sum())
    return kept, int((weights > 0).sum()) - kept


def _add(earlier: list[tuple[Tensor, Tensor]]) -> None:
    """Add the gradients of earlier batches of a step to this one's."""
    for parameter, gradient in earlier:
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient
