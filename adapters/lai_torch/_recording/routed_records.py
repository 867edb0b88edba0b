"""Records of expert layers: of each matrix one, whatever is routed to it, so that all batches have them."""

import torch
from torch import Tensor

import lai_core as lai
from lai_torch._recording.watching.recording import Recording
from lai_torch._recording.watching.routed import Routed


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
