"""Which positions of a batch count: those of samples, not those of padding."""

from collections.abc import Callable
from typing import Any

import jax

import lai_core as lai
from lai_jax._program.losses import batch_size

Valid = Callable[[Any], jax.Array | None]
"""From a batch's inputs to its mask `(n, t)`, not zero where a position counts; None: all count."""


def masked(trace: lai.Trace, valid: jax.Array | Valid | None, inputs: Any) -> lai.Trace:
    """Return a trace with the positions that count, those of a mask or of a function of the inputs."""
    mask: Any = valid(inputs) if callable(valid) else valid
    if mask is None:
        return trace
    samples = batch_size(inputs)
    if not hasattr(mask, "shape") or len(mask.shape) != 2 or mask.shape[0] != samples:
        got = tuple(mask.shape) if hasattr(mask, "shape") else type(mask).__name__
        msg = f"valid: expected an array of shape ({samples}, t), one row a sample, got {got}"
        raise ValueError(msg)
    return lai.mask_positions(trace, mask != 0)
