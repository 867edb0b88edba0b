"""Ghost on torch models against one backward pass per sample, over all trainable parameters."""

from collections.abc import Callable
from typing import Any

import lai_torch
import torch

import lai_core as lai
from tests.support.workloads.torch_models import COMPUTES_IN_FLOAT32
from tests.support.workloads.torch_oracle import exact_kernel
from tests.support.workloads.torch_parts import Case, doubled
from tests.support.workloads.transformer_models import SAMPLES

BOUND = 1e-10
COARSE_BOUND = 1e-6


def measure(build: Callable[[], Case], seed: int = 0) -> dict[str, Any]:
    """Compare Ghost's kernel of one model in float64 with the exact one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        case = doubled(build())
    trace = lai_torch.trace(case.model, case.loss, case.inputs, case.targets, gradients="all", partial=True)
    kernel = lai.ghost_kernel(trace, trace)
    exact = exact_kernel(case.model, case.loss, case.inputs, case.targets, SAMPLES)
    covered = lai_torch.coverage(case.model, case.loss, case.inputs, case.targets)
    return {
        "relative_error": float((kernel - exact).abs().max() / exact.abs().max()),
        "coverage": covered.fraction,
        "parameters": covered.parameters,
    }


def bound(name: str) -> float:
    return COARSE_BOUND if name in COMPUTES_IN_FLOAT32 else BOUND
