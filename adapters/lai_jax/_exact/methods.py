"""Two ways to the derivative of every sample's loss along one direction, and which of them fits a model."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._exact.gathers import drop_outside
from lai_jax._program.losses import batch_size, take
from lai_jax._program.program import walk_equations
from lai_jax._program.rules.primitives import names

Batch = tuple[Any, Any]
Leaves = list[jax.Array]
Losses = Callable[[Leaves, Batch], jax.Array]
Method = Callable[[Losses, Leaves, Batch, Leaves], tuple[jax.Array, jax.Array]]

_OWN_REVERSE = names("custom_vjp_call custom_transpose_call linear_call custom_lin")


def forward_mode(losses: Losses, at: Leaves, batch: Batch, direction: Leaves) -> tuple[jax.Array, jax.Array]:
    return jax.jvp(drop_outside(lambda values: losses(values, batch)), (at,), (direction,))


def sample_by_sample(
    losses: Losses, at: Leaves, batch: Batch, direction: Leaves
) -> tuple[jax.Array, jax.Array]:
    """Take one gradient a loss, one after the other."""

    def pull_row(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        single = take(batch, index[None])
        values, vjp = jax.vjp(lambda values: losses(values, single)[0], at)
        units = jnp.eye(values.size, dtype=values.dtype).reshape(values.size, *values.shape)
        scores = jax.lax.map(lambda unit: _inner(vjp(unit)[0], direction), units)
        return values, scores.reshape(values.shape)

    # One after the other: all at once, as by vmap, would hold n gradients of all parameters.
    return jax.lax.map(pull_row, jnp.arange(batch_size(batch[0])))


def _inner(left: Leaves, right: Leaves) -> jax.Array:
    return jnp.stack([jnp.vdot(one, other) for one, other in zip(left, right, strict=True)]).sum()


def method_for(losses: Losses, at: Leaves, batch: Batch) -> Method:
    """Return forward mode, or one gradient a sample where a function brings a reverse rule of its own."""
    program = jax.make_jaxpr(lambda values: losses(values, batch))(at).jaxpr
    for eqn in walk_equations(program):
        if eqn.primitive.name in _OWN_REVERSE:
            return sample_by_sample
        if eqn.primitive.name == "custom_linear_solve":
            # that a matrix is symmetric, as may be said of it, reverse mode alone relies on
            solvers = eqn.params["jaxprs"]
            if solvers.vecmat is solvers.matvec:
                return sample_by_sample
    return forward_mode
