"""The pass `kept` on several processes: one synchronised backward pass, which all of them take part in."""

from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.estimators import Scorer
from lai_torch._curation.passes.base import Gradient, KeptPass, find_coupling, weigh_losses
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.group import Group
from lai_torch._curation.readings import Batch
from lai_torch._curation.weigh import Weighed
from lai_torch._model.batch import count, holds_rows, map_tensors, rows, tensors
from lai_torch.options import KeptOptions


class SynchronisedPass(KeptPass):
    """Scores as `kept` does; what is decided of the kept rows is decided by all processes.

    Parameters
    ----------
    engine
        What runs forward, and with whom.
    """

    def __init__(self, engine: Engine, scorer: Scorer, training: KeptOptions) -> None:
        super().__init__(scorer, training)
        self.engine = engine

    def backward(self, batch: Batch, weighed: Weighed, parts: int, *_: Any) -> Gradient:
        """Run the kept rows forward and backward, on every process if one has any."""
        group, losses = self.engine.group, torch.full_like(weighed.weights, torch.nan)
        if not weighed.kept:
            return Gradient("kept", losses)
        trained, shares, index = batch, weighed.shares, weighed.rows
        # where every process keeps its whole batch, rows stay where the loader put them
        if self.training.balance and group.reduce_max(index is not None):
            trained, shares, index = balance_rows(batch, weighed, group)
        # a batch that gave all of its rows away has none to run in step with the others
        found, buffers = self._run(trained if len(shares) else batch, index, shares)
        # a policy's weights may be of fewer digits
        losses = losses.to(torch.promote_types(losses.dtype, found[0].dtype))
        values = found[0].detach()[: len(shares)].to(losses)
        moved = trained is not batch
        if not moved:
            losses = values if index is None else losses.index_copy_(0, index, values)
        objective = (values * shares.to(values)).sum()
        share = 1.0
        if self.training.auxiliary is not None:
            share = len(shares) / max(group.totals(len(shares))[0], 1.0)
        if found[0].numel():
            self._backpropagate(weigh_losses(found, shares, share) * (self.engine.factor / parts))
        for buffer, before in buffers:
            buffer.data.copy_(before)
        return Gradient("kept", losses, objective, moved)

    def _run(
        self, batch: Batch, index: Tensor | None, shares: Tensor
    ) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """Run the kept rows, or rows that count for nothing; raise everywhere or nowhere.

        Returns the losses, those of rows that count for nothing behind them, and the buffers to put back
        where nothing else ran.
        """
        buffers: list[tuple[Tensor, Tensor]] = []
        try:
            with self.engine.group.raise_together():
                self.engine.check_averages()
                part, size = self._part(batch, index, len(shares))
                if size and not len(shares):
                    buffers = [(one, one.detach().clone()) for one in self.model.buffers()]
                found = [shares[:0]]
                # a process with no row to run takes part in the collectives alone
                if size:
                    found = self._run_rows(self.engine.trained, part, size)
        except BaseException:
            self.engine.reset()
            raise
        return found, buffers

    def _part(self, batch: Batch, index: Tensor | None, kept: int) -> tuple[Batch, int]:
        """Return the rows to run, and how many: BatchNorm needs two, and a wrapper one from every process."""
        samples = count(*batch)
        least = 0
        if kept or self.engine.lockstep:
            least = 1 + (find_coupling(self.model) is not None)
        size = max(kept, least)
        if index is None and size == kept:
            return batch, samples
        if index is None:  # of a single sample
            index = torch.arange(samples, device=self.engine.group.device)
        if kept:
            return rows(batch, torch.cat([index, index[:1].expand(size - kept)]), samples), size
        first = rows(batch, index.new_zeros(size), samples)
        return map_tensors(first, lambda one: torch.zeros_like(one) if one.is_floating_point() else one), size


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
    # each turn is the last one of a giver or of a taker, so that there are fewer than processes
    while spare and lack:
        (giver, more), (taker, fewer) = spare.pop(), lack.pop()
        rows = min(more, fewer)
        plan[giver][taker] = rows
        if more > rows:
            spare.append((giver, more - rows))
        if fewer > rows:
            lack.append((taker, fewer - rows))
    return plan


def balance_rows(batch: Batch, weighed: Weighed, group: Group) -> tuple[Batch, Tensor, Tensor | None]:
    """Return the rows that this process is to train on, their weights, and which of the batch they are."""
    _, slices = group.gather_rows(weighed.weights)
    counts = [int((weighed.everyone[part] > 0).sum()) for part in slices]
    plan, samples = plan_of(counts), count(*batch)
    gives, takes = plan[group.rank], [row[group.rank] for row in plan]
    # the plan is the same on every process: none of them goes on to exchange rows
    if not any(map(any, plan)):
        return batch, weighed.shares, weighed.rows
    staying = len(weighed.shares) - sum(gives)

    def share(rows: Tensor) -> Tensor:
        taken = rows.new_empty((sum(takes), *rows.shape[1:]))
        group.exchange(taken, rows[staying:].contiguous(), takes, gives)
        return torch.cat([rows[:staying], taken])

    def share_tensor(tensor: Tensor) -> Tensor:
        if not holds_rows(tensor, samples):
            return tensor
        own = tensor if weighed.rows is None else tensor[weighed.rows.to(tensor.device)]
        return share(own.contiguous())

    with group.raise_together():
        shapes = repr([(one.shape[1:], one.dtype, holds_rows(one, samples)) for one in tensors(batch)])
    # rows travel as plain numbers, and would be read in the form that they have here
    if not group.has_equal(shapes):
        msg = (
            "balance: expected the processes' batches to have the same shape behind the first axis, so that "
            "rows can move between them; pad them to a common length, or leave balance out"
        )
        raise ValueError(msg)
    return map_tensors(batch, share_tensor), share(weighed.shares), None
