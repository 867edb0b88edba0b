"""Gradients of parameters that are no plain factor of a layer: built sample by sample, pulled back."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lai_jax._program.evaluate import Records, apply_equation, operand_of_lift
from lai_jax._program.model import Model
from lai_jax._program.program import Operation, Program, Site, loop_parts
from lai_jax._program.sample_axis import split


def operands(
    program: Program, arguments: Sequence[Any], wanted: frozenset[Site]
) -> tuple[list[Any], Records]:
    """Compute the values of the parameters at sites, without anything that depends on samples.

    Parameters
    ----------
    program
        The program.
    arguments
        Its inputs; None where batched.
    wanted
        The sites.

    Returns
    -------
    list
        The program's outputs; None where batched.
    dict
        The value of the parameters at each site; of sites inside loops stacked along new first axes.
    """
    slots: dict[int, Any] = dict(program.constants)
    slots.update(zip(program.inputs, arguments, strict=True))
    found: Records = {}
    for operation in program.operations:
        given = [slots[slot] for slot in operation.inputs]
        found |= {s: operand_of_lift(given[p], s) for p, s in operation.lifts.items() if s in wanted}
        if operation.site in wanted:
            found[operation.site] = given[operation.site.parameter]
        if not operation.batched:
            results = apply_equation(operation.eqn, given)
        else:
            results, inner = _mixed(operation, given, wanted)
            found |= inner
        slots.update(zip(operation.outputs, results, strict=True))
    outputs = [None if program.values[s].batched else slots[s] for s in program.outputs]
    lifts = program.output_lifts.items()
    found |= {s: operand_of_lift(slots[program.outputs[place]], s) for place, s in lifts if s in wanted}
    return outputs, found


def _mixed(operation: Operation, given: list[Any], wanted: frozenset[Site]) -> tuple[list[Any], Records]:
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


def _mixed_scan(operation: Operation, given: list[Any], wanted: frozenset[Site]) -> tuple[list[Any], Records]:
    eqn, (body,) = operation.eqn, operation.bodies
    consts, carried = loop_parts(eqn)
    start = given[consts : consts + carried]
    batched = [body.values[slot].batched for slot in body.inputs]
    slots = [i for i in range(carried) if not batched[consts + i]]
    sliced = [i for i in range(consts + carried, len(given)) if not batched[i]]
    keys: list[Site] = []

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], Any]:
        arguments: list[Any] = [*given[:consts], *[None] * (len(given) - consts)]
        for i, value in (*zip(slots, carry, strict=True),):
            arguments[consts + i] = value
        for i, value in zip(sliced, slices, strict=True):
            arguments[i] = value
        outputs, found = operands(body, arguments, wanted)
        keys[:] = list(found)
        return [outputs[i] for i in slots], (
            [out for out in outputs[carried:] if out is not None],
            list(found.values()),
        )

    carry, (stacked, kept) = lax.scan(
        step,
        [start[i] for i in slots],
        [given[i] for i in sliced],
        length=eqn.params["length"],
        reverse=eqn.params["reverse"],
    )
    results: list[Any] = [None] * len(operation.outputs)
    for i, value in zip(slots, carry, strict=True):
        results[i] = value
    places = [i for i, slot in enumerate(body.outputs) if i >= carried and not body.values[slot].batched]
    for i, value in zip(places, stacked, strict=True):
        results[i] = value
    return results, dict(zip(keys, kept, strict=True))


def built_gradients(
    model: Model, sites: Sequence[Site], leaves: Sequence[int], records: Records, cotangents: Records
) -> dict[int, jax.Array]:
    """Build the per-sample gradients of whole parameters, `(n, size)` each.

    Parameters
    ----------
    model
        The model.
    sites
        Every site at which one of the parameters is used.
    leaves
        The parameters.
    records, cotangents
        The recorded inputs and the output gradients of the sites.
    """
    values = model.parameters
    own = [_operand_gradients(site, records, cotangents[site], model.samples) for site in sites]
    wanted = frozenset(sites)
    empty = [None] * (len(model.arguments) - len(values))

    def used(moved: list[Any]) -> list[Any]:
        given = list(values)
        for leaf, value in zip(leaves, moved, strict=True):
            given[leaf] = value
        found = operands(model.program, [*given, *empty], wanted)[1]
        return [found[site] for site in sites]

    _, pull = jax.vjp(used, [jnp.asarray(values[leaf]) for leaf in leaves])
    (pulled,) = jax.vmap(pull)(own)
    return {leaf: grad.reshape((model.samples, -1)) for leaf, grad in zip(leaves, pulled, strict=True)}


def _operand_gradients(site: Site, records: Records, cotangent: jax.Array, samples: int) -> jax.Array:
    """Return the gradient of each sample's loss with respect to the value of the parameters at a site.

    `(n, loops..., shape of the value)`.
    """
    if site.kind == "lift":
        return jnp.moveaxis(cotangent, len(site.loops), 0)
    shape, dtype = site.operand.shape, site.operand.dtype

    def one(sample: jax.Array, gradient: jax.Array) -> jax.Array:
        def product(weight: jax.Array) -> jax.Array:
            given = [sample, weight] if site.parameter == 1 else [weight, sample]
            return apply_equation(site.eqn, given)[0]

        return jax.vjp(product, jnp.zeros(shape, dtype))[1](gradient)[0]

    def local(batch: jax.Array, gradients: jax.Array) -> jax.Array:
        parts = split(batch, site.rows, samples), split(gradients, site.output_rows, samples)
        return jax.vmap(one)(*parts)

    for _ in site.loops:
        local = jax.vmap(local, out_axes=1)
    return local(records[site], cotangent)
