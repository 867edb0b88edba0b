"""Running a program with its layers' inputs recorded and its layers' outputs perturbed.

What is recorded, and what is added to outputs, is a dictionary by number of the use: a plain pytree, which
loops, branches and `jax.vjp` carry as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lai_jax._program.program import Operation, Program, Use, loop_parts
from lai_jax._program.rules.gathers import gather_aligned
from lai_jax._program.rules.primitives import RECOMPUTED

Perturbations = Mapping[int, jax.Array]
Records = dict[int, jax.Array]


class Wanted(NamedTuple):
    """Which uses are recorded, by number."""

    uses: frozenset[int] = frozenset()
    # record the values of the parameters at these uses in the place of their batched inputs; nothing that
    # depends on samples then has a derivative
    operands: bool = False


def apply_equation(eqn: Any, arguments: Sequence[Any]) -> list[Any]:
    if hasattr(eqn, "run"):  # a `MappedEquation`
        return list(eqn.run(*arguments))
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, params = params if isinstance(params, tuple) else ((), params)
    result = eqn.primitive.bind(*functions, *arguments, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def interpret(
    closed: Any, given: Sequence[Any], apply: Callable[[Any, Sequence[Any]], list[Any]]
) -> list[Any]:
    """Run a closed jaxpr, each of its equations by `apply`."""
    known = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known |= dict(zip(closed.jaxpr.invars, given, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else known[atom]

    for eqn in closed.jaxpr.eqns:
        known |= dict(zip(eqn.outvars, apply(eqn, list(map(value, eqn.invars))), strict=True))
    return list(map(value, closed.jaxpr.outvars))


def run(
    program: Program,
    arguments: Sequence[Any],
    perturbations: Perturbations,
    wanted: Wanted,
    slots: dict[int, Any] | None = None,
) -> tuple[list[Any], Records]:
    """Run a program on its inputs; return the outputs, and what is `wanted` of uses.

    Perturbations are added to the outputs of uses: zeros, whose gradients are the uses' output gradients.
    What is of uses inside loops is stacked along new first axes. `slots` is filled with every value.
    """
    slots = {} if slots is None else slots
    slots.update(program.constants)
    slots.update(zip(program.inputs, arguments, strict=True))
    records: Records = {}
    for operation in program.operations:
        records |= perform(operation, slots, perturbations, wanted)
    return [slots[slot] for slot in program.outputs], records


def perform(
    operation: Operation, slots: dict[int, Any], perturbations: Perturbations, wanted: Wanted
) -> Records:
    """Run one operation on the values in `slots`, and put its results there; return what it recorded."""
    given = [slots[slot] for slot in operation.inputs]
    records: Records = {}
    for position, copy in operation.copies.items():
        if copy.number in wanted.uses:
            records[copy.number] = take_shared(given[position], copy)
        if copy.number in perturbations:
            shape, samples = copy.output.shape, copy.samples_in
            each = take_shared(given[position], copy)[None] + perturbations[copy.number]
            given[position] = jnp.broadcast_to(samples.spread(each, shape[samples.axis]), shape)
    use = operation.use
    if use is not None and use.number in wanted.uses:
        records[use.number] = given[use.parameter if wanted.operands else use.data]
    if any(body.uses() for body in operation.bodies):
        structured = _STRUCTURED[operation.eqn.primitive.name]
        results, inside = structured(operation, given, perturbations, wanted)
        records |= inside
    elif operation.row_column is not None:
        results = [gather_aligned(operation.eqn, given[0], given[1], *operation.row_column)]
    else:
        if wanted.operands and operation.batched:
            given = [lax.stop_gradient(value) for value in given]
        results = apply_equation(operation.eqn, given)
    # s + e at e = 0 is s, and d loss / d e = d loss / d s: one vjp over all e gives every output gradient.
    if use is not None and use.number in perturbations:
        results = [results[0] + perturbations[use.number]]
    slots.update(zip(operation.outputs, results, strict=True))
    return records


def take_shared(value: jax.Array, copy: Use) -> jax.Array:
    """Return the part of a value of the parameters that every sample gets, without the samples' axis."""
    value = value.reshape(_pad(value.shape, len(copy.output.shape)))
    return lax.index_in_dim(value, 0, copy.samples_in.axis, keepdims=False)


