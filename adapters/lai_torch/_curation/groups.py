"""Groups of samples, for example classes: what share of each is dropped."""

from typing import Any

from torch import Tensor


def dropped_shares(weights: Tensor, groups: Tensor) -> dict[Any, float]:
    """Return the share of each group that got no weight."""
    groups = groups.to(weights.device)
    return {group.item(): float((weights[groups == group] <= 0).double().mean()) for group in groups.unique()}
