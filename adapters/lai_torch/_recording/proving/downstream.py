"""Parameters used after the last layer: gains and offsets, or a product that LAI does not read.

An offset is added, and a normalisation's gain multiplies entry by entry: neither is a layer. Any other use of
several entries may be one more layer, whose products are added up later on (`y = sum_i w_i h_i`), by
functions that nobody lists. So it is refused, unless one of the rules for layers reads it.
"""

from collections.abc import Iterable

from torch import nn
from torch.overrides import resolve_name

from lai_torch._recording.rules.elementwise import ADDING, NORMS
from lai_torch._recording.rules.unread import HIDDEN, products
from lai_torch._recording.watching.probes import Ends
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.uses import READ_BY_LAI


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
