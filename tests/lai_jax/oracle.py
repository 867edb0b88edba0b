"""Numbers to draw, a loss, and what the JAX adapter is judged by."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workloads.jax_exactness import ghost_error
from workloads.jax_oracle import Batch, gradients, one

__all__ = ["Batch", "drawn", "ghost_error", "gradients", "labels", "one", "squares"]


def drawn(*shape: int, seed: int = 0) -> jax.Array:
    """Draw standard normal numbers."""
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))


def labels(samples: int, classes: int = 3, seed: int = 0) -> jax.Array:
    """Draw class labels."""
    return jnp.asarray(np.random.default_rng([seed, samples]).integers(0, classes, samples))


def squares(outputs: Any, targets: Any) -> Any:
    """Sum every sample's squared outputs, each weighted by its place, around its target."""
    flat = outputs.reshape(outputs.shape[0], -1)
    return ((flat - targets[:, None]) ** 2 * jnp.arange(1.0, flat.shape[1] + 1)).sum(-1)
