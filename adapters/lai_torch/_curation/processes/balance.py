"""Share kept rows out, so that every process trains on as many, one more or less."""

from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.processes.group import Alone
from lai_torch._model.batch import count, holds_rows, mapped, tensors

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
