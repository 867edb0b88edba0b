"""Groups of samples, for example classes: what share of each is dropped, and a floor under what is kept."""

import math
from typing import Any

import torch
from torch import Tensor


def with_floor(weights: Tensor, scores: Tensor, groups: Tensor, floor: float) -> Tensor:
    """Keep at least the share `floor` of every group, its best samples first; the sum stays as it was.

    A sample that is kept for its group alone weighs as much as the kept weigh on average.
    """
    groups = groups.to(weights.device)
    kept = weights > 0
    total = weights.sum() if bool(kept.any()) else torch.ones_like(weights.sum())
    usual = weights[kept].mean() if bool(kept.any()) else 1.0 / weights.shape[0]
    raised = weights.clone()
    for group in groups.unique():
        members = ((groups == group) & torch.isfinite(scores)).nonzero().squeeze(1)
        wanted = math.ceil(floor * int((groups == group).sum()))
        best = members[scores[members].argsort(descending=True)][:wanted]
        if int((weights[members] > 0).sum()) < wanted:
            raised[best] = torch.where(raised[best] > 0, raised[best], usual)
    return raised * (total / raised.sum()) if bool((raised > 0).any()) else raised


def dropped_shares(weights: Tensor, groups: Tensor) -> dict[Any, float]:
    """Return the share of each group that got no weight."""
    groups = groups.to(weights.device)
    return {group.item(): float((weights[groups == group] <= 0).double().mean()) for group in groups.unique()}
