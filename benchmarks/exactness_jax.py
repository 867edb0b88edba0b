"""Ghost on JAX models against one gradient a sample, over all parameters; and JAX against Torch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
from rich.console import Console
from rich.table import Table

import lai_core as lai
from benchmarks import agreement
from benchmarks.jax_models import MODELS
from benchmarks.jax_parts import Model

BOUND = 1e-10
SAMPLES = 4
OUT = Path("build/exactness-jax.json")


def sample_gradients(model: Model, batch: tuple[Any, Any]) -> jax.Array:
    """Return each sample's gradient of all parameters, `(n, parameters)`: `jax.grad` in a plain loop."""

    def one(params: Any, inputs: Any, targets: Any) -> jax.Array:
        return model.loss(model.apply(params, inputs), targets)[0]

    gradient = jax.jit(jax.grad(one, allow_int=True))
    rows = []
    for j in range(len(batch[1])):
        parts = jax.tree.leaves(gradient(model.params, *(side[j : j + 1] for side in batch)))
        moving = [part.reshape(-1) for part in parts if jnp.issubdtype(part.dtype, jnp.floating)]
        rows.append(jnp.concatenate(moving))
    return jnp.stack(rows)


def ghost_kernel(model: Model, *batches: tuple[Any, Any]) -> jax.Array:
    """Return Ghost's kernel of two batches, trace and kernel jitted."""

    @jax.jit
    def trace(params: Any, batch: tuple[Any, Any]) -> lai.Trace:
        return lai_jax.trace(model.apply, params, model.loss, *batch, gradients="all")

    return jax.jit(lai.ghost_kernel)(*(trace(model.params, batch) for batch in batches))


def measure(build: Callable[[], Model], seed: int = 0) -> dict[str, Any]:
    """Compare Ghost's kernel of two batches in float64 with the exact one."""
    model = build()
    draw = np.random.default_rng(seed)
    batches = [model.batch(draw, SAMPLES) for _ in range(2)]
    kernel = ghost_kernel(model, *batches)
    left, right = (sample_gradients(model, batch) for batch in batches)
    exact = left @ right.T
    covered = lai_jax.coverage(model.apply, model.params, model.loss, *batches[0])
    return {
        "relative_error": float(jnp.max(jnp.abs(kernel - exact)) / jnp.max(jnp.abs(exact))),
        "coverage": covered.share,
        "parameters": covered.parameters,
    }


def run() -> dict[str, Any]:
    """Measure every model, print the table, write `build/exactness-jax.json`."""
    with jax.enable_x64(True):
        found = {name: measure(build) for name, build in MODELS.items()}
        found |= {
            f"{name}, torch and jax": agreement.measure(build) for name, build in agreement.PAIRS.items()
        }
    table = Table(
        "model", "relative error", "coverage", "parameters", title="Ghost against jax.grad of one sample"
    )
    for name, row in found.items():
        table.add_row(
            name, f"{row['relative_error']:.1e}", f"{row['coverage']:.4f}", f"{row['parameters']:,}"
        )
    Console().print(table)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"models": found}, indent=2) + "\n")
    failed = [name for name, row in found.items() if row["relative_error"] > BOUND or row["coverage"] < 1.0]
    if failed:
        Console().print(f"[red]not exact at full coverage: {', '.join(failed)}")
        raise SystemExit(1)
    return {"models": found}
