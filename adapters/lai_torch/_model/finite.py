"""Whether tensors are finite, from one number each: a sum of squares is finite only if its terms are."""

from collections.abc import Sequence

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def witness(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return a number that is finite only if every entry of the tensors is; None where none can be had.

    It may be infinite though all entries are finite: their squares, or the sum of them, may overflow. So it
    can acquit, and `all_finite` looks at every entry where it does not.
    """
    if any(type(one) not in {Tensor, torch.nn.Parameter} or one.layout != torch.strided for one in tensors):
        return None
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for one in tensors:
        alike.setdefault((one.device, one.dtype), []).append(one)
    norms: list[Tensor] = []
    for (_, kind), group in alike.items():
        found = torch._foreach_norm(group, 2, dtype=torch.float32 if kind in HALVES else None)
        norms.append(torch.stack(found).sum())
    if not norms:
        return torch.zeros(())
    first, *others = norms
    for other in others:
        first = first + other.to(first.device)
    return first


def all_finite(tensors: Sequence[Tensor], seen: bool | None = None) -> bool:
    """Say whether every entry of the tensors is finite; `seen` is what their witness said, if asked."""
    if seen is None:
        number = witness(tensors)
        seen = number is not None and bool(torch.isfinite(number))
    return seen or all(bool(torch.isfinite(_entries(one)).all()) for one in tensors)


def _entries(tensor: Tensor) -> Tensor:
    """Return what a tensor holds: of a sparse one the values, each place's added up."""
    return tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor
