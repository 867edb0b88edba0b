"""The record of a layer `s = W a (+ b)`: everything that is a product with a matrix comes here."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lai_torch._recording.rules.elementwise import broadcast
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.uses import Source, Use


def dense(recorder: Recorder, inputs: Any, weight: Any, bias: Any, *, transposed: bool) -> Any:
    """Record `a W^T + b`, or `a W + b` where the parameter is stored `transposed`."""
    source = recorder.source(weight)
    if source is None or not recorder.is_batched(inputs) or weight.ndim != 2 or recorder.is_batched(bias):
        return NotImplemented
    if inputs.ndim < 2 or weight.is_complex() or inputs.is_complex():
        return NotImplemented
    if not inputs.numel() or not weight.numel():
        return NotImplemented
    whole, turned = _whole(recorder, source)
    recorder.read_gates(inputs, whole.name.removesuffix(".weight"))
    offset = recorder.source(bias)
    joined = not recorder.is_source(bias) if offset is None else offset.whole
    inputs = inputs if recorder.every_layer else recorder.cut(inputs)
    matrix = recorder.cut(weight).requires_grad_(weight.requires_grad)  # torch picks kernels by it
    matrix = matrix.T if transposed else matrix
    constant = recorder.cut(bias) if isinstance(bias, Tensor) and joined else None
    output, probe = recorder.probe(functional.linear(inputs, matrix, constant))
    computed = as_computed(inputs)
    kept = recorder.kept(computed, "dense")
    recorder.note(
        Use(
            "dense",
            whole,
            probe,
            kept,
            offset if joined else None,
            transposed=transposed != turned,
            batch_axis=recorder.batch_axis,
            averaged_from=None if kept is computed else computed.ndim - 1,
        )
    )
    if joined:
        return output
    added = broadcast(recorder, torch.add, (output, bias), {}) if recorder.every_layer else NotImplemented
    return recorder.mark(output + bias if added is NotImplemented else added)


def _whole(recorder: Recorder, source: Source) -> tuple[Source, bool]:
    """Return the parameter itself where `source` is no more than a matrix of its entries, or that turned.

    A vector is a matrix of one row, and an array of more axes one with some of them merged.
    """
    if source.whole or len(source.names) > 1:
        return source, False
    parameter, seen = recorder.parameters[source.name], source.tensor
    if seen.numel() != parameter.numel() or seen.data_ptr() != parameter.data_ptr():
        return source, False
    if seen.shape == parameter.shape[::-1] and seen.stride() == parameter.stride()[::-1]:
        return Source(parameter, source.names, whole=True), True
    for turned, matrix in enumerate((seen, seen.T) if parameter.is_contiguous() else ()):
        if matrix.is_contiguous():
            return Source(matrix, source.names, whole=True), bool(turned)
    return source, False


def as_computed(inputs: Tensor) -> Tensor:
    """Return the input as the layer computes with it: autocast inside the model casts it first."""
    kind = inputs.device.type
    if torch.is_autocast_enabled(kind) and inputs.dtype != torch.float64:
        return inputs.detach().to(torch.get_autocast_dtype(kind))
    return inputs.detach()
