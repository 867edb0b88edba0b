"""The pass `kept` on several processes: one synchronised backward pass, which all of them take part in."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.passes.base import Gradient, KeptPass, Losses, coupling, nothing
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.group import Alone
from lai_torch._curation.scorers.base import Batch, Scorer
from lai_torch._model.batch import Loss, count, holds_rows, mapped, rows, tensors
from lai_torch.options import Kept


class SynchronisedPass(KeptPass):
    """Scores as `kept` does; what is decided of the kept rows is decided by all processes.

    Parameters
    ----------
    engine
        What runs forward, and with whom.
    """

    def __init__(self, engine: Engine, loss: Loss, scorer: Scorer, chunk: int | None, training: Kept) -> None:
        super().__init__(engine.model, loss, scorer, chunk, training)
        self.engine, self.balance = engine, training.balance

    def _backward(
        self, batch: Batch, weights: Tensor, parts: int, restore_buffers: Callable[[], None] = nothing
    ) -> Gradient:
        """Run the kept rows forward and backward.

        The weight of rows whose loss is not finite is spread over all others, on every process.
        """
        group, losses, used = self.engine.group, torch.full_like(weights, torch.nan), weights
        if not group.most(bool((weights > 0).any())):
            return Gradient(weights, losses)
        moves = self.balance and bool(group.most(not bool((weights > 0).all())))
        trained, own = balanced(batch, weights, group) if moves else (batch, weights)
        for attempts in reversed(range(2 + moves)):
            kept, found, buffers = self._run(trained, own)
            values = found.losses.detach()[: len(kept)]
            finite = torch.isfinite(values)
            if not group.most(not bool(finite.all())):
                break
            restore_buffers()
            if not attempts:
                return Gradient(torch.zeros_like(weights), losses)
            if trained is batch:
                used = torch.zeros_like(used).index_copy(0, kept[finite], used[kept[finite]])
            trained, own = batch, used
        wanted, left = group.totals(float(weights.sum()), float(used.sum()))
        if left != wanted:
            used, own = used * (wanted / left), own * (wanted / left)
        moved = None
        if trained is batch:
            losses[kept] = values.to(losses)
        else:
            moved = float((values * own[kept].to(values)).sum())
        share = self._share(len(kept))
        if found.losses.numel():
            total = found.total(own[kept], share) * (self.engine.factor / parts)
            (total if self.scaler is None else self.scaler.scale(total)).backward()
        for buffer, before in buffers:
            buffer.data.copy_(before)
        return Gradient(used, losses, moved)

    def _share(self, kept: int) -> float:
        """Return the share of all trained rows that run here, if a single number is to be added up."""
        if self.auxiliary is None:
            return 1.0
        return kept / max(self.engine.group.totals(kept)[0], 1.0)

    def _run(self, batch: Batch, weights: Tensor) -> tuple[Tensor, Losses, list[tuple[Tensor, Tensor]]]:
        """Run the rows with a positive weight, or rows that count for nothing; raise everywhere or nowhere.

        Returns the rows, the losses, those of rows that count for nothing behind them, and the buffers
        to put back where nothing else ran.
        """
        kept = (weights > 0).nonzero().squeeze(1)
        buffers: list[tuple[Tensor, Tensor]] = []
        try:
            with self.engine.group.agreed():
                self.engine.check_averages()
                part, size = self._part(batch, kept)
                if size and not kept.numel():
                    buffers = [(one, one.detach().clone()) for one in self.model.buffers()]
                found = self._run_rows(self.engine.trained, part, size) if size else Losses(weights[:0])
        except BaseException:
            self.engine.reset()
            raise
        return kept, found, buffers

    def _part(self, batch: Batch, kept: Tensor) -> tuple[Batch, int]:
        """Return the rows to run, and how many: BatchNorm needs two, and a wrapper one from every process."""
        samples = count(*batch)
        least = (2 if coupling(self.model) else 1) if kept.numel() or self.engine.lockstep else 0
        size = max(len(kept), least)
        if size == samples == len(kept):
            return batch, samples
        if kept.numel():
            return rows(batch, torch.cat([kept, kept[:1].expand(size - len(kept))]), samples), size
        first = rows(batch, kept.new_zeros(size), samples)
        return mapped(first, lambda one: torch.zeros_like(one) if one.is_floating_point() else one), size


class LocalPass(KeptPass):
    """The pass `kept` for a wrapped model whose gradients are all-reduced after the backward pass."""

    def _finite(
        self, batch: Batch, kept: Tensor, losses: Tensor, restore_buffers: Callable[[], None]
    ) -> tuple[Tensor, Losses | None]:
        """Run the rows `kept`; what is to be dropped cannot be spread over the others from here."""
        left, found = super()._finite(batch, kept, losses, restore_buffers)
        if len(left) < len(kept):
            msg = (
                "backward: a kept row has a loss in training that is not finite, though it was when it was "
                "scored; on several processes use backward='kept', which drops it everywhere"
            )
            raise ValueError(msg)
        return left, found


Plan = list[list[int]]
"""How many rows each process (first index) gives to each other one (second)."""


def plan_of(counts: list[int]) -> Plan:
    """Return who gives how many rows to whom; every process finds the same plan, and no row moves twice.

    With a quota of floor(total / processes) rows each, and one more for those that have most, what a
    process has beyond its quota has to move, and no more does.
    """
    size, total = len(counts), sum(counts)
    ranked = sorted(range(size), key=lambda rank: -counts[rank])
    quota = {rank: total // size + (place < total % size) for place, rank in enumerate(ranked)}
    spare = [(rank, counts[rank] - quota[rank]) for rank in range(size) if counts[rank] > quota[rank]]
    lack = [(rank, quota[rank] - counts[rank]) for rank in range(size) if counts[rank] < quota[rank]]
    plan = [[0] * size for _ in range(size)]
    while spare and lack:
        (giver, more), (taker, fewer) = spare.pop(), lack.pop()
        rows = min(more, fewer)
        plan[giver][taker] = rows
        if more > rows:
            spare.append((giver, more - rows))
        if fewer > rows:
            lack.append((taker, fewer - rows))
    return plan


def balanced(batch: Any, weights: Tensor, group: Alone) -> tuple[Any, Tensor]:
    """Return the rows that this process is to train on, and their weights."""
    everyone, slices = group.gathered(weights)
    counts = [int((everyone[part] > 0).sum()) for part in slices]
    plan, samples = plan_of(counts), count(*batch)
    kept = (weights > 0).nonzero().squeeze(1)
    gives, takes = plan[group.rank], [row[group.rank] for row in plan]
    staying = len(kept) - sum(gives)
    if not any(map(any, plan)):
        return batch, weights

    def shared(tensor: Tensor) -> Tensor:
        if not holds_rows(tensor, samples):
            return tensor
        rows = tensor[kept.to(tensor.device)].contiguous()
        taken = rows.new_empty((sum(takes), *rows.shape[1:]))
        group.exchange(taken, rows[staying:].contiguous(), takes, gives)
        return torch.cat([rows[:staying], taken])

    with group.agreed():
        shapes = repr([(one.shape[1:], one.dtype, holds_rows(one, samples)) for one in tensors(batch)])
    if not group.alike(shapes):
        msg = (
            "balance: expected the processes' batches to have the same shape behind the first axis, so that "
            "rows can move between them; pad them to a common length, or leave balance out"
        )
        raise ValueError(msg)
    return mapped(batch, shared), shared(weights)
