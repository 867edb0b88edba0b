"""Derivatives of every sample's loss along one direction of the parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.program import programs_of


def directional_derivatives(
    losses: Callable[[list[jax.Array]], jax.Array], at: list[jax.Array], direction: Any
) -> tuple[jax.Array, jax.Array]:
    """Return every loss, and its derivative along a direction of the parameters."""
    if not _has_rule_of_its_own(jax.make_jaxpr(losses)(at).jaxpr):
        return jax.jvp(losses, (at,), (direction,))
    values, vjp = jax.vjp(losses, at)  # no forward mode: the transpose of the transpose
    transposed = jax.vjp(lambda weights: vjp(weights)[0], jnp.zeros_like(values))[1]
    return values, transposed(direction)[0]


def _has_rule_of_its_own(jaxpr: Any) -> bool:
    """Whether a `custom_vjp` is inside: there forward mode fails, under `jax.jit` only when it is lowered."""
    return any(
        eqn.primitive.name.startswith("custom_vjp_call") or any(map(_has_rule_of_its_own, programs_of(eqn)))
        for eqn in jaxpr.eqns
    )
