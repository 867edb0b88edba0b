"""Where the samples of a batch are inside an array."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """The samples lie along one axis, of size `outer * n * inner`: sample b at `(o, b, i)`.

    Parameters
    ----------
    axis
        The axis.
    inner
        How many entries of the axis follow one another before the next sample: t after `(n, t)` was
        merged into one axis.
    """

    axis: int
    inner: int = 1

    def moved(self, axis: int) -> "Rows":
        """Return the same arrangement along another axis."""
        return Rows(axis, self.inner)


def reshaped(rows: Rows, old: Shape, new: Shape, samples: int) -> Rows | None:
    """Return where the samples are after a row-major reshape; None if they are along no one axis."""
    if 0 in new:
        return None
    stride = rows.inner * math.prod(old[rows.axis + 1 :])
    for axis, size in enumerate(new):
        step = math.prod(new[axis + 1 :])
        if stride % step == 0 and size % (samples * (stride // step)) == 0 and size > 1:
            return Rows(axis, stride // step)
    return None


def split(array: jax.Array, rows: Rows, samples: int) -> jax.Array:
    """Return one array a sample, stacked along a new first axis; the old axis keeps what is left of it."""
    shape = array.shape
    outer = shape[rows.axis] // (samples * rows.inner)
    before, after = shape[: rows.axis], shape[rows.axis + 1 :]
    array = array.reshape((*before, outer, samples, rows.inner, *after))
    array = jnp.moveaxis(array, rows.axis + 1, 0)
    return array.reshape((samples, *before, outer * rows.inner, *after))


def spread(array: jax.Array, rows: Rows, size: int) -> jax.Array:
    """Return `(n, ...)` with sample b's part repeated over every place of sample b along the rows' axis."""
    samples = array.shape[0]
    array = jnp.moveaxis(array, 0, rows.axis)
    before, after = array.shape[: rows.axis], array.shape[rows.axis + 1 :]
    outer = size // (samples * rows.inner)
    array = array.reshape((*before, 1, samples, 1, *after))
    array = jnp.broadcast_to(array, (*before, outer, samples, rows.inner, *after))
    return array.reshape((*before, size, *after))


def take_samples(array: jax.Array, rows: Rows, samples: int, chosen: jax.Array) -> jax.Array:
    """Return the array of the `chosen` samples alone, in the same arrangement."""
    shape = array.shape
    outer = shape[rows.axis] // (samples * rows.inner)
    before, after = shape[: rows.axis], shape[rows.axis + 1 :]
    array = array.reshape((*before, outer, samples, rows.inner, *after))
    array = jnp.take(array, chosen, axis=rows.axis + 1, mode="clip")
    return array.reshape((*before, outer * chosen.shape[0] * rows.inner, *after))
