"""Loops, branches and recomputation."""

from dataclasses import replace
from typing import Any

from lai_jax._program.errors import couples, unknown
from lai_jax._program.program import Scaled, Value, close_jaxpr, loop_parts
from lai_jax._program.reader import EquationReader, Reader
from lai_jax._program.rules.primitives import RECOMPUTED
from lai_jax._program.views import match_views


def _merge(eqn: Any, left: Value, right: Value) -> Value:
    """Return what is known of a value that may be either."""
    if left.batched and right.batched and left.sample_axis != right.sample_axis:
        raise couples(eqn, "moves the samples to another axis from one iteration or branch to the next")
    view = left.view if match_views(left.view, right.view) else None
    samples = left.sample_axis or right.sample_axis
    leaves = frozenset[int]() if samples else left.leaves | right.leaves
    layers, scaled = left.layers | right.layers, left.scaled | right.scaled
    flat = left.flat & right.flat
    return Value(left.shape, left.dtype, samples, leaves, view, flat, layers=layers, scaled=scaled)


def _check_output(eqn: Any, value: Value, wanted: Value) -> None:
    """Raise where a body ends in a value of the parameters, and another branch or iteration in samples."""
    if value.of_parameters and wanted.batched:
        raise unknown(eqn, "a branch, or an iteration, that ends in a parameter in the place of samples")


def _leave_body(value: Value) -> Value:
    """Return what is known of a value once it has left a body: no view and no known numbers."""
    return replace(value, view=None, flat=frozenset(), known=None, columns=None)


def read_scan(reader: Reader, eqn: Any, slots: list[int], values: list[Value]) -> list[int]:
    """Read a loop of known length; its body is read until nothing new is learnt."""
    consts, carried = loop_parts(eqn)
    loop = (int(eqn.params["length"]), bool(eqn.params["reverse"]))
    closed = eqn.params["jaxpr"]
    fixed = [_enter(value) for value in values[:consts]]
    sliced = [_slice(eqn, value) for value in values[consts + carried :]]
    carry = [replace(_enter(value), known=None, columns=None) for value in values[consts : consts + carried]]
    # What is known of the carried values k is a fixpoint: k = joined(k, body(k)), from what enters the
    # loop. `_merge` only ever forgets (a view, known numbers, a repeated axis) or adds (leaves, layers, a
    # samples' axis), each of which can happen a finite number of times, so that the loop below ends.
    while True:
        body = reader.nest(loop)
        program = body.whole(closed, [*fixed, *carry, *sliced])
        results = [program.values[slot] for slot in program.outputs]
        results[:carried] = [replace(one, scaled=_move_scales(one, one.shape)) for one in results[:carried]]
        settled = [_merge(eqn, old, new) for old, new in zip(carry, results[:carried], strict=True)]
        if all(old.equals(new) for old, new in zip(carry, settled, strict=True)):
            break
        carry = settled
    # A carried value that is batched inside may begin as a value of the parameters: one copy a sample is made
    # of it on the way in.
    copies = {}
    for place, wanted in enumerate(carry):
        start = values[consts + place]
        if wanted.batched and start.of_parameters:
            if start.shape[wanted.where.axis] != 1 and wanted.where.axis not in start.flat:
                raise unknown(eqn, "a parameter that holds one entry for each sample of the batch")
            copies[consts + place] = reader.copy_use(eqn, f"input {consts + place}", start, wanted.where)
        _check_output(eqn, results[place], wanted)
    # Outputs of iterations are stacked along a new first axis, behind which the samples' axis moves.
    stacked = [
        replace(
            _leave_body(value),
            shape=(loop[0], *value.shape),
            sample_axis=None if value.sample_axis is None else value.where.move(value.where.axis + 1),
            scaled=_move_scales(value, (loop[0], *value.shape)),
        )
        for value in results[carried:]
    ]
    return reader.emit(
        eqn, slots, [*(_leave_body(value) for value in carry), *stacked], copies=copies, bodies=(program,)
    )


def _enter(value: Value) -> Value:
    view = None if value.view is None else value.view.enter_loop(sliced=False)
    return replace(value, view=view)


def _slice(eqn: Any, value: Value) -> Value:
    if value.sample_axis is not None and value.sample_axis.axis == 0:
        raise couples(eqn, "loops over the samples")
    return Value(
        value.shape[1:],
        value.dtype,
        None if value.sample_axis is None else value.where.move(value.where.axis - 1),
        value.leaves,
        None if value.view is None else value.view.enter_loop(sliced=True),
        frozenset(axis - 1 for axis in value.flat if axis > 0),
        layers=value.layers,
        scaled=_move_scales(value, value.shape[1:]),
    )


def _move_scales(value: Value, shape: tuple[int, ...]) -> frozenset[Scaled]:
    """Return what scales a value that moves into a loop or out of it: other entries in each iteration."""
    axes = frozenset(axis for axis, size in enumerate(shape) if size > 1)
    return frozenset(replace(one, axes=axes, part=True) for one in value.scaled)


def read_cond(reader: Reader, eqn: Any, slots: list[int], values: list[Value]) -> list[int]:
    """Read a branch that is the same for all samples."""
    if values[0].batched:
        raise couples(eqn, "chooses one branch for all samples from their values")
    bodies = []
    for number, closed in enumerate(eqn.params["branches"]):
        body = reader.nest(branch=number)
        body.whole(closed, values[1:])
        bodies.append(body)
    results = [[body.program.values[slot] for slot in body.program.outputs] for body in bodies]
    outputs = results[0]
    for other in results[1:]:
        outputs = [_merge(eqn, left, right) for left, right in zip(outputs, other, strict=True)]
    for own in results:
        for value, wanted in zip(own, outputs, strict=True):
            _check_output(eqn, value, wanted)
    return reader.emit(
        eqn, slots, [_leave_body(value) for value in outputs], bodies=tuple(body.program for body in bodies)
    )


def read_remat(reader: Reader, eqn: Any, slots: list[int], values: list[Value]) -> list[int]:
    program = reader.nest().whole(close_jaxpr(eqn.params["jaxpr"]), values)
    return reader.emit(
        eqn, slots, [_leave_body(program.values[slot]) for slot in program.outputs], bodies=(program,)
    )


READERS: dict[str, EquationReader] = {
    "scan": read_scan,
    "cond": read_cond,
    **dict.fromkeys(RECOMPUTED, read_remat),
}
