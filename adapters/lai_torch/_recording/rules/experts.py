"""Experts: one matrix of many on the rows that are routed to it, and their records.

Rows are followed from the tokens that they are read from: of `(n t, d)` tokens, samples outermost, row `i`
is of sample `i // t`, and what is computed from it row by row is of that sample too. Where that guess is
wrong, the recorded gradients do not add up to the batch's, and the parameter is left to backward passes of
its own. Of each matrix there is one record, whatever is routed to it, so that all batches have them.
"""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import lai_core as lai
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.recording import Recording, Routed, Slice
from lai_torch._recording.watching.uses import Source


def chosen(recorder: Recorder, func: Any, table: Any, key: Any) -> Any:
    """Note that `table[key]` is one matrix of a parameter, or rows of tokens that are known."""
    if not isinstance(table, Tensor) or not isinstance(key, Tensor) or key.dtype in {torch.bool, torch.uint8}:
        return NotImplemented
    if key.is_floating_point() or key.is_complex():
        return NotImplemented
    source = recorder.source(table)
    if source is not None:
        if not source.whole or table.ndim != 3 or key.ndim or not recorder.trains(source):
            return NotImplemented
        matrix = func(table, key)
        recorder.experts.slices[matrix] = Slice(source, int(key) % table.shape[0])
        return matrix
    return NotImplemented


def product(recorder: Recorder, inputs: Any, weight: Any, bias: Any, *, transposed: bool) -> Any:
    """Record `a W^T` or `a W` of one expert's rows; leave all else to other rules."""
    part = recorder.experts.slices.get(weight) if isinstance(weight, Tensor) else None
    if part is None or bias is not None or not isinstance(inputs, Tensor) or inputs.ndim != 2:
        return NotImplemented
    samples = recorder.experts.samples_of(inputs)
    if samples is None:
        return NotImplemented
    matrix = weight.detach()
    output, probe = recorder.probe(functional.linear(inputs, matrix.T if transposed else matrix))
    rows = slice(0, inputs.shape[0])
    use = Routed(part.source, part.matrix, probe, inputs.detach(), samples, rows, inputs._version)
    recorder.note_routed([use])
    recorder.experts.follow(output, samples)
    return output


def grouped(recorder: Recorder, func: Any, rows: Any, weight: Any, **options: Any) -> Any:
    """Record a product of consecutive rows with one matrix after the other, `offs` rows each at most."""
    source = _parameter(recorder, weight)
    ends = options.get("offs")
    if source is None or not recorder.trains(source) or not isinstance(rows, Tensor) or rows.ndim != 2:
        return NotImplemented
    if not isinstance(ends, Tensor) or set(options) - {"offs", "bias", "out_dtype"}:
        return NotImplemented
    samples = recorder.experts.samples_of(rows)
    if samples is None or options.get("bias") is not None:
        return NotImplemented
    # Matrix e is used on rows offs[e - 1] to offs[e] alone: so many uses, of one product and one probe.
    output, probe = recorder.probe(func(rows, weight.detach(), **options))
    inputs, bounds = rows.detach(), [0, *ends.tolist()]
    parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
    recorder.note_routed(
        Routed(source, matrix, probe, inputs[part], samples[part], part, rows._version)
        for matrix, part in enumerate(parts)
        if part.stop > part.start
    )
    recorder.experts.follow(output, samples)
    return output


def _parameter(recorder: Recorder, weight: Any) -> Source | None:
    """Return the parameter of matrices that `weight` is, or is the transposes of."""
    source = recorder.source(weight)
    if source is None or weight.ndim != 3 or len(source.names) > 1:
        return None
    parameter = recorder.parameters[source.name]
    if source.whole:
        return source
    shape, stride = parameter.shape, parameter.stride()
    same = parameter.ndim == 3 and weight.data_ptr() == parameter.data_ptr()
    swapped = (shape[0], shape[2], shape[1]), (stride[0], stride[2], stride[1])
    if same and (tuple(weight.shape), tuple(weight.stride())) == swapped:
        return Source(parameter, source.names, whole=True)
    return None


GROUPED = tuple(
    function
    for function in (getattr(functional, "grouped_mm", None), getattr(torch, "_grouped_mm", None))
    if function is not None
)
"""Functions of torch that multiply groups of rows with a matrix each."""


def routed_parameters(recording: Recording) -> list[str]:
    """Return the parameters that hold the matrices of expert layers, each once."""
    return list(dict.fromkeys(use.source.name for use in recording.routed))


def matrix_name(name: str, matrix: int) -> str:
    """Return what one matrix of a parameter is called."""
    return f"{name}[{matrix}]"


def routed_records(recording: Recording) -> list[lai.ExpertTrace]:
    """Return one record for each matrix of each expert layer."""
    return [
        _record(recording, name, matrix)
        for name in routed_parameters(recording)
        for matrix in range(recording.parameters[name].shape[0])
    ]


def _record(recording: Recording, name: str, matrix: int) -> lai.ExpertTrace:
    """Return the record of one matrix: all rows that were routed to it, those of a sample side by side."""
    every = [use for use in recording.routed if use.source.name == name]
    uses = [use for use in every if use.matrix == matrix]
    key = matrix_name(name, matrix)
    if not uses:
        one = every[0]
        widths = one.activations.shape[1], one.width
        rows, gradients = (one.activations.new_zeros(recording.samples, 1, width) for width in widths)
        return lai.ExpertTrace(rows, gradients, weight=key, name=key)
    samples = torch.cat([use.samples for use in uses])
    sides = torch.cat([use.activations for use in uses]), torch.cat([_gradient(use) for use in uses])
    rows, gradients = (_side_by_side(side, samples, recording.samples) for side in sides)
    return lai.ExpertTrace(rows, gradients, weight=key, name=key)


def _gradient(use: Routed) -> Tensor:
    """Return the rows of what arrived at the probe."""
    if use.probe.gradient is None:
        return use.activations.new_zeros(use.activations.shape[0], use.width)
    return use.probe.gradient[use.rows]


def _side_by_side(rows: Tensor, samples: Tensor, count: int) -> Tensor:
    """Return rows `(k, d)` of samples `(k,)` as `(n, t, d)`, filled up with zeros."""
    order = samples.argsort(stable=True)
    own = torch.bincount(samples, minlength=count)
    first = own.cumsum(0) - own
    place = torch.arange(len(order), device=rows.device) - first[samples[order]]
    padded = rows.new_zeros(count, int(own.max()), rows.shape[1])
    padded[samples[order], place] = rows[order]
    return padded