def _pad(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*(1,) * (rank - len(shape)), *shape)


def zero_perturbations(uses: Sequence[Use]) -> dict[int, jax.Array]:
    """Return zeros for each use, stacked over the loops around it."""
    zeros = {}
    for use in uses:
        shape, lengths = use.output.shape, tuple(length for length, _ in use.loops)
        if use.kind == "copy":
            axis, own = use.samples_in.axis, _pad(use.operand.shape, len(shape))
            shape = (use.samples_in.samples, *own[:axis], *own[axis + 1 :])
        zeros[use.number] = jnp.zeros((*lengths, *shape), use.output.dtype)
    return zeros


def _find_inside(operation: Operation, perturbations: Perturbations) -> dict[int, jax.Array]:
    uses = [use.number for body in operation.bodies for use in body.uses()]
    return {number: perturbations[number] for number in uses if number in perturbations}


def _drop_weak(values: Any) -> Any:
    """Drop weak types, so that the two ends of a loop and all branches agree."""
    return jax.tree.map(lambda array: lax.convert_element_type(array, array.dtype), values)


def _run_scan(
    operation: Operation, given: list[Any], perturbations: Perturbations, wanted: Wanted
) -> tuple[list[Any], Records]:
    # A use in the body is one use an iteration: `lax.scan` cuts its perturbations like the loop's own slices,
    # and stacks what is recorded like the loop's own results, so that the first axis counts iterations.
    eqn, (body,) = operation.eqn, operation.bodies
    consts, carried = loop_parts(eqn)

    def step(carry: list[Any], slices: tuple[list[Any], Records]) -> tuple[list[Any], Any]:
        outputs, records = run(body, [*given[:consts], *carry, *slices[0]], slices[1], wanted)
        return _drop_weak(outputs[:carried]), (outputs[carried:], records)

    carry, (stacked, records) = lax.scan(
        step,
        _drop_weak(given[consts : consts + carried]),
        (given[consts + carried :], _find_inside(operation, perturbations)),
        length=eqn.params["length"],
        reverse=eqn.params["reverse"],
        unroll=eqn.params["unroll"],
    )
    return [*carry, *stacked], records


def _run_cond(
    operation: Operation, given: list[Any], perturbations: Perturbations, wanted: Wanted
) -> tuple[list[Any], Records]:
    # Branches must return alike. One that is not taken records zeros, and no gradient reaches its
    # perturbation: the product of both, its part of every score, is zero.
    blank = {}
    for use in (use for body in operation.bodies for use in body.uses() if use.number in wanted.uses):
        recorded: Any = use.operand if wanted.operands else use.eqn.invars[use.data].aval
        recorded = jax.ShapeDtypeStruct(recorded.shape, recorded.dtype)
        if use.kind == "copy":
            recorded = jax.eval_shape(partial(take_shared, copy=use), recorded)
        lengths = tuple(length for length, _ in use.loops[len(operation.loops) :])
        blank[use.number] = jnp.zeros((*lengths, *recorded.shape), recorded.dtype)

    def take(body: Program) -> Any:
        def call(arguments: list[Any], own: Records) -> tuple[list[Any], Records]:
            outputs, records = run(body, arguments, own, wanted)
            return _drop_weak(outputs), _drop_weak(blank | records)

        return call

    branches = [take(body) for body in operation.bodies]
    return lax.switch(given[0], branches, given[1:], _find_inside(operation, perturbations))


def _run_remat(
    operation: Operation, given: list[Any], perturbations: Perturbations, wanted: Wanted
) -> tuple[list[Any], Records]:
    (body,), params = operation.bodies, operation.eqn.params
    call = partial(run, body, wanted=wanted)
    recomputed = jax.checkpoint(call, policy=params["policy"], prevent_cse=params["prevent_cse"])
    return recomputed(given, _find_inside(operation, perturbations))


_STRUCTURED = {"scan": _run_scan, "cond": _run_cond, **dict.fromkeys(RECOMPUTED, _run_remat)}
