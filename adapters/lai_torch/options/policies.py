"""From scores to weights: policies with options."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core._adapters import accept_old_keywords, check_count, check_number
from lai_torch.options.protocols import Policy, ask


@dataclass(frozen=True)
class Scheduled:
    """A policy that is asked at some steps only; the others train on everything, and score nothing.

    Parameters
    ----------
    policy
        The policy.
    when
        From the number of a step, from 0, to whether the policy is asked. For how much is kept as training
        goes on, write a policy that names `step` among its arguments.

    Examples
    --------
    >>> import lai_core as lai
    >>> import lai_torch
    >>> policy = lai_torch.Scheduled(lai.keep_positive, lambda step: step % 4 == 0 and step < 1000)
    >>> [step for step in (0, 1, 4, 1000) if policy.applies(step)]
    [0, 4]
    """

    policy: Policy
    when: Callable[[int], bool]

    def __call__(self, scores: Tensor, **seen: Any) -> Tensor:
        """Return the policy's weights."""
        return ask(self.policy, scores, seen)

    def applies(self, step: int) -> bool:
        """Say whether the policy is asked at a step."""
        return bool(self.when(step))


@dataclass(frozen=True)
class GroupFloor:
    """Keep at least a fraction of every group of samples, its best ones first; else as another policy does.

    Weights are scaled so that their sum stays. What is kept for its group alone weighs as much as the kept
    weigh on average.

    Parameters
    ----------
    fraction
        Fraction of every group that is kept at least, in [0, 1]; groups are the `groups=` of a step.
    policy
        What else is kept.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> scores, groups = torch.tensor([2.0, 1.0, -1.0, -3.0]), torch.tensor([0, 0, 1, 1])
    >>> [round(weight, 2) for weight in lai_torch.GroupFloor(0.5)(scores, groups=groups).tolist()]
    [0.33, 0.33, 0.33, 0.0]
    """

    fraction: float
    policy: Policy = lai.keep_positive

    def __post_init__(self) -> None:
        check_number("fraction", self.fraction, at_least=0.0, at_most=1.0)

    def __call__(self, scores: Tensor, groups: Any, **seen: Any) -> Tensor:
        """Return the weights `(n,)`."""
        if groups is None:
            msg = "groups: GroupFloor expects them with every batch, got None; pass step(..., groups=...)"
            raise ValueError(msg)
        # the inner policy may ask for anything that a policy sees
        weights = ask(self.policy, scores, seen | {"groups": groups})
        # of parts, the sum is the score
        total = scores
        if scores.ndim > 1:
            total = scores.sum(0)
        # a group's floor keeps no sample whose score is not known
        finite = torch.isfinite(total)
        weights, groups = torch.where(finite, weights, 0.0), groups.to(weights.device)
        kept = weights > 0
        whole = torch.ones_like(weights.sum())
        usual: Tensor | float = 1.0 / len(weights)
        if bool(kept.any()):
            whole, usual = weights.sum(), weights[kept].mean()
        raised = weights.clone()
        # of each group the best by score, at the usual weight of what is kept
        for group in groups.unique():
            members = ((groups == group) & finite).nonzero().squeeze(1)
            wanted = math.ceil(self.fraction * int((groups == group).sum()))
            best = members[total[members].argsort(descending=True)][:wanted]
            # a group that keeps enough is left as the policy has it
            if int((weights[members] > 0).sum()) < wanted:
                raised[best] = torch.where(raised[best] > 0, raised[best], usual)
        return raised * (whole / raised.sum()) if bool((raised > 0).any()) else raised


# a dataclass writes its own constructor, which no decorator reaches
GroupFloor.__init__ = accept_old_keywords(share="fraction")(GroupFloor.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True)
class KeepBelowLoss:
    """Drop samples whose loss is above a quantile of the validation set's; else as another policy does.

    The own loss is often the better sign of a wrong label, the score that of a sample that helps.

    Parameters
    ----------
    quantile
        Of the validation set's losses, as they were when it was last traced; in (0, 1].
    policy
        What is kept of the rest, whose scores it sees; the others' are NaN to it.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> policy = lai_torch.KeepBelowLoss(0.5)
    >>> losses, known = torch.tensor([0.1, 2.0, 0.2]), torch.tensor([0.1, 0.5, 0.9])
    >>> policy(torch.tensor([1.0, 1.0, -1.0]), losses=losses, validation_losses=known).tolist()
    [1.0, 0.0, 0.0]
    """

    quantile: float
    policy: Policy = lai.keep_positive

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, above=0.0, at_most=1.0)

    def __call__(self, scores: Tensor, losses: Tensor, validation_losses: Tensor, **seen: Any) -> Tensor:
        """Return the weights `(n,)`."""
        seen |= {"losses": losses, "validation_losses": validation_losses}
        # of fewer digits than float32 torch has no quantile
        known = validation_losses.to(losses.device, torch.promote_types(losses.dtype, torch.float32))
        highest = known[torch.isfinite(known)].quantile(self.quantile)
        return ask(self.policy, torch.where(losses <= highest, scores, torch.nan), seen)


def draw(
    scores: Tensor, size: int, *, floor: float = 0.1, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    r"""Draw a batch from a scored pool by priority, with the weights that keep the update unbiased.

    Parameters
    ----------
    scores
        `(pool,)`; positive helps, what is not finite is never drawn.
    size
        How many to draw, with replacement.
    floor
        Share of the probability that is spread evenly, in (0, 1]: above 0, or samples that are never
        drawn could not be weighed.
    generator
        For the draw. None: torch's default one.

    Returns
    -------
    tuple
        Row numbers `(size,)` and weights :math:`1 / (pool \cdot p_j \cdot size)`: the weighted sum of
        the drawn losses has as its expectation the mean loss of the pool (of its finite part).

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> index, weights = lai_torch.draw(torch.tensor([0.0, 3.0, 1.0]), 2)
    >>> index.shape, weights.shape
    (torch.Size([2]), torch.Size([2]))
    """
    check_count("size", size)
    check_number("floor", floor, above=0.0, at_most=1.0)
    chances: Tensor = lai.sampling_probabilities(scores, floor=floor)
    index = torch.multinomial(chances, size, replacement=True, generator=generator)
    return index, 1.0 / ((chances > 0).sum() * chances[index] * size)
