"""What is known of the results of operations that no sample touches: parameters and constants."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._program.errors import UnexplainedError
from lai_jax._program.program import Value, programs_of
from lai_jax._program.rules.axes import RULES
from lai_jax._program.rules.primitives import ELEMENTWISE
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.views import View

_FOLD_LIMIT = 1 << 20  # entries; larger index arrays are not computed ahead


def read_unbatched(eqn: Any, values: Sequence[Value]) -> list[Value]:
    """Return what is known of the outputs of an operation without batched inputs."""
    leaves = frozenset[int]().union(*(value.leaves for value in values))
    view = rearrange(eqn, values[0].view) if values else None
    if eqn.primitive.name == "stop_gradient":
        leaves = frozenset()  # no gradient reaches the parameter: a frozen weight
    folded = None if leaves else _fold(eqn, values)
    flat = _flat_axes(eqn, values)
    found = []
    for index, variable in enumerate(eqn.outvars):
        known = None if folded is None else folded[index]
        shape, dtype = tuple(variable.aval.shape), variable.aval.dtype
        value = Value(shape, dtype, flat=flat, known=known)
        if jnp.issubdtype(dtype, jnp.inexact):
            value = replace(value, leaves=leaves, view=view if index == 0 else None)
        found.append(value)
    return found


def rearrange(eqn: Any, view: View | None) -> View | None:
    """Return how an operation rearranges a view; None if it does more than that."""
    name, params = eqn.primitive.name, eqn.params
    shape = tuple(eqn.outvars[0].aval.shape)
    if view is None or len(eqn.invars) != 1:
        return None
    if name in ("convert_element_type", "copy", "stop_gradient", "sharding_constraint", "name"):
        return view
    if name in ("reshape", "squeeze"):
        order = params.get("dimensions") if name == "reshape" else None
        return view.change(
            lambda cells: np.reshape(np.transpose(cells, order) if order else cells, shape, copy=False)
        )
    if name == "transpose":
        return view.change(lambda cells: np.transpose(cells, params["permutation"]))
    if name == "rev":
        return view.change(lambda cells: np.flip(cells, tuple(params["dimensions"])))
    if name == "slice":
        steps = params["strides"] or (1,) * len(shape)
        spans = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
        index = tuple(slice(int(a), int(b), int(c)) for a, b, c in spans)
        return view.change(lambda cells: cells[index])
    if name == "broadcast_in_dim":
        placed = [1] * len(shape)
        for axis, place in enumerate(params["broadcast_dimensions"]):
            placed[int(place)] = view.cells.shape[axis]
        fitted = view.change(lambda cells: np.reshape(cells, placed, copy=False))
        return None if fitted is None else fitted.change(lambda cells: np.broadcast_to(cells, shape))
    return None


def _flat_axes(eqn: Any, values: Sequence[Value]) -> frozenset[int]:
    """Return along which axes an output repeats one entry."""
    name, shape = eqn.primitive.name, tuple(eqn.outvars[0].aval.shape)
    if name == "broadcast_in_dim":
        kept = {int(place): axis for axis, place in enumerate(eqn.params["broadcast_dimensions"])}
        operand = values[0]
        return frozenset(
            axis
            for axis in range(len(shape))
            if axis not in kept or operand.shape[kept[axis]] == 1 or kept[axis] in operand.flat
        )
    if values and (name == "concatenate" or name in ELEMENTWISE):
        flat = frozenset(range(len(shape))) - {eqn.params.get("dimension")}
        for value in values:
            if value.shape:  # a single number is one entry everywhere
                spread = {axis for axis, size in enumerate(value.shape) if size == 1 and shape[axis] > 1}
                flat &= value.flat | spread
        return flat
    return frozenset(place for side in range(len(values)) for place in _carry(eqn, values, side))


def _carry(eqn: Any, values: Sequence[Value], side: int) -> Iterator[int]:
    """Yield where axes along which an input repeats one entry are in the output, if nothing varies there."""
    # What keeps samples apart treats all alike: of samples that are equal come equal results. So such an
    # axis is followed as that of samples would be, where no other input has entries along it.
    name, others = eqn.primitive.name, [*values[:side], *values[side + 1 :]]
    paired = eqn.params["dimension_numbers"][1][side] if name == "dot_general" else ()
    if name not in RULES or (name != "dot_general" and any(other.shape for other in others)):
        return
    for axis in values[side].flat - {*paired}:
        own = SampleAxis(axis, values[side].shape[axis])
        try:
            marked = replace(values[side], sample_axis=own)
            made = RULES[name](eqn, [*values[:side], marked, *values[side + 1 :]])
        except UnexplainedError:
            continue
        if eqn.outvars[0].aval.shape[made.axis] == own.samples:
            yield made.axis


def _fold(eqn: Any, values: Sequence[Value]) -> list[np.ndarray[Any, Any] | None] | None:
    """Compute integers and truth values that do not depend on the program's inputs."""
    outputs = [variable.aval for variable in eqn.outvars]
    if any(jnp.issubdtype(aval.dtype, jnp.inexact) or not _numeric(aval.dtype) for aval in outputs):
        return None
    if any(value.known is None for value in values) or eqn.effects:
        return None
    if sum(math.prod(aval.shape) for aval in outputs) > _FOLD_LIMIT or any(programs_of(eqn)):
        return None
    with jax.ensure_compile_time_eval():
        result = eqn.primitive.bind(
            *(jnp.asarray(value.known, value.dtype) for value in values), **eqn.params
        )
    results = result if eqn.primitive.multiple_results else [result]
    return [np.asarray(array) for array in results]


def _numeric(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.bool_))


def read_constant(array: Any, view: View | None) -> Value:
    shape, known = tuple(array.shape), None
    if not isinstance(array, jax.core.Tracer) and _numeric(array.dtype) and math.prod(shape) <= _FOLD_LIMIT:
        known = np.asarray(array)
    return Value(shape, array.dtype, view=view, known=known)


def join_columns(eqn: Any, values: Sequence[Value]) -> tuple[np.ndarray[Any, Any] | None, ...] | None:
    """Return the known columns of indices that were put side by side."""
    name = eqn.primitive.name
    if name == "convert_element_type":
        held, kind = values[0].columns or (), eqn.params["new_dtype"]  # to which numbers need not fit
        return tuple(None if one is None else one.astype(kind) for one in held) or None
    last = len(eqn.outvars[0].aval.shape) - 1
    if name != "concatenate" or eqn.params["dimension"] != last:
        return None
    columns: list[np.ndarray[Any, Any] | None] = []
    for value in values:
        known, width = value.known, value.shape[-1]
        columns += [None] * width if known is None else [known[..., k] for k in range(width)]
    return tuple(columns)
