"""Where the samples are in a tensor of a model's inside, and the tensor with them in front.

A batch of n samples usually lies on axis 0, inside attention on axis 1, and where positions are
merged with it an axis has length n m, samples outermost or innermost. Shapes alone may leave
several readings.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SampleAxis:
    """Axis `axis` has length `outer * n * inner`, the samples between."""

    axis: int
    outer: int = 1
    inner: int = 1

    @property
    def plain(self) -> bool:
        """Whether the samples have the axis to themselves."""
        return self.outer == self.inner == 1

    def split(self, value: Tensor) -> Tensor:
        """Return the tensor with the samples on an axis of their own, `axis + 1`."""
        return value.unflatten(self.axis, (self.outer, -1, self.inner))

    def kept(self, value: Tensor, rows: Tensor) -> Tensor:
        """Return the samples `rows`, in the order of the strides that the value has."""
        # The backward graph was captured for these strides, so rows are taken with the axes in their order in
        # memory, from the largest stride to the smallest, and the axes put back.
        if value.is_contiguous():
            if self.plain:
                return value.index_select(self.axis, rows)
            before, after = value.shape[: self.axis], value.shape[self.axis + 1 :]
            taken = value.view(*before, self.outer, -1, self.inner, *after).index_select(self.axis + 1, rows)
            return taken.view(*before, -1, *after)
        strides = value.stride()
        order = sorted(range(value.ndim), key=lambda one: -strides[one])
        axis = order.index(self.axis)
        split = value.permute(order).unflatten(axis, (self.outer, -1, self.inner))
        taken = split.index_select(axis + 1, rows).flatten(axis, axis + 2)
        return taken.permute([order.index(one) for one in range(value.ndim)])

    def weighted(self, value: Tensor, weights: Tensor) -> Tensor:
        """Return the tensor with every sample multiplied by its weight."""
        if self.plain:
            return value * weights.to(value).view(-1, *[1] * (value.ndim - self.axis - 1))
        split = self.split(value)
        factors = weights.to(split).reshape(-1, *[1] * (split.ndim - self.axis - 2))
        return (split * factors).flatten(self.axis, self.axis + 2)

    def in_front(self, value: Tensor, *, left: bool = False) -> Tensor:
        """Return a layer's input or output as `(n, d)`, or as `(n, t, d)` where it has positions.

        Features are on the last axis; on the first of two where `left`.
        """
        if left:
            return SampleAxis(1 - self.axis, self.outer, self.inner).in_front(value.T)
        if self.axis == 0 and self.outer == 1:  # they are in front
            alone = value.ndim == 2 and self.inner == 1
            return value if alone else value.reshape(value.shape[0] // self.inner, -1, value.shape[-1])
        front = value.movedim(self.axis, 0) if self.plain else self.split(value).movedim(self.axis + 1, 0)
        return front.reshape(front.shape[0], -1, value.shape[-1])


def candidates(leading: Sequence[int], samples: int, hint: int | None = None) -> list[SampleAxis]:
    """Return the sample axes that an array's axes before its features allow, the likeliest first."""
    exact = [SampleAxis(axis) for axis, length in enumerate(leading) if length == samples]
    if hint is not None:
        exact.sort(key=lambda sample_axis: sample_axis.axis != hint)
    return exact + [
        SampleAxis(axis, **{side: length // samples})
        for axis, length in enumerate(leading)
        if isinstance(length, int) and length % samples == 0 and length > samples  # none of a ragged axis
        for side in ("inner", "outer")
    ]


def fitting(known: SampleAxis, allowed: Sequence[SampleAxis]) -> SampleAxis | None:
    """Return the sample axis that corresponds to `known`, an earlier batch's; None if there is none.

    Samples that were alone on their axis say nothing of how they would be merged with positions.
    """
    for sample_axis in allowed:
        merged = not known.plain and (sample_axis.outer > 1) == (known.outer > 1)
        if sample_axis.axis == known.axis and (sample_axis.plain or merged):
            return sample_axis
    return None


def powers_of_two(like: Tensor, dtypes: Iterable[torch.dtype]) -> Tensor:
    """Return a power of two per entry of `like`, in no order and the same ones at every call.

    A float times one is not rounded, so that what is linear in its weights shows it bit for bit in
    every type. Along an axis, every 64 entries in a row have different ones, every 8 where the model
    computes in float16, which holds no more beside a gradient; `dtypes` are the types it computes in.
    """
    levels = 8 if torch.float16 in dtypes else 64
    generator = torch.Generator().manual_seed(0)
    exponents = torch.zeros((), dtype=torch.int64, device=like.device)
    for length in like.shape:
        orders = torch.rand(-(-length // levels), levels, generator=generator, device="cpu").argsort(1)
        exponents = (exponents.unsqueeze(-1) + orders.flatten()[:length].to(like.device)) & (levels - 1)
    powers = torch.tensor([2.0**level for level in range(levels)], dtype=like.dtype, device=like.device)
    return powers[exponents]


def rounding(first: Tensor, *, precision: float, largest: float) -> float:
    """Return by how much two sums of the same numbers may differ.

    `precision` is that of the coarsest type the model computes in; a few roundings of the layer's own
    gradients are allowed, and of the `largest` of all layers, for kernels that add up in no fixed order,
    as some do on GPUs.
    """
    roundings = 4.0 if precision > 1e-4 else 64.0  # half precision has few digits to give away
    return roundings * precision * (magnitude(first) + 0.25 * largest)


def differ(found: Tensor, expected: Tensor, within: float | Tensor) -> bool:
    """Whether two arrays differ by more than `within` where what is expected is finite."""
    same = (found - expected).abs() <= within
    return not bool((same | ~torch.isfinite(expected)).all())


def magnitude(values: Tensor) -> float:
    """Return the largest finite absolute value."""
    if not values.numel():
        return 0.0
    return float(torch.nan_to_num(values.abs(), nan=0.0, posinf=0.0, neginf=0.0).max())


def norm(values: Tensor) -> float:
    """Return the root of the sum of squares, of entries of few digits too, dense or sparse."""
    values = values.coalesce().values() if values.is_sparse else values
    return float(torch.linalg.vector_norm(values.abs().double()))
