"""What some namespaces have beyond the array API standard: sums over equal ids, convolutions.

Where a namespace has none, the standard's operations do it.
"""

import math
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, NamedTuple

from lai_core._engine.namespace import (
    Array,
    Namespace,
    dots,
    is_jax_array,
    is_numpy_array,
    is_torch_namespace,
)


def add_rows(xp: Namespace, rows: int, ids: Array, values: Array) -> Array | None:
    """Return the sums of the rows of `values` that have equal ids, `(rows, d)`; None on a namespace without.

    Torch and jax have their own, which read and write each number once.
    """
    if is_torch_namespace(xp):
        return values.new_zeros((rows, values.shape[1])).index_add(0, ids, values)
    if is_jax_array(values):
        return xp.zeros((rows, values.shape[1]), dtype=values.dtype).at[ids].add(values)
    if not is_numpy_array(values):
        return None
    order, known, lengths = _runs(xp, ids)
    found = xp.zeros((rows, values.shape[1]), dtype=values.dtype)
    found[known] = xp.add.reduceat(values[order], xp.cumulative_sum(lengths) - lengths, axis=0)
    return found


def kernel_of_equal_ids(xp: Namespace, own: tuple[Array, Array], others: tuple[Array, Array]) -> Array | None:
    """Return the inner products of rows of equal ids, summed: `(n, m)`, of ids `(n, t)` and `(m, u)`.

    Of ids below zero they are zero. Of numpy's arrays alone, as how many pairs there are depends on the ids;
    None where they are so many that a product of all with all is as fast.
    """
    ((n, t), (m, u)), width = (side[0].shape for side in (own, others)), own[1].shape[-1]
    ids, other_ids = (side[0].reshape(-1) for side in (own, others))
    order, known, lengths = _runs(xp, other_ids)
    run = xp.minimum(xp.searchsorted(known, ids), len(known) - 1)
    counts = xp.where((ids >= 0) & (known[run] == ids), lengths[run], 0)
    pairs = int(xp.sum(counts))
    # Of each pair both rows are moved, beside 4 n t m u numbers in which all products would be compared.
    if pairs * max(width, 16) > n * t * m * u:
        return None
    left = xp.repeat(xp.arange(n * t), counts)
    place = xp.arange(pairs) - xp.repeat(xp.cumulative_sum(counts) - counts, counts)
    right = order[xp.repeat((xp.cumulative_sum(lengths) - lengths)[run], counts) + place]
    products = dots(xp, own[1][left], others[1][right])
    found = xp.bincount(left // t * m + right // u, weights=products, minlength=n * m)
    return found.astype(products.dtype).reshape(n, m)


def _runs(xp: Namespace, ids: Array) -> tuple[Array, Array, Array]:
    """Return numpy's order of ids, each id once, and how often it is there."""
    order = xp.argsort(ids)
    ids = ids[order]
    ends = xp.append(xp.flatnonzero(ids[1:] != ids[:-1]), len(ids) - 1)
    return order, ids[ends], xp.diff(ends, prepend=-1)


class Convolutions(NamedTuple):
    """A namespace's own convolutions of one geometry."""

    products: Callable[[Array, Array, Array], Array]
    """Of maps `(n, channels, *space)` and output gradients `(n, d_out, *out_space)`, each sample's gradient
    times a kernel `(d_out, channels / groups, *lengths)`."""
    kernel_gradient: Callable[[Array, Array, tuple[int, ...]], Array]
    """Of maps and output gradients, for a kernel of this shape, summed over samples."""
    sample_gradients: Callable[[Array, Array, tuple[int, ...]], Array] | None
    """The same of each sample, `(n, entries)` in one order; None where offset by offset is as fast."""


def convolutions(
    xp: Namespace,
    maps: Array,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Convolutions | None:
    """Return the namespace's own convolutions; None on a namespace without.

    Of torch on a processor alone: on a GPU its convolutions round float32 to 10 bits unless told otherwise.
    """
    if is_torch_namespace(xp) and maps.device.type == "cpu" and len(stride) <= 3:
        return _torch_convolutions(xp, len(stride), (stride, padding, dilation), groups)
    if is_numpy_array(maps):
        return _numpy_convolutions(stride, padding, dilation, groups)
    return _jax_convolutions(stride, padding, dilation, groups) if is_jax_array(maps) else None


def _flat(xp: Namespace, *sides: Array) -> Iterator[Array]:
    return (xp.reshape(side, (side.shape[0], -1)) for side in sides)


def _torch_convolutions(xp: Namespace, axes: int, geometry: tuple[Any, ...], groups: int) -> Convolutions:
    forward = getattr(xp.nn.functional, f"conv{axes}d")
    backward = getattr(xp.nn.grad, f"conv{axes}d_weight")

    def products(maps: Array, outputs: Array, kernel: Array) -> Array:
        with xp.autocast("cpu", enabled=False):
            return dots(xp, *_flat(xp, forward(maps, kernel, None, *geometry, groups), outputs))

    def kernel_gradient(maps: Array, outputs: Array, shape: tuple[int, ...]) -> Array:
        return backward(maps, shape, outputs, *geometry, groups)  # which no autocast casts

    def sample_gradients(maps: Array, outputs: Array, shape: tuple[int, ...]) -> Array:
        # As many samples side by side as groups of channels: no gradient mixes two groups.
        n, d_out = len(maps), shape[0]
        sides = (xp.reshape(side, (1, -1, *side.shape[2:])) for side in (maps, outputs))
        maps, outputs = sides
        found = backward(maps, (n * d_out, *shape[1:]), outputs, *geometry, n * groups)
        return xp.reshape(found, (n, -1))

    return Convolutions(products, kernel_gradient, sample_gradients)


def _jax_convolutions(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> Convolutions:
    jax: Any = sys.modules["jax"]  # of whom the arrays are; jax.numpy has no convolution of maps
    pads = [(length, length) for length in padding]

    def convolve_maps(maps: Array, kernel: Array) -> Array:
        return jax.lax.conv_general_dilated(
            maps, kernel, stride, pads, rhs_dilation=dilation, feature_group_count=groups
        )

    def products(maps: Array, outputs: Array, kernel: Array) -> Array:
        return dots(jax.numpy, *_flat(jax.numpy, convolve_maps(maps, kernel), outputs))

    def kernel_gradient(maps: Array, outputs: Array, shape: tuple[int, ...]) -> Array:
        kernel = jax.ShapeDtypeStruct(shape, maps.dtype)
        return jax.linear_transpose(lambda kernel: convolve_maps(maps, kernel), kernel)(outputs)[0]

    return Convolutions(products, kernel_gradient, None)


def _numpy_convolutions(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> Convolutions:
    np: Any = sys.modules["numpy"]
    axes = tuple(range(1, len(stride) + 1))  # of space, where channels are last
    steps = tuple(slice(None, None, step) for step in stride)
    gaps = tuple(slice(None, None, step) for step in dilation)

    def patches(maps: Array, lengths: tuple[int, ...]) -> Iterator[Array]:
        """Yield of each sample what lies under every output: `(groups, positions, offsets * channels)`."""
        # One sample's at once stay in the processor's cache until they are multiplied.
        n, channels, *space = maps.shape
        sizes = [size + 2 * pad for size, pad in zip(space, padding, strict=True)]
        padded = np.zeros((n, *sizes, channels), dtype=maps.dtype)
        inside = (slice(pad, pad + size) for size, pad in zip(space, padding, strict=True))
        padded[(slice(None), *inside, slice(None))] = np.moveaxis(maps, 1, -1)
        spans = [step * (length - 1) + 1 for length, step in zip(lengths, dilation, strict=True)]
        windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=axes)
        windows = windows[(slice(None), *steps, slice(None), *gaps)]
        outputs = windows.shape[1 : len(axes) + 1]
        windows = windows.reshape(n, *outputs, groups, channels // groups, *lengths)
        order = (len(axes) + 1, *axes, *(axis + len(axes) + 2 for axis in axes), len(axes) + 2)
        for sample in np.transpose(windows, (0, *order)):
            yield sample.reshape(groups, math.prod(outputs), -1)

    def gradients(maps: Array, outputs: Array, lengths: tuple[int, ...]) -> Iterator[Array]:
        rows = outputs.reshape(len(outputs), groups, outputs.shape[1] // groups, -1)
        return map(np.matmul, rows, patches(maps, lengths))

    def products(maps: Array, outputs: Array, kernel: Array) -> Array:
        flat, each = np.moveaxis(kernel, 1, -1).reshape(-1), gradients(maps, outputs, kernel.shape[2:])
        return np.stack([np.dot(one.reshape(-1), flat) for one in each])

    def kernel_gradient(maps: Array, outputs: Array, shape: tuple[int, ...]) -> Array:
        found = reduce(np.add, gradients(maps, outputs, shape[2:]))
        return np.moveaxis(found.reshape(shape[0], *shape[2:], shape[1]), -1, 1)

    def sample_gradients(maps: Array, outputs: Array, shape: tuple[int, ...]) -> Array:
        rows = outputs.reshape(len(outputs), groups, shape[0] // groups, -1)
        found = np.empty((*rows.shape[:3], math.prod(shape[1:])), dtype=maps.dtype)
        for sample, columns, gradient in zip(rows, patches(maps, shape[2:]), found, strict=True):
            np.matmul(sample, columns, out=gradient)
        return found.reshape(len(maps), -1)

    return Convolutions(products, kernel_gradient, sample_gradients)
