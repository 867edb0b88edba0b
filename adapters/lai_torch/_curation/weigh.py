"""From all processes' scores to this one's weights: the policy is asked, checked, and read once."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core.estimators.policies import top_count
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.group import digest
from lai_torch._curation.readings import Scored
from lai_torch._curation.state import CuratorState
from lai_torch.options.policies import Scheduled
from lai_torch.options.protocols import Policy, ask, wants

Groups = tuple[Tensor, Sequence[str]]
"""The numbers of all processes' samples' groups, and what these are called where they are text."""


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


def weigh(
    engine: Engine,
    state: CuratorState,
    scored: Scored | None,
    samples: int,
    policy: Policy,
    groups: Groups | None,
    *,
    wait: bool = False,
) -> Weighed:
    """Return the weights of this process's samples, all alike where none is scored.

    The policy reads the scores of all processes. So no policy needs another form on several processes: they
    gather n numbers, not what it is made of. It may ask for the groups and the losses. Where it keeps as many
    rows whatever the scores are, nothing is read here, unless told to `wait` for it.
    """
    group = engine.group
    if scored is None:
        total = int(group.totals(samples)[0])
        like = next(engine.model.parameters())
        # in which a sum of losses keeps its digits
        kind = torch.promote_types(like.dtype, torch.float32).to_real()
        everyone = torch.full((total,), 1.0 / total, dtype=kind, device=like.device)
        return Weighed(everyone[:samples], everyone, None, everyone[:samples], total)
    scores, slices = group.gather_rows(scored.scores)
    given = scores
    seen: dict[str, Any] = {"groups": groups and groups[0], "step": state.steps}
    seen["validation_losses"] = state.validation_losses
    if "losses" in wants(policy):
        seen["losses"] = group.gather_rows(scored.losses)[0]
    if scored.sizes is not None:
        given, seen["sizes"] = group.gather_rows(scored.parts.T)[0].T, scored.sizes
    with group.raise_together():
        weights: Any = ask(policy, given, seen)
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
        weights = weights.detach().to(scores.device)
        if wait or group.size > 1 or (count := _count_kept(policy, len(scores))) is None:
            found = read_weights(weights, scores, slices[group.rank])
        else:
            # Without a wait for the device: the rows with the so many positive weights, of which those with
            # one weight keep their order. Where fewer are positive, as their scores are not finite, the first
            # row stands in for them, with weight 0.
            shares, order = (one[:count] for one in weights.sort(descending=True, stable=True))
            some = shares > 0
            asked = some.sum(dtype=torch.float32), scores.isnan().sum(dtype=torch.float32)
            found = Weighed(weights, weights, torch.where(some, order, order[0]), shares, count, asked=asked)
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


def _count_kept(policy: Policy, samples: int) -> int | None:
    """Return how many samples a policy keeps of so many finite scores; None where they decide it."""
    if isinstance(policy, Scheduled):
        policy = policy.policy
    if not isinstance(policy, functools.partial) or policy.func is not lai.keep_top or policy.args:
        return None
    if not {"fraction"} <= policy.keywords.keys() <= {"fraction", "normalize"}:
        return None
    return top_count(policy.keywords["fraction"], samples)
