"""Three ways to the derivative of every sample's loss along one direction of the parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._exact.gathers import dropping_outside
from lai_jax._program.losses import batch_size, take

Batch = tuple[Any, Any]
Leaves = list[jax.Array]
Losses = Callable[[Leaves, Batch], jax.Array]
Method = Callable[[Losses, Leaves, Batch, Leaves], tuple[jax.Array, jax.Array]]


def forward_mode(losses: Losses, at: Leaves, batch: Batch, direction: Leaves) -> tuple[jax.Array, jax.Array]:
    """Push the direction forward, through all samples at once."""
    return jax.jvp(dropping_outside(lambda values: losses(values, batch)), (at,), (direction,))


def transposed_reverse_mode(
    losses: Losses, at: Leaves, batch: Batch, direction: Leaves
) -> tuple[jax.Array, jax.Array]:
    """Transpose the map from weights of the losses to the gradient of their sum."""
    values, vjp = jax.vjp(lambda values: losses(values, batch), at)
    return values, jax.linear_transpose(lambda weights: vjp(weights)[0], values)(direction)[0]


def sample_by_sample(
    losses: Losses, at: Leaves, batch: Batch, direction: Leaves
) -> tuple[jax.Array, jax.Array]:
    """Take one gradient a loss, one after the other."""

    def one(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        single = take(batch, index[None])
        values, vjp = jax.vjp(lambda values: losses(values, single)[0], at)
        units = jnp.eye(values.size, dtype=values.dtype).reshape(values.size, *values.shape)
        scores = jax.lax.map(lambda unit: _inner(vjp(unit)[0], direction), units)
        return values, scores.reshape(values.shape)

    return jax.lax.map(one, jnp.arange(batch_size(batch[0])))


def _inner(left: Leaves, right: Leaves) -> jax.Array:
    return jnp.stack([jnp.vdot(one, other) for one, other in zip(left, right, strict=True)]).sum()
