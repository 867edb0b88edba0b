"""Where the samples of a batch are inside an array."""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SampleAxis:
    """The samples lie along one axis, of size `outer * samples * inner`: sample b at `(o, b, i)`."""

    axis: int  # the axis
    samples: int  # how many samples there are
    # how many entries of the axis follow one another before the next sample: t after `(n, t)` was merged into
    # one axis
    inner: int = 1

    def move(self, axis: int) -> "SampleAxis":
        return replace(self, axis=axis)

    def reshape(self, old: Shape, new: Shape) -> "SampleAxis | None":
        """Return where the samples are after a row-major reshape; None if they are along no one axis."""
        if 0 in new:
            return None
        # In row-major order the next sample follows after `stride` entries, and after samples * stride
        # entries comes sample 0 again. A new axis whose entries are `step` apart holds them in the same
        # arrangement if stride / step of its entries make one sample's run, and if it is long enough to
        # go through all samples, once or several times.
        stride = self.inner * math.prod(old[self.axis + 1 :])
        for axis, size in enumerate(new):
            step = math.prod(new[axis + 1 :])
            inner, uneven = divmod(stride, step)
            if size > 1 and not uneven and size % (self.samples * inner) == 0:
                return SampleAxis(axis, self.samples, inner)
        return None

    def split(self, array: jax.Array) -> jax.Array:
        """Return one array a sample, along a new first axis; the old axis keeps what is left of it."""
        before, outer, after = self._parts(array)
        array = array.reshape((*before, outer, self.samples, self.inner, *after))
        array = jnp.moveaxis(array, self.axis + 1, 0)
        return array.reshape((self.samples, *before, outer * self.inner, *after))

    def spread(self, array: jax.Array, size: int) -> jax.Array:
        """Return `(n, ...)` with sample b's part at every place of sample b along an axis of `size`."""
        array = jnp.moveaxis(array, 0, self.axis)
        before, after = array.shape[: self.axis], array.shape[self.axis + 1 :]
        outer = size // (self.samples * self.inner)
        array = array.reshape((*before, 1, self.samples, 1, *after))
        array = jnp.broadcast_to(array, (*before, outer, self.samples, self.inner, *after))
        return array.reshape((*before, size, *after))

    def take(self, array: jax.Array, chosen: jax.Array) -> jax.Array:
        before, outer, after = self._parts(array)
        array = array.reshape((*before, outer, self.samples, self.inner, *after))
        array = jnp.take(array, chosen, axis=self.axis + 1, mode="clip")
        return array.reshape((*before, outer * chosen.shape[0] * self.inner, *after))

    def _parts(self, array: jax.Array) -> tuple[Shape, int, Shape]:
        """Return the axes before, how often the axis goes through all samples, and the axes after."""
        shape = array.shape
        outer = shape[self.axis] // (self.samples * self.inner)
        return shape[: self.axis], outer, shape[self.axis + 1 :]
