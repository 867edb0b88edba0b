"""Which layer is the last, what is used after it, and which products LAI does not read.

Of what is used after the last layer, an offset is added, and a normalisation's gain multiplies entry by
entry: neither is a layer. Any other use of several entries may be one more layer, whose products are added up
later on (`y = sum_i w_i h_i`), by functions that nobody lists. So it is refused, unless one of the rules for
layers reads it.
"""

import warnings
from collections.abc import Container, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import resolve_name

from lai_torch._recording.rules.elementwise import ADDING, BROADCASTING, NORMS, SCALING
from lai_torch._recording.watching.recorder import Recorder, Shortcut
from lai_torch._recording.watching.uses import HIDDEN, READ_BY_LAI, Ends, Use

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


def parameters_downstream(recorder: Recorder, ends: Ends) -> list[str]:
    """Return the parameters that the losses reach without passing a layer that LAI reads."""
    near, own = set(ends.probes), ends.leaves
    found = {
        name: None
        for use in recorder.uses
        if use.kind not in READ_BY_LAI and (use.probe in near or id(use.activations) in own)
        for name in use.weight.names
    }
    return [*found, *(name for name, one in recorder.parameters.items() if id(one) in own)]


def has_others(recorder: Recorder, ends: Ends) -> bool:
    """Whether the losses reach a parameter behind the last layer that neither model nor loss registers."""
    own = set(map(id, recorder.parameters.values()))
    return any(isinstance(leaf, nn.Parameter) and key not in own for key, leaf in ends.leaves.items())


def unrecognised_products(recorder: Recorder, names: Iterable[str]) -> dict[str, str]:
    """Return which of the parameters behind the last layer may be one more, and by which functions."""
    found = {}
    for name in names:
        if recorder.parameters[name].numel() > 1 and (function := _multiplied(recorder, name)) is not None:
            found[name] = function
    return found


def _multiplied(recorder: Recorder, name: str) -> str | None:
    """Return the function that may multiply the batch with a parameter entry by entry, if one does."""
    if functions := products(recorder, name):
        return functions[0]
    used, axes = recorder.met.get(name), recorder.parameters[name].ndim
    if not used or name in recorder.wrapped:
        return HIDDEN
    for function, given, grows in used:
        # Rows of a matrix beside each sample, all at once or one by one, are prototypes. One number that is
        # added, computed of a parameter, is a penalty.
        offset = function in ADDING and (axes == 1 or given == 0 or (given == axes and not grows))
        if not offset and function not in NORMS:
            return resolve_name(function) or str(function)
    return None


def last_layer(
    recorder: Recorder,
    values: Tensor,
    ends: Ends,
    last: str | None,
    past: Mapping[str, str],
    *,
    ghost_alone: bool,
) -> Use | None:
    """Return the last layer; None where LAI could read none, or several, and Ghost is recorded.

    What makes one more layer, which LAI does not read, is named in `past`, and by which function.

    Raises
    ------
    ValueError
        If there is none that LAI could read, or several.
    """
    layers = {use.probe: use for use in recorder.uses if use.kind in READ_BY_LAI}
    near = set(ends.probes)
    reached = [use for probe, use in layers.items() if probe in near]
    if last is not None:
        return _named(last, reached)
    if not reached and past and not recorder.every_layer:
        check_last(past, recorder.parameters)
    if not reached and not (recorder.every_layer and values.requires_grad):
        msg = (
            "model: expected the loss to depend on the output of a layer with a registered weight "
            f"(seen: {[use.name for use in layers.values()]}), it depends on none; the output may be "
            "detached, or computed by a function that cannot be watched"
        )
        raise ValueError(msg)
    if ghost_alone:
        return reached[-1] if reached else None
    if len(reached) > 1:
        if recorder.every_layer:
            return None  # Ghost needs none
        names = list(dict.fromkeys(use.name for use in reached))
        raise ValueError(_several(names, len(reached)))
    if past and not recorder.every_layer:
        check_last(past, recorder.parameters)
    return reached[0] if reached and not past else None


def check_read_once(final: Use | None, recorder: Recorder, behind: Container[str]) -> Use | None:
    """Return the last layer; None for Ghost if the losses use its parameters after it, too.

    What they read there, such as a penalty on the weight, is no part of the layer's record.

    Raises
    ------
    ValueError
        If they do, and only the last layer is recorded.
    """
    if final is None:
        return None
    names = [*final.weight.names, *(() if final.bias is None else final.bias.names)]
    twice = next((name for name in names if name in behind and name in recorder.trainable), None)
    if twice is None:
        return final
    if recorder.every_layer:
        return None
    msg = (
        f"model: the loss reads {twice!r}, a parameter of the last layer, in another way too, which LAI and "
        "LLI do not see: leave a penalty to the optimizer's weight_decay or lai_torch.Kept(auxiliary=), or "
        "use estimator 'ghost' or 'exact'"
    )
    raise ValueError(msg)


def is_last(shortcut: Shortcut, recorder: Recorder, ends: Ends) -> bool:
    """Whether the layer at which gradients were switched on is the last one."""
    return len(recorder.uses) > shortcut.last and ends.probes == [recorder.uses[shortcut.last].probe]


def _named(last: str, reached: list[Use]) -> Use:
    chosen = [use for use in reached if use.name == last]
    if len(chosen) != 1:
        names = list(dict.fromkeys(use.name for use in reached))
        found = f"used {len(chosen)} times there" if chosen else f"not one of {names}"
        msg = f"last: expected the name of one layer whose output the loss uses, got {last!r}, {found}"
        raise ValueError(msg)
    return chosen[0]


def _several(names: list[str], uses: int) -> str:
    if len(names) < uses:
        return (
            f"model: expected one final layer, found {uses} uses of {names} whose outputs reach the loss "
            "side by side: a layer on several inputs of one sample has no single readout; put these "
            "inputs on an axis of positions (of a loss in chunks: in eval mode, in which a curator scores, "
            "fewer samples at a time by chunk=), or use estimator 'ghost' or 'exact'"
        )
    return (
        f"model: expected one final layer, found {uses} whose outputs reach the loss: {names}; "
        f"pass last={names[0]!r} (or another of them)"
    )
