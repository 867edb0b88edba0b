"""Parameters that are added, multiplied or normalise, and any other function, by its own pullback.

Whatever a function does, the gradient of one sample's loss for its parameter is the function's pullback
of that sample's part of the output gradient. So the function runs on a copy of the parameter, its output
gets a probe, and the pullback waits until a record asks for it.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import resolve_name

from lai_torch._model.batch import mapped, tensors
from lai_torch._model.sample_axis import SampleAxis, candidates
from lai_torch._recording.watching.recorder import Recorder, Rule
from lai_torch._recording.watching.uses import Probe, Source, Use


def with_plain_values(rule: Rule) -> Rule:
    """Let a rule's output have the plain function's values to the bit, and the gradients that it records.

    Functions that are equal round differently. Where a ReLU's input is zero but for roundings, it opens by
    one of them and not by the other, and the recorded gradient is not the plain one. Batches of 1,000 samples
    have such inputs. LAI reads no gradient of a layer before the last one.

    Parameters
    ----------
    rule
        Returns a tensor that no other one shares numbers with, and that no function has saved for a backward
        pass.

    Returns
    -------
    Rule
        Likewise.
    """

    @functools.wraps(rule)
    def ruled(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
        out = rule(recorder, func, *args, **kwargs)
        if out is not NotImplemented and recorder.every_layer:
            with torch.no_grad():
                out.detach().copy_(func(*args, **kwargs))
        return out

    return ruled


def broadcast(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an elementwise `func` with every trainable parameter in `args` replaced by its copies."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    if not any(recorder.is_batched(value) for value in given):
        return NotImplemented
    shape = torch.broadcast_shapes(*(value.shape for value in given))
    copied = {
        id(value): copies
        for value in given
        if (source := recorder.source(value)) is not None
        and recorder.trains(source)
        and (copies := _copies(recorder, source, shape)) is not None
    }
    if not copied:
        return NotImplemented
    batched = [value for value in given if recorder.is_batched(value)]
    if func in SCALING and shape.numel() > max(value.numel() for value in batched):
        for use in recorder.uses[-len(copied) :]:  # the batch is broadcast over the parameter's own axes
            use.options["function"] = resolve_name(func) or str(func)

    def own(value: Any) -> Any:
        return copied.get(id(value), value) if isinstance(value, Tensor) else value

    return func(*map(own, args), **{key: own(value) for key, value in kwargs.items()})


def _copies(recorder: Recorder, source: Source, shape: torch.Size) -> Tensor | None:
    """Return the parameter, once per sample along every axis of `shape` that may hold the samples."""
    aligned = (1,) * (len(shape) - source.tensor.ndim) + tuple(source.tensor.shape)
    free = [length if size == 1 else 0 for length, size in zip(shape, aligned, strict=True)]
    sample_axes = [
        sample_axis
        for sample_axis in candidates(free, recorder.samples, recorder.batch_axis)
        if free[sample_axis.axis]
    ]
    sample_axes = [
        sample_axis for sample_axis in sample_axes if sample_axis.plain
    ] or sample_axes  # copies take memory
    if not sample_axes:
        return _own_rows(recorder, source, aligned, shape)
    expanded = list(aligned)
    for sample_axis in sample_axes:
        expanded[sample_axis.axis] = shape[sample_axis.axis]
    return leaf(recorder, source, source.tensor.detach().reshape(aligned).expand(expanded), sample_axes)


def _own_rows(
    recorder: Recorder, source: Source, aligned: tuple[int, ...], shape: torch.Size
) -> Tensor | None:
    """Return what already has a row per sample (a table read with constant ids): row i is sample i's."""
    pairs = enumerate(zip(aligned, shape, strict=True))
    sample_axes = [SampleAxis(axis) for axis, (size, length) in pairs if size == length == recorder.samples]
    if source.whole or not sample_axes:
        return None
    return leaf(recorder, source, source.tensor.detach().reshape(aligned), sample_axes, own_rows=True)


def leaf(
    recorder: Recorder,
    source: Source,
    copies: Tensor,
    sample_axes: list[SampleAxis],
    *,
    own_rows: bool = False,
) -> Tensor:
    """Make `copies` of a parameter a leaf whose gradient is recorded, samples along one of `sample_axes`."""
    copies = copies.detach().requires_grad_()
    use = Use("direct", source, Probe(), copies, batch_axis=recorder.batch_axis)
    use.options.update(shape=tuple(source.tensor.shape), own_rows=own_rows, sample_axes=sample_axes)
    recorder.note(use)
    return recorder.mark(copies)


def _elementwise(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
    return broadcast(recorder, func, args, kwargs)


def _expand(recorder: Recorder, func: Any, tensor: Any, *sizes: Any, **kwargs: Any) -> Any:
    """Take a class token that is written out for every sample as its copies."""
    source = recorder.source(tensor)
    if source is None or not recorder.trains(source):
        return NotImplemented
    expanded = func(tensor.detach(), *sizes, **kwargs)
    aligned = (1,) * (expanded.ndim - tensor.ndim) + tuple(tensor.shape)
    pairs = enumerate(zip(expanded.shape, aligned, strict=True))
    sample_axes = [SampleAxis(axis) for axis, pair in pairs if pair == (recorder.samples, 1)]
    if expanded.ndim < 2 or recorder.samples == 1 or not sample_axes:
        return NotImplemented
    return leaf(recorder, source, expanded, sample_axes)


def _affine(recorder: Recorder, normalized: Tensor, weight: Any, bias: Any, axis: int | None) -> Tensor:
    """Multiply by a gain and add an offset: the last axes', or those of the channels on `axis`."""
    recorder.mark(normalized)
    for func, parameter in ((torch.mul, weight), (torch.add, bias)):
        if parameter is None:
            continue
        if axis is None:
            out = broadcast(recorder, func, (normalized, parameter), {})
            normalized = func(normalized, parameter) if out is NotImplemented else out
        else:
            moved = normalized.movedim(axis, -1)
            out = broadcast(recorder, func, (recorder.mark(moved), parameter), {})
            moved = func(moved, parameter) if out is NotImplemented else out
            normalized = moved.movedim(-1, axis)
        recorder.mark(normalized)
    return normalized


def _trainable(recorder: Recorder, *parameters: Any) -> bool:
    found = [recorder.source(parameter) for parameter in parameters]
    return any(source is not None and recorder.trains(source) for source in found)


def _norm(func: Any, axis: int | None = None, **fixed: Any) -> Rule:
    """Return the rule of a normalisation: without its gain and offset, which then follow."""
    names = tuple(inspect.signature(func).parameters)
    affine = dict.fromkeys({"weight", "bias"}.intersection(names))

    def rule(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        weight, bias = given.get("weight"), given.get("bias")
        if not _trainable(recorder, weight, bias) or not recorder.is_batched(given["input"]):
            return NotImplemented
        return _affine(recorder, func(**given | affine | fixed), weight, bias, axis)

    return with_plain_values(rule)


def _prelu(recorder: Recorder, func: Any, input: Any, weight: Any) -> Any:
    if not _trainable(recorder, weight) or not recorder.is_batched(input):
        return NotImplemented
    axis = 1 if input.ndim > 1 and weight.numel() > 1 else None
    negative = _affine(recorder, input.clamp(max=0), weight, None, axis)
    return recorder.mark(input.clamp(min=0) + negative)


def _scaled_attention(
    recorder: Recorder,
    func: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Copy a position bias that comes as the mask: a parameter added to the similarities."""
    source = recorder.source(attn_mask)
    if source is None or not recorder.trains(source) or not recorder.is_batched(query):
        return NotImplemented
    copies = _copies(recorder, source, torch.Size((*query.shape[:-1], key.shape[-2])))
    return NotImplemented if copies is None else func(query, key, value, copies, *args, **kwargs)


def _forms(names: str) -> set[Any]:
    forms = [form for name in names.split() for form in (name, name + "_")]
    return {getattr(owner, form) for owner in (torch, Tensor) for form in forms if hasattr(owner, form)}


BROADCASTING: dict[Any, Rule] = {
    **dict.fromkeys(
        _forms(
            "add sub subtract rsub mul multiply div divide true_divide pow where maximum minimum addcmul "
            "addcdiv lerp atan2 __radd__ __rmul__ __rsub__ __rtruediv__ __rdiv__ __rpow__"
        ),
        _elementwise,
    ),
    Tensor.expand: _expand,
    Tensor.expand_as: _expand,
    Tensor.repeat: _expand,
    torch.broadcast_to: _expand,
    Tensor.broadcast_to: _expand,
    functional.prelu: _prelu,
    functional.scaled_dot_product_attention: _scaled_attention,
}
"""Rules of the functions that combine a parameter with a batch element by element."""


ADDING = _forms("add sub subtract rsub __radd__ __rsub__")
"""Functions that add a parameter to the batch, or compare both."""

SCALING = _forms("mul multiply div divide true_divide __rmul__ __rtruediv__")
"""Functions that are products where they broadcast the batch over the parameter's own axes."""

NORMS: dict[Any, Rule] = {
    functional.layer_norm: _norm(functional.layer_norm),
    functional.rms_norm: _norm(functional.rms_norm),
    functional.group_norm: _norm(functional.group_norm, axis=1),
    functional.batch_norm: _norm(functional.batch_norm, axis=1, training=False),
    functional.instance_norm: _norm(functional.instance_norm, axis=1),
}
"""Rules of the normalisations with a gain and an offset."""


def operation(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run `func` on copies of its trainable parameters, and note a use of each one an output."""
    given = tensors((args, kwargs))
    sources: dict[int, Source] = {}
    for value in given:
        source = recorder.source(value)
        if source is not None and recorder.trains(source):
            sources[id(value)] = source
    if not sources or not any(map(recorder.is_batched, given)) or _writes(func, kwargs):
        return NotImplemented
    copies = {key: source.tensor.detach().requires_grad_() for key, source in sources.items()}
    out = func(*mapped(args, _replacing(copies)), **mapped(kwargs, _replacing(copies)))
    probed: dict[int, Tensor] = {}
    for result in tensors(out):
        if not result.requires_grad or id(result) in probed:
            continue
        probed[id(result)], probe = recorder.probe(result.clone())
        for key, source in sources.items():
            use = Use("operation", source, probe, result, batch_axis=recorder.batch_axis)
            use.options.update(leaf=copies[key], function=resolve_name(func) or str(func))
            recorder.note(use)
    return mapped(out, _replacing(probed)) if probed else out


def _replacing(copies: dict[int, Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda tensor: copies.get(id(tensor), tensor)


def _writes(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a function writes to what it is given: then it is left alone."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return name in {"__setitem__", "__set__"} or (name.startswith("__i") and name != "__invert__")
    return name.endswith("_") or "out" in kwargs
