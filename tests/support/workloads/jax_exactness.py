"""Ghost on JAX models against one gradient a sample, over all parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np

import lai_core as lai
from tests.support.workloads.jax_oracle import Batch, gradients
from tests.support.workloads.jax_parts import Model

BOUND = 1e-10
SAMPLES = 4


def ghost_error(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], validation: Batch, training: Batch
) -> float:
    """Return the largest error of Ghost's kernel over the largest exact inner product."""

    @jax.jit
    def trace(params: Any, batch: Batch) -> lai.Trace:
        return lai_jax.trace(apply, params, loss, *batch, gradients="all")

    batches = validation, training
    found = jax.jit(lai.ghost_kernel)(*(trace(params, batch) for batch in batches))
    left, right = (gradients(apply, params, loss, batch) for batch in batches)
    exact = left @ right.T
    return float(jnp.max(jnp.abs(found - exact)) / jnp.max(jnp.abs(exact)))


def measure(build: Callable[[], Model], seed: int = 0) -> dict[str, Any]:
    """Compare Ghost's kernel of two batches in float64 with the exact one."""
    model = build()
    draw = np.random.default_rng(seed)
    batches = [model.batch(draw, SAMPLES) for _ in range(2)]
    covered = lai_jax.coverage(model.apply, model.params, model.loss, *batches[0])
    return {
        "relative_error": ghost_error(model.apply, model.params, model.loss, *batches),
        "coverage": covered.fraction,
        "parameters": covered.parameters,
    }
