"""Matrices that LAI sees nothing of: named in a warning, and refused where one of them comes last."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import resolve_name

from lai_torch._recording.rules.elementwise import BROADCASTING, NORMS, SCALING
from lai_torch._recording.watching.recorder import Recorder

HIDDEN = "a function that cannot be watched"
NESTED = " of a nested tensor"

_PLACING = (
    "cat concat concatenate stack hstack vstack dstack column_stack row_stack masked_fill masked_scatter "
    "index_put index_copy index_fill index_add scatter scatter_add slice_scatter select_scatter "
    "diagonal_scatter expand expand_as broadcast_to broadcast_tensors repeat tile view_as reshape_as to type "
    "type_as copy __setitem__ clamp clamp_min clamp_max clip fmin fmax copysign hypot logaddexp logaddexp2 "
    "xlogy pad mse_loss l1_loss smooth_l1_loss huber_loss nll_loss cross_entropy "
    "binary_cross_entropy_with_logits scaled_dot_product_attention"
)
_LOOKUPS = "embedding __getitem__ index_select gather take take_along_dim"


def _all_of(names: str) -> set[Any]:
    forms = [form for name in names.split() for form in (name, name + "_")]
    owners = (torch, Tensor, functional)
    return {getattr(owner, form) for form in forms for owner in owners if hasattr(owner, form)}


PLACING = _all_of(_PLACING) | set(BROADCASTING) | set(NORMS)
"""Functions that put a parameter beside the batch, add it, or weigh entries by it: no products."""

LOOKUPS = _all_of(_LOOKUPS)
"""Functions that read rows of a table: no products, where the table's rows are vectors."""


def products(recorder: Recorder, name: str) -> list[str]:
    """Return by which functions the parameter `name` is multiplied with the batch, unread."""
    of_matrices = {func for used in recorder.stuck.values() for func, (axes, _) in used.items() if axes > 1}
    found = []
    for func, (axes, grows) in recorder.stuck.get(name, {}).items():
        beside = func in PLACING and not (func in SCALING and grows and axes > 1)
        bias = axes <= 1 and func in of_matrices
        if not beside and not bias and not (func in LOOKUPS and axes <= 2):
            found.append((resolve_name(func) or str(func)) + NESTED * (name in recorder.nested))
    return found


def warn_of_unread(recorder: Recorder, hidden: Iterable[str]) -> None:
    """Warn of matrices that multiply something of the batch from which LAI has no readout."""
    found = {name: used[0] for name in recorder.stuck if (used := products(recorder, name))}
    found |= dict.fromkeys(hidden, HIDDEN)
    unread = "; ".join(f"{name!r} (used by {function})" for name, function in found.items())
    if unread:
        warnings.warn(
            f"model: LAI has no readout from the input of {unread}, and leaves it out; estimators 'ghost' "
            "and 'exact' see every parameter, or refuse",
            UserWarning,
            stacklevel=2,
        )


def check_last(past: Mapping[str, str], parameters: Mapping[str, Tensor]) -> None:
    """Raise: the loss reads a product that LAI does not see, past the last layer that it does."""
    name, function = next(iter(past.items()))
    if name in parameters and parameters[name].is_complex():
        msg = (
            f"model: expected a last layer of real numbers, got {name!r} of {parameters[name].dtype}: LAI "
            "and LLI read no complex layer; use estimator 'ghost' or 'exact'"
        )
        raise ValueError(msg)
    way_out = "write a product as nn.Linear, and a gain into the layer before it"
    if function == HIDDEN:
        way_out += (
            ", outside of torch.func.vmap: heads that are stacked, as one with all their outputs (or pass a "
            "scripted module as it was before torch.jit)"
        )
    elif function.endswith(NESTED):
        way_out = "pad its input (torch.nested.to_padded_tensor)"
    msg = (
        f"model: the loss depends on {name!r} (used by {function}) without another layer behind it: LAI "
        "and LLI read no such layer, and would take an earlier one for the last; use estimator 'ghost' or "
        f"'exact', or {way_out}"
    )
    raise ValueError(msg)
