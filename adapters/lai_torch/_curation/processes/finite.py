"""Whether tensors are finite, from one number each: a sum of squares is finite only if its terms are."""

from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

SMALL = 2**18
"""Bytes, at most, that are copied side by side: of many small tensors that takes less than a norm of each."""
_FORM, _BYTES = attrgetter("layout", "device", "dtype"), attrgetter("nbytes")
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
WIDER = dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)


def witness(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return a number that is finite only if every entry of the tensors is; None where none can be had.

    It may be infinite though all entries are finite: their squares, or the sum of them, may overflow. So it
    can acquit, and `are_finite` looks at every entry where it does not.
    """
    forms = list(map(_FORM, tensors))
    found = dict.fromkeys(forms)
    if not _PLAIN.issuperset(map(type, tensors)) or any(layout != torch.strided for layout, *_ in found):
        return None
    norms: list[Tensor] = []
    for form in found:
        group = [one for one, own in zip(tensors, forms, strict=True) if own == form]
        wider = WIDER.get(form[2])
        if sum(map(_BYTES, group)) <= SMALL:
            norms.append(torch.linalg.vector_norm(_flatten_dense_tensors(group), dtype=wider))
        else:
            norms.append(torch.stack(torch._foreach_norm(group, 2, dtype=wider)).sum())
    if not norms:
        return torch.zeros((), device="cpu")
    first, *others = norms
    for other in others:
        first = first + other.to(first.device)
    return first


def are_finite(tensors: Sequence[Tensor], seen: bool | None = None) -> bool:
    """Say whether every entry of the tensors is finite; `seen` is what their witness said, if asked."""
    if seen is None:
        number = witness(tensors)
        seen = number is not None and bool(torch.isfinite(number))
    return seen or all(bool(torch.isfinite(list_entries(one)).all()) for one in tensors)


def list_entries(tensor: Tensor) -> Tensor:
    """Return what a tensor holds: of a sparse one the values, each place's added up."""
    return tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor
