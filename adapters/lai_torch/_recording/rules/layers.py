"""What each function does with a parameter: the rules of the recorder for layers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lai_torch._model.signatures import written
from lai_torch._recording.rules.elementwise import BROADCASTING, NORMS, with_plain_values
from lai_torch._recording.rules.experts import GROUPED, chosen, grouped, product
from lai_torch._recording.rules.products import CONTRACTIONS, as_computed, contracted, dense
from lai_torch._recording.watching.recorder import Recorder, Rule, opened
from lai_torch._recording.watching.uses import Source, Use, refused


def _linear(recorder: Recorder, func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Record `a W^T + b`."""
    if recorder.every_layer:
        out = product(recorder, input, weight, bias, transposed=False)
        if out is not NotImplemented:
            return out
    return dense(recorder, input, weight, bias, transposed=False)


def _matmul(recorder: Recorder, func: Any, input: Any, other: Any, **options: Any) -> Any:
    """Record `a W` or `W a`, whichever side is the parameter."""
    if not options and recorder.every_layer:
        out = product(recorder, input, other, None, transposed=True)
        if out is not NotImplemented:
            return out
    if options or not isinstance(input, Tensor) or not isinstance(other, Tensor):
        return NotImplemented
    if recorder.source(other) is not None and recorder.is_batched(input):
        if other.ndim == 1:
            return contracted(recorder, input, range(input.ndim), other, [input.ndim - 1])
        return dense(recorder, input, other, None, transposed=True)
    if recorder.source(input) is not None and recorder.is_batched(other) and other.ndim >= 2:
        return _from_left(recorder, func, input, other)
    return NotImplemented


@with_plain_values
def _from_left(recorder: Recorder, func: Any, input: Tensor, other: Tensor) -> Any:
    """Record `W a`."""
    if input.ndim == 1:
        return contracted(recorder, other, range(other.ndim), input, [other.ndim - 2])
    out = dense(recorder, recorder.mark(other.transpose(-1, -2)), input, None, transposed=False)
    return out if out is NotImplemented else recorder.mark(out.transpose(-1, -2))


def _addmm(recorder: Recorder, func: Any, input: Any, mat1: Any, mat2: Any, **options: Any) -> Any:
    """Record `b + a W`."""
    return NotImplemented if options else dense(recorder, mat1, mat2, input, transposed=True)


