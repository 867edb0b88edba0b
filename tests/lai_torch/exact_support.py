"""Ghost of a model compared with per-sample autograd, on small batches."""

import lai_torch
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.oracle import exact_kernel

N = 4
LOSS = nn.CrossEntropyLoss(reduction="none")


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def labels(n=N):
    return torch.arange(n) % 3


def check_exact(model, inputs, targets=None, loss=LOSS, samples=N, tolerance=1e-10):
    """Compare Ghost with per-sample autograd, and return the trace."""
    targets = labels(samples) if targets is None else targets
    trace = lai_torch.trace(model, loss, inputs, targets, gradients="all")
    expected = exact_kernel(model, loss, inputs, targets, samples)
    error = float((lai.ghost_kernel(trace, trace) - expected).abs().max() / expected.abs().max())
    assert error <= tolerance
    assert lai_torch.coverage(model, loss, inputs, targets).share == 1.0
    return trace
