"""What the JAX adapter is judged by: one gradient a sample, in a plain loop, of the user's own function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np

import lai_core as lai

Batch = tuple[Any, Any]


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


def one(tree: Any, index: int) -> Any:
    """Cut one sample out of a batch, as a batch of one."""
    return jax.tree.map(lambda leaf: leaf[index : index + 1], tree)


def call(apply: Callable[..., Any], params: Any, inputs: Any) -> Any:
    """Pass inputs as the adapter promises to."""
    if isinstance(inputs, dict):
        return apply(params, **inputs)
    return apply(params, *inputs) if isinstance(inputs, tuple) else apply(params, inputs)


def gradients(apply: Callable[..., Any], params: Any, loss: Callable[..., Any], batch: Batch) -> jax.Array:
    """Each sample's gradient of all floating-point parameters, `(n, size)`."""

    def single(params: Any, inputs: Any, targets: Any) -> jax.Array:
        return loss(call(apply, params, inputs), targets)[0]

    gradient = jax.jit(jax.grad(single, allow_int=True))
    rows = []
    for index in range(jax.tree.leaves(batch[1])[0].shape[0]):
        parts = jax.tree.leaves(gradient(params, *one(batch, index)))
        rows.append(
            jnp.concatenate([part.ravel() for part in parts if jnp.issubdtype(part.dtype, jnp.floating)])
        )
    return jnp.stack(rows)


def ghost_error(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], validation: Batch, training: Batch
) -> float:
    """Largest error of Ghost's kernel over the largest exact inner product."""

    @jax.jit
    def kernel(params: Any, validation: Batch, training: Batch) -> jax.Array:
        sides = [
            lai_jax.trace(apply, params, loss, *batch, gradients="all") for batch in (validation, training)
        ]
        return lai.ghost_kernel(*sides)

    left, right = (gradients(apply, params, loss, batch) for batch in (validation, training))
    exact = left @ right.T
    found = kernel(params, validation, training)
    return float(jnp.max(jnp.abs(found - exact)) / jnp.max(jnp.abs(exact)))
