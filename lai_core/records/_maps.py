"""Per-sample gradients of a convolution's kernel: offset by offset, or by a namespace's own convolutions."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from jaxtyping import Float

from lai_core._engine.gradients import Workspace, spans
from lai_core._engine.namespace import Array, Convolutions, cast, convolutions
from lai_core._engine.outer import OuterGradient
from lai_core.records._patches import Geometry, padded_with_zeros

POINT = Geometry((), (), (), ())


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

    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the summed gradient, `(d_out, channels / groups)` an offset of the kernel."""
        if (own := self._own(work)) is None:
            return super().total(work)
        shape = (self.height, int(self.maps.shape[1]) // self.groups, *self.geometry.kernel)
        found: Array = None
        for maps, outputs in self._chunks(work):
            part = own.kernel_gradient(maps, outputs, shape)
            found = part if found is None else found + part
        offsets = work.xp.reshape(found, (*shape[:2], -1))
        return tuple(offsets[..., index] for index in range(offsets.shape[-1]))

    def along(self, direction: tuple[Array, ...], work: Workspace) -> Float[Array, " n"]:
        """Return the inner product of every sample's gradient with a `total`."""
        if (own := self._own(work)) is None:
            return super().along(direction, work)
        xp = work.xp
        kernel = xp.stack([cast(xp, block, work.dtype) for block in direction], axis=-1)
        kernel = xp.reshape(kernel, (*kernel.shape[:2], *self.geometry.kernel))
        parts = []
        for maps, outputs in self._chunks(work):
            products = own.convolved(maps, kernel) * outputs
            parts.append(xp.sum(products, axis=tuple(range(1, products.ndim))))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

    def _own(self, work: Workspace) -> Convolutions | None:
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

    def _chunks(self, work: Workspace) -> Iterator[tuple[Array, Array]]:
        """Yield as many samples' maps and output gradients as fit, padded where the two ends differ."""
        xp = work.xp
        uneven = any(low != high for low, high in self.geometry.padding)
        size = work.fit(self._sample_entries(), self.samples, "one sample's maps")
        for chunk in spans(self.samples, size):
            maps, outputs = (cast(xp, side[chunk, ...], work.dtype) for side in (self.maps, self.outputs))
            for axis, (low, high) in enumerate(self.geometry.padding if uneven else ()):
                maps = padded_with_zeros(xp, maps, axis + 2, low, high)
            yield maps, outputs

    def _halves(self) -> tuple[OuterGradient, OuterGradient]:
        """Cut the matrix in two, whose parts are no kernel any more."""
        return OuterGradient(self.rows, self.columns, groups=self.groups)._halves()
