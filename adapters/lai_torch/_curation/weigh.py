"""From all processes' scores to this one's weights: the policy is asked, checked, and read once."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core.estimators.policies import top_count
from lai_torch._curation.processes.group import Group, digest
from lai_torch._curation.readings import Scored
from lai_torch.options.policies import Scheduled
from lai_torch.options.protocols import Policy, ask


@dataclass(frozen=True)
class Weighed:
    """The weights of a batch, and the rows that they keep."""

    weights: Tensor  # `(n,)`, of this process's samples; zero where a score is not finite
    everyone: Tensor  # those of all processes' samples
    rows: Tensor | None  # which of this process's samples are trained on, in order; None: all
    shares: Tensor  # the weight of each of these rows
    kept: int  # how many samples of all processes have a positive weight
    dropped: int = 0  # how many of this process's samples have a score that is not finite
    # How many weights are positive, and how many scores NaN, where `kept` and `dropped` go by the policy
    # alone. They are read with the gradient; nothing is left to be read where there are none.
    asked: tuple[Tensor, ...] = ()
    stands_in: bool = False  # whether some rows have no weight and stand in for ones that are not finite

    def settle(self, numbers: Sequence[float]) -> "Weighed":
        """Return this with `kept` and `dropped` as they were read."""
        if not self.asked:
            return self
        kept, dropped = map(int, numbers[:2])
        return replace(self, kept=kept, dropped=dropped, stands_in=kept < self.kept)


def weigh_alike(samples: int, group: Group, device: torch.device) -> Weighed:
    """Return the weights of a batch that trains without being scored: all samples of all processes alike."""
    total = int(group.totals(samples)[0])
    everyone = torch.full((total,), 1.0 / total, device=device)
    own = everyone[:samples]
    return Weighed(own, everyone, None, own, total)


def weigh(
    group: Group, scored: Scored, policy: Policy, told: dict[str, Any], own: dict[str, Tensor], *, wait: bool
) -> Weighed:
    """Return the weights of this process's samples; the policy reads those of all processes.

    So no policy needs another form on several processes: they gather n numbers, not what it is made of.
    Beside the scores it sees what it asks for of `told`, and of this process's `own` numbers a sample. Where
    it keeps as many rows whatever the scores are, nothing is read here, unless told to `wait` for it.
    """
    scores, slices = group.gather_rows(scored.scores)
    given = scores
    if scored.sizes is not None:
        given = group.gather_rows(scored.parts.T)[0].T
    seen = told | {name: group.gather_rows(values)[0] for name, values in own.items()}
    if scored.sizes is not None:
        seen["sizes"] = scored.sizes
    with group.raise_together():
        weights = _check_form(ask(policy, given, seen), scores)
        count = None if wait or group.size > 1 else _count_kept(policy, len(scores))
        if count is None:
            found = read_weights(weights, scores, slices[group.rank])
        else:
            found = _take_rows(weights, scores, count)
    if group.size > 1 and not group.has_equal(digest([found.everyone, found.everyone.cumsum(0)])):
        msg = (
            "policy: expected the same weights from the same scores on every process, got others; let it "
            "draw from a generator that is seeded alike, and read nothing else"
        )
        raise ValueError(msg)
    return found


def read_weights(weights: Tensor, scores: Tensor, own: slice = slice(None)) -> Weighed:
    """Return which rows weights keep, with one wait for the device; raise where they are no weights.

    A row whose score is NaN is not kept.
    """
    kind = torch.promote_types(weights.dtype, scores.dtype)
    read, of = torch.stack([weights.to(kind), scores.to(kind)]).tolist()
    lost = list(map(math.isnan, of))
    # a policy may turn NaN into any weight
    if any(lost):
        weights = torch.where(scores.isnan(), 0.0, weights)
        read = [0.0 if nan else weight for weight, nan in zip(read, lost, strict=True)]
    for weight in read:
        if not 0.0 <= weight < math.inf:
            msg = f"policy: expected weights that are finite and not negative, got {weight:g}"
            raise ValueError(msg)
    local, kept = weights[own], [row for row, weight in enumerate(read[own]) if weight > 0.0]
    rows, shares = None, local
    # without an index the batch is trained on as it is, uncopied
    if len(kept) < len(local):
        rows = torch.tensor(kept, dtype=torch.long, device=weights.device)
        shares = local.index_select(0, rows)
    return Weighed(local, weights, rows, shares, sum(weight > 0.0 for weight in read), sum(lost[own]))


def _take_rows(weights: Tensor, scores: Tensor, count: int) -> Weighed:
    """Return the rows with the so many positive weights, without a wait for the device.

    Where fewer are positive, as their scores are not finite, the first row stands in for them, with weight 0.
    """
    # Of the rows with one weight the sort keeps the order.
    shares, order = weights.sort(descending=True, stable=True)
    shares, order = shares[:count], order[:count]
    some = shares > 0
    rows = torch.where(some, order, order[0])
    asked = some.sum(dtype=torch.float32), scores.isnan().sum(dtype=torch.float32)
    return Weighed(weights, weights, rows, shares, count, asked=asked)


def _count_kept(policy: Policy, samples: int) -> int | None:
    """Return how many samples a policy keeps of so many finite scores; None where they decide it."""
    if isinstance(policy, Scheduled):
        policy = policy.policy
    if not isinstance(policy, functools.partial) or policy.func is not lai.keep_top or policy.args:
        return None
    if not {"fraction"} <= policy.keywords.keys() <= {"fraction", "normalize"}:
        return None
    return top_count(policy.keywords["fraction"], samples)


def _check_form(weights: Any, scores: Tensor) -> Tensor:
    """Return a policy's weights where the scores are, after checking that there is one a score."""
    name = "policy: expected weights as a floating-point tensor"
    if not isinstance(weights, Tensor):
        msg = f"{name}, one per sample, got {type(weights).__name__}"
        raise TypeError(msg)
    if not weights.is_floating_point():
        hint = "; divide a mask by the number of samples it keeps" if weights.dtype is torch.bool else ""
        msg = f"{name}, got {weights.dtype}{hint}"
        raise TypeError(msg)
    if weights.shape != scores.shape:
        msg = f"{name} of shape {tuple(scores.shape)}, got {tuple(weights.shape)}"
        raise ValueError(msg)
    return weights.detach().to(scores.device)
