"""Products that sum over axes of a parameter and of the batch: layers, however they are written.

`inner`, `tensordot`, `einsum`, a product with a vector, and a product entry by entry whose entries are
then summed are one thing: `s = W a`, with the summed axes as the inputs, the parameter's other axes as
the outputs, and the batch's other axes as samples and positions.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lai_torch._recording.rules.elementwise import broadcast, with_plain_values
from lai_torch._recording.watching.recorder import Recorder, Rule
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


def contracted(
    recorder: Recorder,
    data: Any,
    of_data: Sequence[Any],
    weight: Any,
    of_weight: Sequence[Any],
    out: Sequence[Any] | None = None,
) -> Any:
    """Record the sum of `data * weight` over the axes that are not in `out`; each axis has a name.

    An axis of both that stays is no sum: each of its entries has a matrix of its own. That is left alone.
    """
    source = recorder.source(weight)
    if source is None or not recorder.is_batched(data) or recorder.is_batched(weight):
        return NotImplemented
    of_data, of_weight = list(of_data), list(of_weight)
    summed = [axis for axis in of_weight if axis in of_data]
    rows = [axis for axis in of_data if axis not in summed]
    columns = [axis for axis in of_weight if axis not in summed]
    out = [*rows, *columns] if out is None else list(out)
    repeated = len(set(of_data)) < len(of_data) or len(set(of_weight)) < len(of_weight)
    if repeated or not rows or not summed or not set(summed).isdisjoint(out):
        return NotImplemented
    inputs = data.permute([of_data.index(axis) for axis in (*rows, *summed)]).flatten(len(rows))
    shape = [weight.shape[of_weight.index(axis)] for axis in columns]
    matrix = weight.permute([of_weight.index(axis) for axis in (*columns, *summed)])
    matrix = recorder.rearranged(matrix.reshape(prod(shape), -1), weight)
    found = dense(recorder, recorder.mark(inputs), matrix, None, transposed=False)
    if found is NotImplemented:
        return NotImplemented
    found = found.unflatten(-1, shape) if shape else found.squeeze(-1)
    every = [*rows, *columns]
    if gone := [place for place, axis in enumerate(every) if axis not in out]:
        found = found.sum(gone)
    left = [axis for axis in every if axis in out]
    return recorder.mark(found.permute([left.index(axis) for axis in out]))


def _either(recorder: Recorder, sides: Sequence[tuple[Any, Sequence[Any]]], out: Sequence[Any]) -> Any:
    """Record a product of two arrays, whichever of them is the parameter."""
    (left, of_left), (right, of_right) = sides
    if recorder.source(right) is not None:
        return contracted(recorder, left, of_left, right, of_right, out)
    return contracted(recorder, right, of_right, left, of_left, out)


def _tensordot(recorder: Recorder, func: Any, a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    if out is not None or not isinstance(a, Tensor) or not isinstance(b, Tensor) or isinstance(dims, Tensor):
        return NotImplemented
    pairs = dims if not isinstance(dims, int) else (range(a.ndim - dims, a.ndim), range(dims))
    of_a, of_b = [f"a{axis}" for axis in range(a.ndim)], [f"b{axis}" for axis in range(b.ndim)]
    for one, other in zip(*(side if not isinstance(side, int) else [side] for side in pairs), strict=True):
        of_b[other] = of_a[one]
    left = [axis for axis in (*of_a, *of_b) if (axis in of_a) != (axis in of_b)]
    return _either(recorder, ((a, of_a), (b, of_b)), left)


def _inner(recorder: Recorder, func: Any, input: Any, other: Any) -> Any:
    if input.ndim == 0 or other.ndim == 0:
        return NotImplemented
    return _tensordot(recorder, func, input, other, ([-1], [-1]))


def _mv(recorder: Recorder, func: Any, input: Any, vec: Any) -> Any:
    return _tensordot(recorder, func, input, vec, 1)


def _einsum(recorder: Recorder, func: Any, equation: Any, *operands: Any) -> Any:
    """Record an `einsum` of two arrays with an explicit output; one term may have an ellipsis."""
    if not isinstance(equation, str) or len(operands) != 2:
        return NotImplemented
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2 or all("..." in term for term in terms):
        return NotImplemented
    dots = [one.ndim - len(term.replace("...", "")) for one, term in zip(operands, terms, strict=True)]
    named = [_axes(term, count) for term, count in zip(terms, dots, strict=True)]
    return _either(recorder, list(zip(operands, named, strict=True)), _axes(out, max(dots)))


def _axes(term: str, dots: int) -> list[str]:
    """Return a name for each axis of a term; an ellipsis has `dots` axes."""
    before, ellipsis, after = term.partition("...")
    return [*before, *(f".{place}" for place in range(dots if ellipsis else 0)), *after]


def _sum(
    recorder: Recorder, func: Any, input: Any, dim: Any = None, keepdim: bool = False, **options: Any
) -> Any:
    """Record the sum, or the mean, of a product's entries along axes of a parameter."""
    factors = recorder.factors(input)
    if factors is None or options or dim is None or dim == ():
        return NotImplemented
    gone = {axis % input.ndim for axis in (dim if isinstance(dim, list | tuple) else [dim])}
    data, weight = factors if recorder.source(factors[1]) is not None else factors[::-1]
    if recorder.source(weight) is None:  # a parameter without a record: one backward pass per sample
        return NotImplemented
    sizes = [(1,) * (input.ndim - one.ndim) + tuple(one.shape) for one in (data, weight)]
    # where one side has a single entry it is broadcast, and the axis is the other side's alone
    of_weight = [axis for axis, size in enumerate(sizes[1]) if size > 1]
    of_data = [axis for axis, size in enumerate(sizes[0]) if size > 1 or axis not in of_weight]
    found = contracted(
        recorder,
        recorder.mark(data.reshape([sizes[0][axis] for axis in of_data])),
        of_data,
        recorder.rearranged(weight.reshape([sizes[1][axis] for axis in of_weight]), weight),
        of_weight,
        [axis for axis in range(input.ndim) if axis not in gone],
    )
    if found is NotImplemented:
        return NotImplemented
    recorder.explained(input)
    if func in _MEANS:
        found = found / prod(input.shape[axis] for axis in gone)
    if keepdim:
        for axis in sorted(gone):
            found = found.unsqueeze(axis)
    return recorder.mark(found)


_MEANS = {torch.mean, Tensor.mean}

CONTRACTIONS: dict[Any, Rule] = {
    torch.einsum: with_plain_values(_einsum),
    torch.tensordot: with_plain_values(_tensordot),
    **dict.fromkeys((torch.inner, Tensor.inner), with_plain_values(_inner)),
    **dict.fromkeys((torch.mv, Tensor.mv), with_plain_values(_mv)),
    **dict.fromkeys((torch.sum, Tensor.sum, *_MEANS), with_plain_values(_sum)),
}
"""Rules of the functions that sum over axes of a parameter and of the batch."""
