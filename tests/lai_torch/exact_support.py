"""Ghost of a model compared with per-sample autograd, on small batches."""

import lai_torch

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import LOSS, randn
from workloads.torch_oracle import exact_kernel, per_sample_gradients

__all__ = ["LOSS", "N", "by_autograd", "check_exact", "labels", "randn"]

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


def by_autograd(model, validation, training, loss=LOSS):
    """Return exact scores by one reverse pass a sample."""
    sides = (per_sample_gradients(model, loss, *side, len(side[1])) for side in (validation, training))
    of_validation, of_training = sides
    return of_training @ of_validation.sum(0)
