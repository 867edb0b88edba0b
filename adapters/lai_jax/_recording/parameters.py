"""Gradients of parameters that are no plain factor of a layer: materialised sample by sample."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lai_jax._program.evaluate import Numbers, Records, apply_equation, shared_part
from lai_jax._program.leaves import replaced
from lai_jax._program.model import Model
from lai_jax._program.program import Operation, Program, Use, loop_parts


def operands(program: Program, arguments: Sequence[Any], wanted: Numbers) -> tuple[list[Any], Records]:
    """Compute the values of the parameters at `wanted` uses, without anything that depends on samples.

    Arguments are None where batched. Return the program's outputs, None where batched, and the value of the
    parameters at each use; of uses inside loops stacked along new first axes.
    """
    slots: dict[int, Any] = dict(program.constants)
    slots.update(zip(program.inputs, arguments, strict=True))
    found: Records = {}
    for operation in program.operations:
        given = [slots[slot] for slot in operation.inputs]
        places = [(operation.inputs[position], copy) for position, copy in operation.copies.items()]
        found |= _shared_parts(places, slots, wanted)
        use = operation.use
        if use is not None and use.number in wanted:
            found[use.number] = given[use.parameter]
        if not operation.batched:
            results = apply_equation(operation.eqn, given)
        else:
            results, inner = _mixed(operation, given, wanted)
            found |= inner
        slots.update(zip(operation.outputs, results, strict=True))
    outputs = [None if program.values[s].batched else slots[s] for s in program.outputs]
    places = [(program.outputs[position], copy) for position, copy in program.output_copies.items()]
    return outputs, found | _shared_parts(places, slots, wanted)


def _shared_parts(places: Sequence[tuple[int, Use]], slots: dict[int, Any], wanted: Numbers) -> Records:
    """Return what all samples get where a value of the parameters, by its slot, is copied for each."""
    return {copy.number: shared_part(slots[slot], copy) for slot, copy in places if copy.number in wanted}


def _mixed(operation: Operation, given: list[Any], wanted: Numbers) -> tuple[list[Any], Records]:
    """Do the part of a loop, branch or recomputation that no sample touches."""
    nothing = [None] * len(operation.outputs)
    if not operation.bodies:
        return nothing, {}
    if operation.eqn.primitive.name == "scan":
        return _mixed_scan(operation, given, wanted)
    if len(operation.bodies) == 1:
        return operands(operation.bodies[0], given, wanted)
    found: Records = {}
    for body in operation.bodies:
        found |= operands(body, given[1:], wanted)[1]
    return nothing, found


def _mixed_scan(operation: Operation, given: list[Any], wanted: Numbers) -> tuple[list[Any], Records]:
    eqn, (body,) = operation.eqn, operation.bodies
    consts, carried = loop_parts(eqn)
    batched = [body.values[slot].batched for slot in body.inputs[consts : consts + carried]]

    def unbatched(carry: list[Any]) -> list[Any]:  # None is a pytree without leaves: nothing is carried
        return [None if own else value for own, value in zip(batched, carry, strict=True)]

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], Any]:
        outputs, found = operands(body, [*given[:consts], *carry, *slices], wanted)
        return unbatched(outputs[:carried]), (outputs[carried:], found)

    carry, (stacked, found) = lax.scan(
        step,
        unbatched(given[consts : consts + carried]),
        given[consts + carried :],
        length=eqn.params["length"],
        reverse=eqn.params["reverse"],
    )
    return [*carry, *stacked], found


def materialised_gradients(
    model: Model, uses: Sequence[Use], leaves: Sequence[int], records: Records, cotangents: Records
) -> dict[int, jax.Array]:
    """Return the per-sample gradients of whole parameters, `(n, size)` each, from all of their uses."""
    values = model.parameters
    wanted = frozenset(use.number for use in uses)
    empty = [None] * len(model.data)

    def used(moved: list[Any]) -> Records:
        return operands(model.program, [*replaced(values, leaves, moved), *empty], wanted)[1]

    # With w_u(theta) the value of the parameters at use u, a function of theta alone,
    #     d loss_j / d theta = sum_u (d w_u / d theta)^T (d loss_j / d w_u):
    # the second factor is each sample's own, from what was recorded at the use; the first is one linear
    # map for all samples, mapped over them.
    own = {use.number: _operand_gradients(use, records, cotangents[use.number]) for use in uses}
    _, vjp = jax.vjp(used, [jnp.asarray(values[leaf]) for leaf in leaves])
    (gradients,) = jax.vmap(vjp)(own)
    return {leaf: own.reshape((model.samples, -1)) for leaf, own in zip(leaves, gradients, strict=True)}


def _operand_gradients(use: Use, records: Records, cotangent: jax.Array) -> jax.Array:
    """Return the gradient of each sample's loss with respect to the value of the parameters at a use.

    `(n, loops..., shape of the value)`.
    """
    if use.kind == "copy":
        return jnp.moveaxis(cotangent, len(use.loops), 0)
    shape, dtype = use.operand.shape, use.operand.dtype

    def one(sample: jax.Array, gradient: jax.Array) -> jax.Array:
        def product(weight: jax.Array) -> jax.Array:
            given = [sample, weight] if use.parameter == 1 else [weight, sample]
            return apply_equation(use.eqn, given)[0]

        return jax.vjp(product, jnp.zeros(shape, dtype))[1](gradient)[0]

    def local(batch: jax.Array, gradients: jax.Array) -> jax.Array:
        return jax.vmap(one)(use.samples_in.split(batch), use.samples_out.split(gradients))

    for _ in use.loops:
        local = jax.vmap(local, out_axes=1)
    return local(records[use.number], cotangent)
