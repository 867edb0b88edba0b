"""Ghost of a model compared with per-sample autograd, on small batches."""

import lai_torch

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import LOSS, randn
from workloads.torch_oracle import exact_kernel

__all__ = ["LOSS", "N", "check_exact", "labels", "randn"]

N = 4


def labels(n=N):
    return support.labels(n)


def check_exact(model, inputs, targets=None, loss=LOSS, samples=N, tolerance=1e-10):
    """Compare Ghost with per-sample autograd, and return the trace."""
    targets = labels(samples) if targets is None else targets
    trace = lai_torch.trace(model, loss, inputs, targets, gradients="all")
    expected = exact_kernel(model, loss, inputs, targets, samples)
    error = float((lai.ghost_kernel(trace, trace) - expected).abs().max() / expected.abs().max())
    assert error <= tolerance
    assert lai_torch.coverage(model, loss, inputs, targets).share == 1.0
    return trace
