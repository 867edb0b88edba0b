"""Sketches of the last layer's output gradients, each a function of its seed."""

import functools
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs

AT_ONCE = 2**26
"""Bytes of temporaries; with many more, allocating them took several times as long as the sums."""


@functools.lru_cache(maxsize=2)
def _draw(seed: int, outputs: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, (outputs,), generator=generator, device="cpu") * 2 - 1
    return signs, torch.randperm(outputs, generator=generator, device="cpu")


def sketch(trace: lai.Trace, width: int, seed: int) -> lai.Trace:
    """Return a trace whose last output gradients are sketched, to so many numbers a position."""
    gradients: Any = trace.layers[-1].output_gradients
    outputs = gradients.shape[-1]
    if width > outputs:
        msg = f"sketch: expected at most the last layer's {outputs} outputs, got {width}"
        raise ValueError(msg)
    signs, permutation = (part.to(gradients.device) for part in _draw(seed, outputs))
    budget = max(AT_ONCE, 64 * (outputs + width))  # which holds one position of float64
    return sketch_outputs(trace, signs.to(gradients.dtype), permutation, width=width, memory_budget=budget)
