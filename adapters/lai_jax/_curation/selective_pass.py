"""One forward pass for the whole batch, a backward pass for some of its rows.

The forward pass leaves residuals. Those of them that carry the samples' axis are cut down to the
chosen rows, and the backward pass that belongs to a batch of that size runs on them.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._curation.meshes import Spread
from lai_jax._program.errors import UnexplainedError, place
from lai_jax._program.evaluate import Records, Wanted, run, zero_perturbations
from lai_jax._program.leaves import replace_leaves
from lai_jax._program.model import Model, know_inputs, reader_of
from lai_jax._program.program import Operation, Program, Use, Value
from lai_jax._program.rules.axes import SCATTERS
from lai_jax._program.rules.primitives import RECOMPUTED
from lai_jax._program.sample_axis import SampleAxis

REFUSED = "rows: the backward pass cannot be run on some rows alone: "


def run_back(
    model: Model, last: Use | None, moving: Sequence[jax.Array], data: Sequence[Any]
) -> tuple[jax.Array, Any, dict[int, Any]]:
    """Return a run's losses, the way back to parameters and last outputs, and the inputs of all layers."""
    layers = frozenset(use.number for use in model.program.uses() if use.is_layer)
    own = [use for use in model.program.uses() if last is not None and use.number == last.number]

    def losses(leaves: Sequence[jax.Array], perturbations: Records) -> tuple[jax.Array, Records]:
        values = replace_leaves(model.parameters, model.trainable, leaves)
        (found,), records = run(model.program, [*values, *data], perturbations, Wanted(layers))
        return found, records

    return jax.vjp(losses, list(moving), zero_perturbations(own), has_aux=True)


def cut_back(
    model: Model,
    small: Model,
    last: Use | None,
    moving: Sequence[jax.Array],
    vjp: Any,
    chosen: jax.Array,
    weights: jax.Array,
    spread: Spread,
) -> list[jax.Array]:
    """Return the gradient of `sum_j weights_j loss_j` over the chosen rows; `small` was read on as many."""
    check_same_program(model.program, small.program)
    residuals = _read_residuals(model, last, moving)
    axes = [residuals.values[slot].sample_axis for slot in residuals.outputs]
    fewer = [array[chosen] if jnp.ndim(array) else array for array in model.data]
    losses, way, _ = run_back(small, last, moving, fewer)
    other, structure = jax.tree.flatten(way)
    cut = [
        _cut(leaf, own, wanted, chosen, model.samples, spread)
        for leaf, own, wanted in zip(jax.tree.leaves(vjp), axes, other, strict=True)
    ]
    return list(jax.tree.unflatten(structure, cut)(spread(weights.astype(losses.dtype)))[0])


def _read_residuals(model: Model, last: Use | None, moving: Sequence[jax.Array]) -> Program:
    """Read the program that makes the residuals: it says where in each of them the samples are."""

    def residuals(moving: Sequence[jax.Array], data: Sequence[Any]) -> list[Any]:
        return jax.tree.leaves(run_back(model, last, moving, data)[1])

    closed = jax.make_jaxpr(residuals)(list(moving), list(model.data))
    known = know_inputs(closed, len(moving), (), model.samples)
    try:
        return reader_of(differentiated=False).whole(closed, known)
    except UnexplainedError as error:
        msg = REFUSED + str(error)
        raise UnexplainedError(msg) from error


def _cut(
    leaf: Any, axis: SampleAxis | None, wanted: Any, chosen: jax.Array, samples: int, spread: Spread
) -> Any:
    """Return the chosen samples' part of a residual."""
    if axis is not None:
        part = spread(axis.take(leaf, chosen), axis.axis)
    elif leaf.shape == wanted.shape:
        part = leaf
    else:  # a constant with one entry a sample, as a mask drawn for the batch's shape
        axes = [a for a, (old, new) in enumerate(zip(leaf.shape, wanted.shape, strict=True)) if old != new]
        if len(axes) != 1 or leaf.shape[axes[0]] != samples:
            msg = f"{REFUSED}a constant of shape {leaf.shape} follows the batch size in an unknown way"
            raise UnexplainedError(msg)
        part = spread(jnp.take(leaf, chosen, axis=axes[0], mode="clip"), axes[0])
    if part.shape != wanted.shape or part.dtype != wanted.dtype:
        msg = f"{REFUSED}a residual of shape {leaf.shape} is of shape {wanted.shape} for fewer samples"
        raise UnexplainedError(msg)
    return part


def check_same_program(large: Program, small: Program, *, kept: bool = True, again: bool = False) -> None:
    """Raise unless two readings for different batch sizes do the same, sizes aside.

    Residuals are `kept` but of what runs again in the backward pass, some of it or all: then `again`. So is
    a derivative rule.
    """
    operations, others = _live(large), _live(small)
    if len(operations) != len(others):
        _differ("it takes another number of operations")
    for one, other in zip(operations, others, strict=True):
        name = one.eqn.primitive.name
        # its residuals are ordered by shape, which the batch size changes
        if kept and name == "cond" and one.batched:
            msg = (
                f"{REFUSED}samples pass through {place(one.eqn)}, whose residuals cannot be told apart; put "
                "jax.checkpoint around it, which keeps none"
            )
            raise UnexplainedError(msg)
        if name != other.eqn.primitive.name or len(one.bodies) != len(other.bodies):
            _differ(f"{name} in place of {other.eqn.primitive.name}")
        for left, right in zip(one.inputs, other.inputs, strict=True):
            _check_same_constant(name, large.constants.get(left), small.constants.get(right))
            if again and one.batched and left not in large.inputs:
                _check_made_again(one, large.values[left], small.values[right])
        recomputed = name in RECOMPUTED
        none = recomputed and one.eqn.params["policy"] is None
        for larger, smaller in zip(one.bodies, other.bodies, strict=True):
            check_same_program(larger, smaller, kept=kept and not none, again=again or recomputed)
        if one.rule is not None and other.rule is not None:
            check_same_program(one.rule, other.rule, kept=False, again=True)


def _live(program: Program) -> list[Operation]:
    """Return the operations on numbers that matter: not those that only count rows."""
    return [
        operation
        for operation in program.operations
        if operation.batched
        or any(jnp.issubdtype(program.values[slot].dtype, jnp.inexact) for slot in operation.outputs)
    ]


def _check_same_constant(name: str, one: Any, other: Any) -> None:
    if one is None or other is None or isinstance(one, jax.core.Tracer):
        return
    if one.shape != other.shape or not jnp.issubdtype(one.dtype, jnp.inexact):
        return
    if not np.array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64), equal_nan=True):
        _differ(f"{name} with {one} in place of {other}")


def _check_made_again(operation: Operation, one: Value, other: Value) -> None:
    """Raise if what runs for the chosen rows alone makes other entries than they had in the batch."""
    differing = {axis for axis, size in enumerate(one.shape) if size != other.shape[axis]}
    reads = operation.eqn.primitive.name in ("gather", "concatenate", *SCATTERS)  # numbers of rows
    if one.batched or differing <= one.flat or (reads and not jnp.issubdtype(one.dtype, jnp.inexact)):
        return
    msg = (
        f"{REFUSED}{place(operation.eqn)} takes an array with one entry a sample, as a mask drawn for the "
        "batch's shape, that jax.checkpoint or a derivative rule makes again; make it outside of these"
    )
    raise UnexplainedError(msg)


def _differ(how: str) -> None:
    msg = f"{REFUSED}apply or loss computes something else for a smaller batch ({how}), as if divided by size"
    raise UnexplainedError(msg)