def _convolution(
    recorder: Recorder,
    func: Any,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Record a convolution: a matrix used on every patch."""
    source, offset = recorder.source(weight), recorder.source(bias)
    if source is None or not recorder.is_batched(input) or (bias is not None and offset is None):
        return NotImplemented
    axes = weight.ndim - 2
    if input.ndim != axes + 2 or input.shape[0] != recorder.samples or (offset and not offset.whole):
        return NotImplemented
    if not input.numel() or weight.is_complex():
        return NotImplemented
    if recorder.gates:
        raise refused(source.name.removesuffix(".weight"))
    stride, dilation = _each(stride, axes), _each(dilation, axes)
    kernel = tuple(weight.shape[2:])
    inputs = input if recorder.every_layer else recorder.cut(input)
    options = (stride, padding, dilation, groups)
    offsets = None if bias is None else recorder.cut(bias)
    output = written(func)(inputs, recorder.cut(weight), offsets, *options)
    output, probe = recorder.probe(output)
    geometry = {
        "kernel": kernel,
        "stride": stride,
        "padding": _padding(padding, kernel, dilation),
        "dilation": dilation,
        "groups": groups,
    }
    kept = recorder.kept(as_computed(inputs), "convolution")
    use = Use("convolution", source, probe, kept, offset, options=geometry)
    recorder.note(use)
    return output


def _each(value: Any, axes: int) -> tuple[int, ...]:
    """Return one number per axis of space."""
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    return values * axes if len(values) == 1 else values


def _padding(value: Any, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the zeros before and after each axis of space."""
    if value == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((each, each) for each in _each(0 if value == "valid" else value, len(kernel)))


def _embedding(
    recorder: Recorder,
    func: Any,
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table, read by ids of the batch; ids that no sample changes make a derived parameter."""
    source = recorder.source(weight)
    if source is None or not recorder.trains(source):
        return NotImplemented
    if scale_grad_by_freq:
        raise _by_frequency(source)
    if (
        not source.whole
        or not recorder.is_batched(input)
        or recorder.samples not in input.shape
        or max_norm is not None
    ):
        return NotImplemented
    output, probe = recorder.probe(functional.embedding(input, weight.detach()))
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    recorder.note(Use("embedding", source, probe, input, options={"padding": padding}))
    return output


def _by_frequency(source: Source) -> ValueError:
    """Build the error for an embedding whose gradients are divided by counts over the batch."""
    return ValueError(
        f"model: {source.name!r} is read with scale_grad_by_freq=True, which divides a sample's gradient by "
        "how often the batch has its ids: samples are coupled, and no sample has a gradient of its own"
    )


def _bag(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse what couples samples; the rest is an operation like any other."""
    names = ("input", "weight", "offsets", "max_norm", "norm_type", "scale_grad_by_freq")
    given = dict(zip(names, args, strict=False)) | kwargs
    source = recorder.source(given.get("weight"))
    if source is not None and recorder.trains(source) and given.get("scale_grad_by_freq", False):
        raise _by_frequency(source)
    return NotImplemented


def _index(recorder: Recorder, func: Any, table: Any, key: Any) -> Any:
    """`table[ids]`, the same as an embedding; `experts[number]`, one matrix of many."""
    out = chosen(recorder, func, table, key)
    if out is not NotImplemented:
        return out
    ids = isinstance(key, Tensor) and not key.is_floating_point() and key.dtype != torch.bool
    if not ids or recorder.source(table) is None or table.ndim != 2 or not recorder.is_batched(key):
        return NotImplemented
    return _embedding(recorder, functional.embedding, key, table)


def _attention(recorder: Recorder, func: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
    """`nn.MultiheadAttention`: run its own code under the recorder; samples are on axis 1 inside."""
    outside, recorder.batch_axis = recorder.batch_axis, 1
    try:
        with recorder:
            return opened(func)(query, *args, **kwargs)
    finally:
        recorder.batch_axis = outside


def _batch_norm(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse statistics of the batch that a model keeps: they couple its samples.

    Those of a weight are of no sample. What keeps none may be given one sample at a time, positions for rows:
    whether samples meet there is proved as of any operation.
    """
    names = ("input", "running_mean", "running_var", "weight", "bias", "training")
    if func is torch.batch_norm:
        names = ("input", "weight", "bias", "running_mean", "running_var", "training")
    given = dict(zip(names, args, strict=False)) | kwargs
    of_batch = given.get("training", False) and recorder.is_batched(given.get("input"))
    if of_batch and given.get("running_mean") is None:
        return NotImplemented
    if of_batch:
        msg = (
            f"model: {_owner(recorder, given)} normalises with the statistics of the batch, so that one "
            "sample's loss depends on the others and no per-sample gradient exists; call model.eval() "
            "first (Curator scores in eval mode by itself), or use GroupNorm or LayerNorm"
        )
        raise ValueError(msg)
    rule = NORMS.get(func) if recorder.every_layer else None
    return NotImplemented if rule is None else rule(recorder, func, *args, **kwargs)


def _owner(recorder: Recorder, given: dict[str, Any]) -> str:
    """Name the batch normalisation by its parameters or buffers."""
    for key in ("weight", "running_mean"):
        tensor: Tensor | None = given.get(key)
        found = recorder.source(tensor)
        name = found.name if found else recorder.owners.get(id(tensor), "")
        if name:
            return f"BatchNorm {name.rpartition('.')[0]!r}"
    return "a batch normalisation"


_PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)

_ATEN = torch.ops.aten
"""What exported programs call."""
_CONVOLUTIONS = tuple(
    one
    for name in ("conv1d", "conv2d", "conv3d")
    for one in (getattr(functional, name), getattr(_ATEN, name).default, getattr(_ATEN, name).padding)
)

LAYERS: dict[Any, Rule] = {
    **CONTRACTIONS,
    **dict.fromkeys((functional.linear, _ATEN.linear.default), _linear),
    **dict.fromkeys((*_PRODUCTS, _ATEN.matmul.default, _ATEN.mm.default), _matmul),
    **dict.fromkeys((torch.addmm, Tensor.addmm, _ATEN.addmm.default), _addmm),
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    functional.multi_head_attention_forward: _attention,
    functional.batch_norm: _batch_norm,
    torch.batch_norm: _batch_norm,
}
"""Rules of the functions that LAI sees, and of those that couple samples."""

EVERYTHING: dict[Any, Rule] = {
    **BROADCASTING,
    **NORMS,
    functional.embedding: _embedding,
    functional.embedding_bag: _bag,
    Tensor.__getitem__: _index,
    **dict.fromkeys(GROUPED, grouped),
    **LAYERS,
}
"""Rules of all functions whose parameters Ghost explains."""
