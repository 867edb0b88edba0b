"""Exact scores in a curated step, along the validation gradient: no trace, any architecture."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from lai_storage import storable

from lai_jax._exact.directional import check_uncoupled
from lai_jax._program.losses import losses_of_leaves, take


@storable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ValidationGradient:
    """The gradient of the summed validation loss, along which exact scores are taken; a pytree."""

    gradient: list[jax.Array]  # with respect to the floating-point leaves of the parameters, in their order
    samples: jax.Array  # how many validation samples went in

    def __add__(self, other: "ValidationGradient") -> "ValidationGradient":
        return jax.tree.map(jnp.add, self, other)


def validation_gradient(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], batch: tuple[Any, Any], counted: Any
) -> ValidationGradient:
    """Return the gradient of the summed loss of the samples that count and have a finite one.

    It is an error if samples are coupled: the others' losses then depend on more than the others.
    """
    moving, losses = losses_of_leaves(apply, loss, params)
    check_uncoupled(losses, moving, batch)
    counted = counted & jnp.isfinite(losses(moving, batch))
    # 0 times a gradient that is not finite is no 0: run another sample in the place of these
    index = jnp.where(counted, jnp.arange(counted.shape[0]), jnp.argmax(counted))
    rows = take(batch, index)

    def total(values: list[jax.Array]) -> jax.Array:
        return jnp.sum(jnp.where(counted, losses(values, rows), 0.0))

    return ValidationGradient(jax.grad(total)(moving), counted.sum())
