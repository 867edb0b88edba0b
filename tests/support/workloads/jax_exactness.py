"""Ghost on JAX models against one gradient a sample, over all parameters."""

from collections.abc import Callable
from typing import Any

import jax
import lai_jax
import numpy as np

import lai_core as lai
from tests.support.workloads.jax_oracle import Batch, gradients
from tests.support.workloads.jax_parts import Model

BOUND = 1e-10
SAMPLES = 4


def measure(build: Callable[[], Model], seed: int = 0) -> dict[str, Any]:
    """Compare Ghost's kernel of two batches in float64 with the exact one."""
    model = build()
    draw = np.random.default_rng(seed)
    batches = [model.batch(draw, SAMPLES) for _ in range(2)]
    covered = lai_jax.coverage(model.apply, model.params, model.loss, *batches[0])

    @jax.jit
    def trace(params: Any, batch: Batch) -> lai.Trace:
        return lai_jax.trace(model.apply, params, model.loss, *batch, gradients="all")

    found = jax.jit(lai.ghost_kernel)(*(trace(model.params, batch) for batch in batches))
    left, right = (gradients(model.apply, model.params, model.loss, batch) for batch in batches)
    exact = left @ right.T
    return {
        "relative_error": float(np.abs(found - exact).max() / np.abs(exact).max()),
        "coverage": covered.fraction,
        "parameters": covered.parameters,
    }
