"""The pass `kept` on several processes: one synchronised backward pass, which all of them take part in."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lai_core._adapters import rounding_bound
from lai_torch._curation.passes.base import Gradient, KeptPass, Losses, coupling, nothing
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.group import Alone
from lai_torch._curation.scorers.base import Batch, Scorer
from lai_torch._graph.prove import draw_weights, norm
from lai_torch._model.batch import Loss, count, holds_rows, mapped, rows, tensors
from lai_torch._model.preserve import preserved
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
        expected = None if self.engine.proved else self._expected(trained, own, parts)
        for attempts in reversed(range(2 + moves)):
            kept, found, buffers = self._run(trained, own)
            values = found.losses.detach()[: len(kept)]
            finite = torch.isfinite(values)
            if not group.most(not bool(finite.all())):
                break
            expected = None
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
        if expected is not None:
            check_synchronised(self.engine, *expected)
        return Gradient(used, losses, moved)

    def _expected(self, batch: Batch, weights: Tensor, parts: int) -> tuple[str, Tensor, float]:
        """Return the name of a parameter, its gradient added up without a wrapper, and the size of its terms.

        With weights of random sign the samples' gradients add up to the root of their sum of squares.
        """
        group = self.engine.group
        kept = (weights > 0).nonzero().squeeze(1)
        share = self._share(len(kept))
        with self.engine.gathered(), preserved(self.model, self.loss), group.agreed():
            part, size = self._part(batch, kept)
            losses, own = self._run_rows(self.model, part, size), weights[kept] / parts
            named = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
            name = compared(named)
            found = []
            for signs in (torch.ones_like(own), draw_weights(own, torch.isfinite(own)).sign()):
                total = losses.total(own * signs, share / parts)
                (one,) = torch.autograd.grad(total, [named[name]], allow_unused=True, retain_graph=True)
                found.append(torch.zeros_like(named[name]) if one is None else one.nan_to_num())
        scale = 1.0 if self.scaler is None else self.scaler.get_scale()
        expected, terms = (one * scale for one in group.summed(found))
        return name, expected, norm(terms)

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


COARSEST = torch.bfloat16
"""What training may compute in, or send gradients in: a wrapper's own types and hooks are not to be seen."""

NUMBERS = 2**20
"""Of a parameter that is compared, where there is one with as few."""


def compared(parameters: Mapping[str, Tensor]) -> str:
    """Return which parameter to compare: of many numbers, for few may be alike by chance."""
    small = [name for name, each in parameters.items() if each.numel() <= NUMBERS]
    if small:
        return max(small, key=lambda name: parameters[name].numel())
    return min(parameters, key=lambda name: parameters[name].numel())


def check_synchronised(engine: Engine, name: str, expected: Tensor, terms: float) -> None:
    """Compare a parameter's gradient with what adding up without the wrapper gave.

    Wrappers average by default, and can be told to sum. One that does gets this step's gradients divided,
    and later ones right from the start. A step in which the sum nearly cancels may not tell which.

    Roundings of the samples are independent and add up to their share of the `terms`; those of parameters in
    few digits are the same for all samples, and add up to their share of the sum. In bfloat16 that is 6% of
    both. What one process leaves out is seen, 1% of one sample is not: the wrapper has no part in that.

    Parameters
    ----------
    engine
        The model and its wrapper.
    name, expected
        The parameter, and the gradient that was added up without the wrapper.
    terms
        The root of the sum of squares of the samples' shares in it.

    Raises
    ------
    ValueError
        If the gradient is neither: the wrapper is bypassed, or does something of its own.
    """
    size = engine.group.size
    given = dict(engine.model.named_parameters())[name].grad
    whole = engine.group.whole(torch.zeros_like(expected) if given is None else given).double()
    expected = expected.double()
    off = {each: float((whole / each - expected).norm()) for each in (1, size)}
    if engine.group.most(not off[1] < float("inf")):  # a scaled gradient that overflows tells nothing
        return
    within = rounding_bound(torch.finfo(COARSEST).eps, terms + float(expected.norm()))
    fits = [each for each in off if off[each] <= within]
    if engine.group.most(not fits):
        msg = (
            f"model: expected its wrapper to average gradients over the {size} processes, or to sum them; "
            f"that of {name!r} is neither everywhere, here off by {min(off.values()):.2g} where roundings "
            f"explain {within:.2g}; leave out no_sync, and hooks that change gradients"
        )
        raise ValueError(msg)
    if engine.group.most(len(fits) > 1):
        return
    engine.proved = True
    if fits == [1]:
        return
    engine.divides = False
    for each in engine.model.parameters():
        if each.grad is not None:
            each.grad.div_(size)
