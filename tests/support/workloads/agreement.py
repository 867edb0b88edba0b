"""The same weights in Torch and in JAX: the same traces and the same scores."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import lai_torch
import numpy as np
import torch

import lai_core as lai
from tests.support.workloads.pairs import Pair


def traces(pair: Pair) -> tuple[list[lai.Trace], list[lai.Trace]]:
    """Trace both batches in both frameworks."""

    @jax.jit
    def traced(params: Any, batch: Any) -> lai.Trace:
        return lai_jax.trace(pair.apply, params, pair.jax_loss, *batch, gradients="all")

    by_torch = [
        lai_torch.trace(pair.module, pair.torch_loss, *map(torch.from_numpy, batch), gradients="all")
        for batch in pair.batches
    ]
    return by_torch, [traced(pair.params, tuple(map(jnp.asarray, batch))) for batch in pair.batches]


def estimates(validation: lai.Trace, training: lai.Trace) -> list[Any]:
    """Return kernel and scores of each estimator."""
    pairs = (
        (lai.ghost_kernel, lai.ghost_scores, {}),
        (lai.lai_kernel, lai.lai_scores, {"positions": "mean"}),
        (lai.lli_kernel, lai.lli_scores, {}),
    )
    return [function(validation, training, **options) for *both, options in pairs for function in both]


def measure(build: Callable[[], Pair], seed: int = 0) -> dict[str, Any]:
    """Return the largest relative difference of any layer's arrays, kernel or score."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pair = build()
    by_torch, by_jax = traces(pair)
    errors = [_difference(*both) for sides in zip(by_torch, by_jax, strict=True) for both in _arrays(*sides)]
    errors += map(_difference, estimates(*by_torch), jax.jit(estimates)(*by_jax))
    batch = tuple(map(jnp.asarray, pair.batches[0]))
    covered = lai_jax.coverage(pair.apply, pair.params, pair.jax_loss, *batch)
    return {
        "relative_error": max(errors),
        "coverage": covered.fraction,
        "parameters": covered.parameters,
    }


def _arrays(by_torch: lai.Trace, by_jax: lai.Trace) -> list[tuple[Any, Any]]:
    """Pair the arrays of the records that LAI sees, in the order in which the model uses them."""
    left, right = (
        [record for record in trace.layers if hasattr(record, "activations")] for trace in (by_torch, by_jax)
    )
    pairs = []
    for one, other in zip(left, right, strict=True):
        pairs += [(one.activations, other.activations), (one.output_gradients, other.output_gradients)]
    return pairs


def _difference(left: Any, right: Any) -> float:
    """Return the largest difference of two arrays over the largest entry."""
    left, right = (
        np.asarray(side.detach() if isinstance(side, torch.Tensor) else side) for side in (left, right)
    )
    return float(np.abs(left - right).max() / np.abs(left).max())
