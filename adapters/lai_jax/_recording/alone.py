"""Gradients of parameters that no rule follows: one reverse pass a sample, where samples keep apart.

What an operation does with parameters and samples may be unknown, as in a loop of unknown length. A
sample's gradient of such a parameter is then taken of that sample as a batch of one. That it is the
sample's own gradient in the batch is not known from the program, so it is tried: a batch's losses, and the
gradient of their sum with random weights, must be those of its samples.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._program.evaluate import on_numbers, tried
from lai_jax._program.losses import is_batched
from lai_jax._program.model import Model

_DIGITS = 0.625  # of the type's, in which two ways to compute one number agree


def gradients_alone(model: Model, leaves: Sequence[int]) -> dict[int, jax.Array]:
    """Return the gradients of whole parameters, `(n, size)` each, one sample at a time."""
    values, arrays = model.parameters, model.data
    rows = _single_samples(model, leaves, values, arrays)[1]
    return {leaf: own.reshape((model.samples, -1)) for leaf, own in zip(leaves, rows, strict=True)}


def keeps_apart(model: Model, leaves: Sequence[int]) -> bool:
    """Whether a batch's losses and gradient are those of its samples, each as a batch of one.

    Tried on the numbers at hand, or inside `jax.jit` on random ones of the same shapes; where `apply` or
    `loss` hold others that are traced it cannot be tried.
    """
    single = jax.jit(lambda *given: _single_samples(model, leaves, *given))
    with on_numbers(model.arguments):
        given = tried(model.parameters, model.data)
        return all(_keeps_apart(model, leaves, single, values, arrays) for values, arrays in given)


def _keeps_apart(model: Model, leaves: Sequence[int], single: Any, values: Any, arrays: Any) -> bool:
    try:
        apart, rows = single(values, arrays)
    except Exception:  # whatever a model says of a batch of one that it does not take
        return False
    draw = np.random.default_rng(0)  # the check's own weights: nothing that is computed depends on them
    weights = jnp.asarray(draw.uniform(0.5, 1.5, model.samples), apart.dtype)

    def weighted(moved: list[Any]) -> tuple[jax.Array, jax.Array]:
        losses = model.losses(_with(values, leaves, moved), arrays)
        return jnp.where(jnp.isfinite(losses), weights * losses, 0).sum(), losses

    gradient, together = jax.grad(weighted, has_aux=True)([values[leaf] for leaf in leaves])
    if isinstance(together, jax.core.Tracer):
        return False
    precision = max(float(jnp.finfo(one.dtype).eps) for one in (together, *gradient))
    wide = jax.tree.map(_wide, (together, apart, weights, gradient, rows))
    together, apart, weights, gradient, rows = wide
    finite = np.isfinite(apart)
    summed = [np.tensordot(np.where(finite, weights, 0), _zeroed(each, finite), 1) for each in rows]
    pairs = [(together[finite], apart[finite]), *zip(gradient, summed, strict=True)]
    return all(_equal(one, other, precision**_DIGITS) for one, other in pairs)


def _wide(array: Any) -> Any:
    return np.asarray(array, np.float64)


def _zeroed(rows: Any, counted: Any) -> Any:
    """Put zeros in the place of samples that do not count, whose gradients may be no numbers."""
    return np.where(counted.reshape((-1,) + (1,) * (rows.ndim - 1)), rows, 0)


def _equal(one: Any, other: Any, within: float) -> bool:
    """Whether two arrays agree, beside the sizes of each entry and the largest; and on what is not finite."""
    finite = np.isfinite(one)
    largest = np.abs(one).max(initial=0, where=finite)
    near = np.abs(one - other) <= within * (np.abs(one) + largest)
    return bool(np.where(finite, near, ~np.isfinite(other)).all())


def _single_samples(
    model: Model, leaves: Sequence[int], values: Sequence[Any], arrays: Sequence[Any]
) -> tuple[jax.Array, list[jax.Array]]:
    """Return every sample's loss as a batch of one, and its gradient."""

    def one(index: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        single = [
            jax.lax.dynamic_slice_in_dim(array, index, 1) if is_batched(array) else array for array in arrays
        ]
        moved = [jnp.asarray(values[leaf]) for leaf in leaves]
        return jax.value_and_grad(lambda moved: model.losses(_with(values, leaves, moved), single)[0])(moved)

    return jax.lax.map(one, jnp.arange(model.samples))


def _with(values: Sequence[Any], leaves: Sequence[int], moved: Sequence[Any]) -> list[Any]:
    given = list(values)
    for leaf, value in zip(leaves, moved, strict=True):
        given[leaf] = value
    return given
