"""Convolutions: patches of maps, and a kernel's per-sample gradients, by offsets or the namespace's own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from jaxtyping import Float

from lai_core._engine.gradients import ParameterGradient, Workspace, spans
from lai_core._engine.namespace import Array, Namespace, cast, device_of, matmul
from lai_core._engine.outer import OuterGradient
from lai_core._engine.own import Convolutions, convolutions


def lay_by_position(xp: Namespace, array: Array) -> Array:
    """Return a map `(n, channels, *space)` as `(n, positions, channels)`."""
    last = xp.permute_dims(array, (0, *range(2, array.ndim), 1))
    return xp.reshape(last, (array.shape[0], prod(map(int, array.shape[2:])), array.shape[1]))


def pad_with_zeros(xp: Namespace, array: Array, axis: int, low: int, high: int) -> Array:
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
            padded = pad_with_zeros(self.xp, padded, axis + 1, low, high)
        return padded


@dataclass(frozen=True)
class Patch:
    """One offset's columns `(n, positions, channels)`, cut out of the padded input when they are read."""

    padded: Padded
    window: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Samples, positions, channels."""
        positions = prod(len(range(part.start, part.stop, part.step)) for part in self.window)
        return (int(self.padded.maps.shape[0]), positions, int(self.padded.maps.shape[1]))

    def __getitem__(self, key: Any) -> Array:
        """Cut out the columns of the samples `[chunk, ...]`; any other index reads all of them first."""
        if not (
            isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], slice) and key[1] is Ellipsis
        ):
            return self[:, ...][key]
        part = self.padded.array[(key[0], *self.window, slice(None))]
        return self.padded.xp.reshape(part, (part.shape[0], *self.shape[1:]))


POINT = Geometry((), (), (), ())


BUILT = 2**19
"""Numbers of all samples' gradients that a processor's caches hold: of more, those of one offset are."""


@dataclass(frozen=True)
class KernelGradient(OuterGradient):
    r"""The factors of a kernel's gradients, and the maps that they were cut from.

    A sum over samples is the gradient that training computes, and a sample's product with one is
    :math:`\sum_p \langle g(p), (D * a)(p)\rangle`, a forward pass with the sum D as the kernel: each one call
    of a framework, where the standard has a product for each offset. Pairs of samples go by offsets.

    Parameters
    ----------
    maps, outputs
        Input `(n, channels, *space)` and output gradients `(n, d_out, *out_space)`.
    geometry
        The convolution's shape.
    """

    maps: Array = None
    outputs: Array = None
    geometry: Geometry = POINT

    @property
    def _widths(self) -> list[int]:
        return [int(self.maps.shape[1])] * len(self.columns)

    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the summed gradient, `(d_out, channels / groups)` an offset of the kernel."""
        if (own := self._find(work)) is None:
            return super().total(work)
        offsets = work.xp.reshape(self._sum_samples(own, work), (*self._shape[:2], -1))
        return tuple(offsets[..., index] for index in range(offsets.shape[-1]))

    def dot_total(self, direction: tuple[Array, ...], work: Workspace) -> Float[Array, " n"]:
        if (own := self._find(work)) is None:
            return super().dot_total(direction, work)
        kernel = work.xp.stack([cast(work.xp, block, work.dtype) for block in direction], axis=-1)
        return self._products(own, work.xp.reshape(kernel, self._shape), work)

    def scores(self, validation: ParameterGradient, work: Workspace) -> Float[Array, " n"]:
        """Return the inner products with the summed `validation` gradient; a kernel it stays if it fits."""
        half = work.half()
        own = self._find(half)
        if own is None or not isinstance(validation, KernelGradient) or validation._find(half) is None:
            return super().scores(validation, work)
        if not half.holds(4 * self.total_entries()):
            return super().scores(validation, work)
        return self._products(own, validation._sum_samples(own, half), half)

    def _sum_samples(self, own: Convolutions, work: Workspace) -> Array:
        found: Array = None
        for chunk in self._chunks(work):
            part = own.kernel_gradient(*self._sides(chunk, work), self._shape)
            found = part if found is None else found + part
        return found

    def _products(self, own: Convolutions, kernel: Array, work: Workspace) -> Float[Array, " n"]:
        parts = [own.products(*self._sides(chunk, work), kernel) for chunk in self._chunks(work)]
        return parts[0] if len(parts) == 1 else work.xp.concat(parts, axis=0)

    def _build(
        self, chunk: slice, training: OuterGradient, training_chunk: slice, work: Workspace
    ) -> Float[Array, "chunk_val chunk_train"]:
        pairs = ((self, chunk), (training, training_chunk))
        own = self._find(work)
        samples = sum(part.stop - part.start for _, part in pairs)
        # Alive are one side's maps and outputs, padded and laid out anew, and both sides' gradients.
        entries = samples * (self._sample_entries() + 3 * self.total_entries())
        if (
            own is None
            or own.sample_gradients is None
            or not work.holds(entries)
            or samples * self.total_entries() > BUILT
        ):
            return super()._build(chunk, training, training_chunk, work)
        built = []
        for side, part in pairs:
            if not isinstance(side, KernelGradient):
                return super()._build(chunk, training, training_chunk, work)
            gradients = own.sample_gradients(*side._sides(part, work), self._shape)
            built.append(work.xp.reshape(gradients, (gradients.shape[0], -1)))
        left, right = built
        return matmul(work.xp, left, work.xp.matrix_transpose(right))

    def _find(self, work: Workspace) -> Convolutions | None:
        """Return the namespace's convolutions, where there are any and they fit."""
        if not work.holds(self._sample_entries()):
            return None
        shape = self.geometry
        even = all(low == high for low, high in shape.padding)
        padding = tuple(low for low, _ in shape.padding) if even else (0,) * len(shape.padding)
        return convolutions(work.xp, self.maps, shape.stride, padding, shape.dilation, self.groups)

    def _sample_entries(self) -> int:
        """Numbers that one sample takes: its maps cast and laid out anew, three of outputs, its patches."""
        sides = 2 * prod(self.maps.shape[1:]) + 3 * prod(self.outputs.shape[1:])
        return sides + self.positions * self.width

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.height, int(self.maps.shape[1]) // self.groups, *self.geometry.kernel)

    def _chunks(self, work: Workspace) -> Iterator[slice]:
        return spans(self.samples, work.fit(self._sample_entries(), self.samples, "one sample's maps"))

    def _sides(self, chunk: slice, work: Workspace) -> tuple[Array, Array]:
        """Return some samples' maps, padded where the two ends differ, and output gradients."""
        xp, padding = work.xp, self.geometry.padding
        maps, outputs = (cast(xp, side[chunk, ...], work.dtype) for side in (self.maps, self.outputs))
        uneven = any(low != high for low, high in padding)
        for axis, (low, high) in enumerate(padding if uneven else ()):
            maps = pad_with_zeros(xp, maps, axis + 2, low, high)
        return maps, outputs

    def _halves(self) -> tuple[OuterGradient, OuterGradient]:
        """Cut the matrix in two, whose parts are no kernel any more."""
        return OuterGradient(self.rows, self.columns, groups=self.groups)._halves()
