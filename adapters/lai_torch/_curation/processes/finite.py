"""Whether tensors are finite, from one number: a sum of squares is finite only if its terms are."""

from collections.abc import Sequence

import torch
from torch import Tensor

_PLAIN = frozenset({Tensor, torch.nn.Parameter})


def witness(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return a number that is finite only if every entry of the tensors is; None where none can be had.

    It may be infinite though all entries are finite: their squares, or the sum of them, may overflow. So it
    can acquit, and `are_finite` looks at every entry where it does not.
    """
    if not _PLAIN.issuperset(map(type, tensors)) or any(one.layout != torch.strided for one in tensors):
        return None
    if not tensors:
        return torch.zeros((), device="cpu")
    return torch.nn.utils.get_total_norm(tensors)


def are_finite(tensors: Sequence[Tensor], seen: bool | None = None) -> bool:
    """Say whether every entry of the tensors is finite; `seen` is what their witness said, if asked."""
    if seen is None:
        number = witness(tensors)
        seen = number is not None and bool(torch.isfinite(number))
    return seen or all(bool(torch.isfinite(list_entries(one)).all()) for one in tensors)


def list_entries(tensor: Tensor) -> Tensor:
    """Return what a tensor holds: of a sparse one the values, each place's added up."""
    return tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor
