"""Optimizer steps that cannot make a parameter non-finite."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.passes.base import Backward, Gradient, find_coupling
from lai_torch._curation.processes.engine import Engine, local
from lai_torch._curation.processes.finite import are_finite, list_entries, witness
from lai_torch._curation.state import CuratorState
from lai_torch._curation.undo import Undo, clear
from lai_torch._curation.weigh import Weighed


class Updater:
    """Accumulates the gradients of `accumulate` batches, then steps."""

    def __init__(
        self,
        optimizer: Any,  # what steps
        accumulate: int,  # how many batches make a step; each counts with one part in so many
        # the longest that a step's gradient may be; a longer one is shortened. None: any.
        max_norm: float | None,
        scaler: Any,  # a `torch.amp.GradScaler`, for half precision
        engine: Engine,  # who adds gradients up
    ) -> None:
        self.optimizer, self.parts, self.scaler = optimizer, accumulate, scaler
        self.engine, self.max_norm = engine, max_norm

    def accumulate(
        self, state: CuratorState, weighed: Weighed, backward: Backward, undo: Undo
    ) -> tuple[CuratorState, Weighed, Gradient]:
        """Add the gradient of `sum_j weights_j loss_j`, and make it ready at the last batch of a step.

        A batch whose loss or gradient is not finite contributes nothing, and one that contributes nothing
        leaves gradients and buffers as they were: BatchNorm's statistics would keep a NaN for good.
        """
        # accelerate's own accumulation switches the optimizer off
        accelerated = getattr(self.optimizer, "gradient_state", None)
        if accelerated is not None and not accelerated.sync_gradients:
            msg = (
                "optimizer: expected one that steps, got one inside accelerator.accumulate(), where it does "
                "not at every batch; leave that out, and pass Curator(accumulate=)"
            )
            raise ValueError(msg)
        earlier = undo.detach_gradients(begins=state.batches == 0)
        with self.engine.group.raise_together():
            found = backward(weighed, self.parts, undo.restore_buffers)
        for parameter, gradient in earlier:
            if parameter.grad is None:
                parameter.grad = gradient.clone()
            else:
                parameter.grad += gradient
        weighed, used = self._read(weighed, found)
        if not used:
            undo.restore_gradients()
            undo.restore_buffers()
        batches, contributions, ready = state.batches + 1, state.contributions + used, False
        if batches >= self.parts:
            ready = contributions > 0 and self._make_ready()
            # there is nothing to step with: no gradient and no statistic of these batches may stay
            if not ready:
                clear(self.optimizer)
                undo.restore_buffers()
            used = used and ready
            batches = contributions = 0
        state = replace(state, batches=batches, contributions=contributions)
        return state, weighed, replace(found, used=used, updated=ready)

    def step(self) -> None:
        with self.engine.group.raise_together():
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()

    def _read(self, weighed: Weighed, found: Gradient) -> tuple[Weighed, bool]:
        """Read, in one wait for the device, all that is still open; say whether the batch contributes."""
        if not weighed.kept:
            return weighed, False
        finite, ran = True, found.objective is not None
        if found.objective is not None:
            # scaled gradients may be infinite yet fine: their scaler looks at them
            gradients = []
            if self.scaler is None:
                gradients = self._gradients()
                if self.engine.sharded:
                    gradients = list(map(local, gradients))
            # one number for all gradients, read in the same wait as the losses
            seen = witness(gradients)
            asked = [one for one in (*weighed.asked, found.objective, seen) if one is not None]
            kind = torch.float64 if any(one.dtype == torch.float64 for one in asked) else torch.float32
            device = found.objective.device
            numbers = torch.stack([one.detach().to(device, kind) for one in asked]).tolist()
            finite, *norms = map(math.isfinite, numbers[len(weighed.asked) :])
            # a norm that is not finite may be that of finite gradients, whose squares overflow
            finite = finite and (norms == [True] or are_finite(gradients, False))
            if weighed.asked:
                kept, dropped = map(int, numbers[:2])
                # BatchNorm has seen the rows that stand in for ones that are not finite
                if kept < weighed.kept and find_coupling(self.engine.model) is not None:
                    finite = False
                weighed = replace(weighed, kept=kept, dropped=dropped)
        # of the processes none may be without a finite gradient, and some may be without a row
        outcome = int(ran)
        if not finite:
            outcome = 2
        return weighed, self.engine.group.reduce_max(outcome) == 1

    def _gradients(self) -> list[Tensor]:
        held = [p.grad for group in self.optimizer.param_groups for p in group["params"]]
        return [gradient for gradient in held if gradient is not None]

    def _make_ready(self) -> bool:
        """Add gradients up, unscale and clip them; say whether every one is finite."""
        self.engine.add_up([p for group in self.optimizer.param_groups for p in group["params"]])
        if self.scaler is not None:
            # a step that raised before `update` left there that it had unscaled
            getattr(self.scaler, "_per_optimizer_states", {}).pop(id(self.optimizer), None)
            self.scaler.unscale_(self.optimizer)
        # what each process found finite may overflow in a sum, and what is scaled was not looked at
        summed = self.engine.group.size > 1 and not self.engine.lockstep
        finite = not (summed or self.scaler is not None) or are_finite(self._gradients())
        if finite and self.max_norm is not None and (gradients := self._gradients()):
            # of sharded gradients, the norm over all shards
            norms = [torch.linalg.vector_norm(list_entries(each)) for each in gradients]
            whole = [self.engine.group.whole(norm) for norm in norms]
            total = torch.linalg.vector_norm(torch.stack([norm.to(whole[0]) for norm in whole]))
            # as torch.nn.utils.clip_grad_norm_ has it
            scale = (self.max_norm / (total + 1e-6)).clamp(max=1.0)
            for each in gradients:
                each.mul_(scale.to(each.device, each.dtype))
        if not finite and self.scaler is not None:
            self.step()  # which lowers the scale, and steps on nothing
        return finite
