"""The groups of samples: whole numbers or text, of this process and of all."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lai_core._adapters import numbered
from lai_torch._curation.processes.group import Alone

NUMBERS, TEXT = 1, 2


class Groups(NamedTuple):
    """The groups of all processes' samples, and what they are called where they are text."""

    numbers: Tensor
    names: Sequence[str] = ()


def check_groups(groups: Any, samples: int) -> None:
    """Raise unless there is one group per sample, all whole numbers or all text."""
    if groups is None:
        return
    text = not isinstance(groups, Tensor)
    listed = isinstance(groups, Collection) and not isinstance(groups, str | Mapping)
    if text and not (listed and all(isinstance(one, str) for one in groups)):
        msg = (
            "groups: expected a tensor of whole numbers, or a list of text, one per sample, got "
            f"{type(groups).__name__}"
        )
        raise TypeError(msg)
    shape = (len(groups),) if text else tuple(groups.shape)
    if shape != (samples,):
        msg = f"groups: expected shape ({samples},), got {shape}"
        raise ValueError(msg)
    if not text and (groups.is_floating_point() or groups.is_complex()):
        msg = f"groups: expected whole numbers, got {groups.dtype}"
        raise TypeError(msg)


def joined_groups(groups: Sequence[Any] | None) -> Any:
    """Return the groups of several batches as those of one."""
    if groups is None or isinstance(groups[0], Tensor):
        return None if groups is None else torch.cat(list(groups))
    return [one for each in groups for one in each]


def gathered_groups(group: Alone, groups: Any) -> Groups | None:
    """Return the groups of all processes' samples, which all pass numbers, all text or none."""
    kind = 0 if groups is None else NUMBERS if isinstance(groups, Tensor) else TEXT
    if not (most := group.most(kind)):
        return None
    with group.agreed():
        if kind != most:
            expected = ("", "whole numbers", "text")[most]
            got = ("None", "whole numbers", "text")[kind]
            msg = f"groups: expected {expected} on every process, as on one, got {got}"
            raise ValueError(msg)
    names: list[str] = []
    if kind == TEXT:
        # the same numbers on every process, so that policies see the same
        names = sorted({str(one) for own in group.objects(sorted(set(groups))) for one in own})
        groups = torch.as_tensor(numbered(groups, names), device="cpu")
    if group.size > 1:
        groups = group.gathered(groups.to(group.device, torch.int64))[0]
    return Groups(groups, names)


def dropped_shares(weights: Tensor, groups: Groups) -> dict[Any, float]:
    """Return the share of each group that got no weight."""
    numbers = groups.numbers.to(weights.device)
    return {
        groups.names[number] if groups.names else number: float(
            (weights[numbers == number] <= 0).double().mean()
        )
        for number in numbers.unique().tolist()
    }
