"""From the operands of a use to samples, positions and features."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lai_jax._program.program import Use
from lai_jax._program.views import Axes, View

Matrix = tuple[int, int, Axes, Axes, Axes]
"""Leaf, offset, and the axes of groups, outputs and inputs of one matrix inside it."""


@dataclass(frozen=True)
class ProductAxes:
    """What each axis of the operands of a product of arrays is."""

    # `groups`, `inputs`, `positions`: of the batched operand: batch axes, summed axes, and the rest without
    # the samples'
    groups: tuple[int, ...]
    inputs: tuple[int, ...]
    positions: tuple[int, ...]
    # `weight_groups`, `weight_inputs`, `weight_outputs`: of the weight
    weight_groups: tuple[int, ...]
    weight_inputs: tuple[int, ...]
    weight_outputs: tuple[int, ...]


def product_axes(use: Use) -> ProductAxes:
    contract, batch = use.eqn.params["dimension_numbers"]
    ranks = [len(atom.aval.shape) for atom in use.eqn.invars]
    taken = (*contract[use.data], *batch[use.data], use.samples_in.axis)
    used = (*contract[use.parameter], *batch[use.parameter])
    return ProductAxes(
        tuple(batch[use.data]),
        tuple(contract[use.data]),
        tuple(axis for axis in range(ranks[use.data]) if axis not in taken),
        tuple(batch[use.parameter]),
        tuple(contract[use.parameter]),
        tuple(axis for axis in range(ranks[use.parameter]) if axis not in used),
    )


def matrix_of(use: Use, view: View) -> Matrix:
    """Describe the matrix that a dense use multiplies with, or the table that a gather reads."""
    if use.kind == "gather":
        rank = len(use.operand.shape)
        return view.leaf, view.offset, (), view.axes((0,)), view.axes(tuple(range(1, rank)))
    if use.kind == "convolution":
        every = tuple(range(len(use.operand.shape)))
        return view.leaf, view.offset, (), view.axes(every), ()
    axes = product_axes(use)
    return (
        view.leaf,
        view.offset,
        view.axes(axes.weight_groups),
        view.axes(axes.weight_outputs),
        view.axes(axes.weight_inputs),
    )


def _flatten(array: jax.Array, blocks: list[tuple[int, ...]]) -> jax.Array:
    """Lay axes out as `(n, positions, features)`; without the middle one where no axis is a position."""
    first, *features = blocks
    named = (*first, *(axis for block in features for axis in block))
    # what is left of the samples' axis
    single = tuple(axis for axis in range(1, array.ndim) if axis not in named)
    moved = jnp.transpose(array, (0, *single, *named))
    width = math.prod(array.shape[axis] for block in features for axis in block)
    return moved.reshape((array.shape[0], *((-1,) if first else ()), width))


def dense_arrays(use: Use, data: jax.Array, cotangent: jax.Array | None) -> tuple[Any, Any]:
    """Return the activations and output gradients of a dense use, `(n, [t,] d)` each."""
    axes = product_axes(use)
    if not jnp.issubdtype(data.dtype, jnp.inexact):  # a product promotes whole numbers by itself
        data = data.astype(use.output.dtype)
    left = data.shape[use.samples_in.axis] // use.samples_in.samples  # of the samples' axis, other positions

    def shift(own: tuple[int, ...], by_rows: int) -> tuple[int, ...]:
        return tuple(axis + 1 for axis in own if left > 1 or axis != by_rows)

    kept = tuple(sorted((*axes.positions, use.samples_in.axis)))
    activations = _flatten(
        use.samples_in.split(data),
        [shift(kept, use.samples_in.axis), _shift_up(axes.groups), _shift_up(axes.inputs)],
    )
    if cotangent is None:
        return activations, None
    groups, free, own = len(axes.groups), len(kept), len(axes.weight_outputs)
    if use.parameter == 1:
        places = tuple(range(groups, groups + free))
        outputs = tuple(range(groups + free, groups + free + own))
    else:
        places = tuple(range(groups + own, groups + own + free))
        outputs = tuple(range(groups, groups + own))
    gradients = _flatten(
        use.samples_out.split(cotangent),
        [shift(places, use.samples_out.axis), _shift_up(tuple(range(groups))), _shift_up(outputs)],
    )
    return activations, gradients


def _shift_up(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


def has_positions(use: Use) -> bool:
    """Whether a dense use uses its matrix at several places of one sample."""
    data = use.eqn.invars[use.data].aval.shape
    return bool(product_axes(use).positions) or data[use.samples_in.axis] != use.samples_in.samples


def table_arrays(use: Use, indices: jax.Array, cotangent: jax.Array) -> tuple[Any, Any]:
    """Return which row of a table each position reads, and the gradients of what was read."""
    rows, samples = use.operand.shape[0], use.samples_in.samples
    numbers = use.eqn.params["dimension_numbers"]
    ids = use.samples_in.split(indices[..., 0]).reshape((samples, -1))
    moved = use.samples_out.split(cotangent)
    offsets = _shift_up(tuple(numbers.offset_dims))
    outside = tuple(axis for axis in range(1, moved.ndim) if axis not in offsets)
    gradients = jnp.transpose(moved, (0, *outside, *offsets)).reshape((samples, ids.shape[1], -1))
    inside = (ids >= 0) & (ids < rows)
    if use.eqn.params["mode"] != lax.GatherScatterMode.CLIP:  # of what lies outside no row has a gradient
        gradients = jnp.where(inside[..., None], gradients, jnp.zeros((), gradients.dtype))
    return jnp.clip(ids, 0, rows - 1), gradients
