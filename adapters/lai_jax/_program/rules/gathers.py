"""Where the samples are after reading or writing by index."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lai_jax._program.errors import couples
from lai_jax._program.program import Value
from lai_jax._program.sample_axis import SampleAxis


def _counts_samples(numbers: np.ndarray[Any, Any] | None, axis: int, count: int) -> bool:
    """Whether known indices are 0, 1, ..., n - 1 along an axis."""
    if numbers is None or numbers.shape[axis] != count:
        return False
    shape = [1] * numbers.ndim
    shape[axis] = count
    return bool(np.array_equal(numbers, np.broadcast_to(np.arange(count).reshape(shape), numbers.shape)))


def _index_columns(indices: Value) -> Sequence[np.ndarray[Any, Any] | None]:
    if indices.known is not None:
        return [indices.known[..., column] for column in range(indices.shape[-1])]
    return indices.columns or [None] * indices.shape[-1]


def gather(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    data, indices = values[:2]
    numbers, rank = eqn.params["dimension_numbers"], len(eqn.outvars[0].aval.shape)
    outside = [axis for axis in range(rank) if axis not in numbers.offset_dims]
    # Output axes are the windows read (offset_dims) and, outside of them, the axes of the indices in order.
    # Samples come along with the indices (each reads its own places), with the data (each is read in the
    # same places, or by its own row), or with both, which must then agree.
    by_index = None
    if indices.sample_axis is not None:
        if indices.sample_axis.axis == len(indices.shape) - 1:
            raise couples(eqn, "reads with the samples as coordinates")
        by_index = indices.sample_axis.move(outside[indices.sample_axis.axis])
    if data.sample_axis is None:
        return indices.where.move(outside[indices.where.axis])
    by_data = _read_by_sample(eqn, data, indices, outside)
    if by_index is not None and by_index != by_data:
        raise couples(eqn, "reads one sample's entries for another")
    return by_data


def _read_by_sample(eqn: Any, data: Value, indices: Value, outside: list[int]) -> SampleAxis:
    numbers, samples = eqn.params["dimension_numbers"], data.where
    if samples.axis in numbers.operand_batching_dims:
        pair = numbers.operand_batching_dims.index(samples.axis)
        return samples.move(outside[numbers.start_indices_batching_dims[pair]])
    if samples.axis in numbers.collapsed_slice_dims:
        counted = row_column(eqn, (data, indices))
        if counted is not None:
            return samples.move(outside[counted[1]])
        raise couples(eqn, "picks samples of the batch by index")
    if eqn.params["slice_sizes"][samples.axis] != data.shape[samples.axis]:
        raise couples(eqn, "takes some samples of the batch")
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [axis for axis in range(len(data.shape)) if axis not in gone]
    return samples.move(numbers.offset_dims[kept.index(samples.axis)])


def row_column(eqn: Any, values: Sequence[Value]) -> tuple[int, int] | None:
    """Return which column of the indices counts the samples, and along which of their axes; None if none."""
    data, indices = values[:2]
    numbers = eqn.params["dimension_numbers"]
    samples = data.sample_axis
    if samples is None or samples.axis not in numbers.collapsed_slice_dims:
        return None
    if data.shape[samples.axis] != samples.samples:  # other entries of the samples lie along the axis, too
        return None
    column = numbers.start_index_map.index(samples.axis)
    for axis in range(len(indices.shape) - 1):
        if _counts_samples(_index_columns(indices)[column], axis, samples.samples):
            return column, axis
    return None


def gather_aligned(eqn: Any, data: jax.Array, indices: jax.Array, column: int, axis: int) -> jax.Array:
    """Read each sample's entries from its own row without counting samples, for a batch of any size."""
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    row = numbers.start_index_map[column]
    order = sorted(
        (*zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True), (row, axis))
    )
    aligned = lax.GatherDimensionNumbers(
        numbers.offset_dims,
        tuple(dim for dim in numbers.collapsed_slice_dims if dim != row),
        tuple(dim for dim in numbers.start_index_map if dim != row),
        tuple(operand for operand, _ in order),
        tuple(start for _, start in order),
    )
    rest = jnp.delete(indices, column, axis=-1, assume_unique_indices=True)
    return lax.gather(
        data,
        rest,
        aligned,
        params["slice_sizes"],
        mode=params["mode"],
        fill_value=params["fill_value"],
    )


def scatter(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    written, updated = scatter_axes(eqn, values)
    data, indices, updates = values
    if data.sample_axis not in (None, written) or updates.sample_axis not in (None, updated):
        raise couples(eqn, "writes one sample's entries to another")
    numbers = eqn.params["dimension_numbers"]
    if updated.axis in numbers.update_window_dims:
        if indices.sample_axis is not None:
            raise couples(eqn, "writes to samples of the batch by index")
        if updates.shape[updated.axis] != data.shape[written.axis]:
            raise couples(eqn, "writes to some samples of the batch")
    elif indices.sample_axis is not None:
        outside = [axis for axis in range(len(updates.shape)) if axis not in numbers.update_window_dims]
        if indices.sample_axis != updated.move(outside.index(updated.axis)):
            raise couples(eqn, "writes one sample's entries to another")
    return written


def scatter_axes(eqn: Any, values: Sequence[Value]) -> tuple[SampleAxis, SampleAxis]:
    """Return where the samples are in what is written to, and in what is written, from what is batched.

    They lie along an axis that windows run through, or along one that goes with an axis of the indices: as
    a batch axis of both, or because the indices count the samples along it.
    """
    data, indices, updates = values
    numbers = eqn.params["dimension_numbers"]
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    kept = [axis for axis in range(len(data.shape)) if axis not in gone]
    pairs = dict(zip(kept, numbers.update_window_dims, strict=True))
    outside = [axis for axis in range(len(updates.shape)) if axis not in numbers.update_window_dims]
    for axis, by_index in zip(
        numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True
    ):
        pairs[axis] = outside[by_index]
    found = next(value.where for value in (data, updates, indices) if value.batched)
    for column, axis in enumerate(numbers.scatter_dims_to_operand_dims):
        for by_index in range(len(indices.shape) - 1):
            counted = _counts_samples(_index_columns(indices)[column], by_index, found.samples)
            if axis in gone and data.shape[axis] == found.samples and counted:
                pairs[axis] = outside[by_index]
    if data.batched and data.where.axis in pairs:
        return data.where, data.where.move(pairs[data.where.axis])
    if not data.batched:
        updated = found.axis if updates.batched else outside[found.axis]
        for axis, place in pairs.items():
            if place == updated:
                return found.move(axis), found.move(place)
    raise couples(eqn, "writes to samples of the batch by index")
