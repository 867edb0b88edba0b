"""Patches of maps: which slices of an input lie under the outputs of a convolution."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lai_core._engine.namespace import Array, DType, Namespace, device_of


def by_position(xp: Namespace, array: Array) -> Array:
    """Return a map `(n, channels, *space)` as `(n, positions, channels)`."""
    last = xp.permute_dims(array, (0, *range(2, array.ndim), 1))
    positions = 1
    for length in array.shape[2:]:
        positions *= int(length)
    return xp.reshape(last, (array.shape[0], positions, array.shape[1]))


def padded_with_zeros(xp: Namespace, array: Array, axis: int, low: int, high: int) -> Array:
    """Put `low` zeros before and `high` after an axis."""
    parts = [array]
    for length, before in ((low, True), (high, False)):
        if not length:
            continue
        shape = tuple(length if index == axis else size for index, size in enumerate(array.shape))
        zeros = xp.zeros(shape, dtype=array.dtype, device=device_of(array))
        parts = [zeros, *parts] if before else [*parts, zeros]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=axis)


@dataclass(frozen=True)
class Geometry:
    """Kernel, stride, padding and dilation of a convolution, per axis of space."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    def output(self, space: Sequence[int]) -> tuple[int, ...]:
        """Return the lengths of the output's axes of space."""
        axes = zip(space, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(
            (int(length) + sum(pad) - dilation * (kernel - 1) - 1) // stride + 1
            for length, kernel, stride, pad, dilation in axes
        )

    def windows(self, space: Sequence[int]) -> list[tuple[slice, ...]]:
        """Return, per offset of the kernel, the slices of the padded input under all output positions."""
        found: list[tuple[slice, ...]] = [()]
        for length, kernel, stride, dilation in zip(
            space, self.kernel, self.stride, self.dilation, strict=True
        ):
            span = stride * (length - 1) + 1
            starts = [dilation * offset for offset in range(kernel)]
            found = [(*window, slice(start, start + span, stride)) for window in found for start in starts]
        return found


@dataclass(frozen=True)
class Padded:
    """Maps `(n, channels, *space)` with zeros around, channels last: made when a patch is first read."""

    xp: Namespace
    maps: Array
    padding: Sequence[tuple[int, int]]

    @cached_property
    def array(self) -> Array:
        """The padded maps `(n, *space, channels)`."""
        # Padding writes a new array, in the order that each patch is then read in.
        padded = self.xp.permute_dims(self.maps, (0, *range(2, self.maps.ndim), 1))
        for axis, (low, high) in enumerate(self.padding):
            padded = padded_with_zeros(self.xp, padded, axis + 1, low, high)
        return padded


@dataclass(frozen=True)
class Patch:
    """One offset's columns `(n, positions, channels)`, cut out of the padded input when they are read."""

    padded: Padded
    window: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Samples, positions, channels."""
        positions = 1
        for part in self.window:
            positions *= len(range(part.start, part.stop, part.step))
        return (int(self.padded.maps.shape[0]), positions, int(self.padded.maps.shape[1]))

    @property
    def dtype(self) -> DType:
        """The input's type."""
        return self.padded.maps.dtype

    def __getitem__(self, key: Any) -> Array:
        """Cut out the columns of the samples `[chunk, ...]`; any other index reads all of them first."""
        if not (
            isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], slice) and key[1] is Ellipsis
        ):
            return self[:, ...][key]
        part = self.padded.array[(key[0], *self.window, slice(None))]
        return self.padded.xp.reshape(part, (part.shape[0], *self.shape[1:]))
