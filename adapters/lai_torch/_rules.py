"""What each function does with a parameter: the rules of the recorder."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lai_torch._recorder import Recorder, Rule, Use


def _dense(recorder: Recorder, func: Any, inputs: Any, weight: Any, bias: Any = None) -> Any:
    """`s = W a + b`, as `functional.linear` computes it."""
    return dense(recorder, inputs, weight, bias, transposed=False)


def dense(recorder: Recorder, inputs: Any, weight: Any, bias: Any, *, transposed: bool) -> Any:
    """Record `a W^T + b`, or `a W + b` where the parameter is stored `transposed`."""
    source = recorder.source(weight)
    if source is None or not recorder.is_batched(inputs) or weight.ndim != 2:
        return NotImplemented
    offset = recorder.source(bias)
    if bias is not None and (offset is None or not offset.whole):
        return NotImplemented
    inputs = inputs if recorder.every_layer else inputs.detach()
    matrix = weight.detach().T if transposed else weight.detach()
    output = functional.linear(inputs, matrix, None if bias is None else bias.detach())
    output, tap = recorder.tap(output)
    activations = inputs.detach()
    recorder.uses.append(
        Use(
            "dense",
            source,
            tap,
            activations,
            offset,
            transposed=transposed,
            version=activations._version,
            function="linear",
            batch_axis=recorder.batch_axis,
        )
    )
    return output


def _batch_norm(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse statistics of the batch: they couple its samples."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training")
    if func is torch.batch_norm:
        names = ("input", "weight", "bias", "running_mean", "running_var", "training")
    given = dict(zip(names, args, strict=False)) | kwargs
    if given.get("training", False):
        msg = (
            f"model: {_owner(recorder, given)} normalises with the statistics of the batch, so that one "
            "sample's loss depends on the others and no per-sample gradient exists; call model.eval() "
            "first (Curator scores in eval mode by itself), or use GroupNorm or LayerNorm"
        )
        raise ValueError(msg)
    return NotImplemented


def _owner(recorder: Recorder, given: dict[str, Any]) -> str:
    """Name the batch normalisation by its parameters or buffers."""
    for key in ("weight", "running_mean"):
        tensor: Tensor | None = given.get(key)
        found = recorder.source(tensor)
        name = found.name if found else recorder.owners.get(id(tensor), "")
        if name:
            return f"BatchNorm {name.rpartition('.')[0]!r}"
    return "a batch normalisation"


LAYERS: dict[Any, Rule] = {
    functional.linear: _dense,
    functional.batch_norm: _batch_norm,
    torch.batch_norm: _batch_norm,
}
"""Rules of the functions that LAI sees, and of those that couple samples."""

EVERYTHING: dict[Any, Rule] = {**LAYERS}
"""Rules of all functions whose parameters Ghost explains."""

READ_BY_LAI = ("dense",)
"""Kinds of use that LAI has a virtual readout from."""
