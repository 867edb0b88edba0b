"""Running a program with its layers' inputs recorded and its layers' outputs nudged."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lai_jax._program.gathers import aligned_gather
from lai_jax._program.program import Operation, Program, Site, loop_parts
from lai_jax._program.sample_axis import spread

Nudges = Mapping[Site, jax.Array]
Records = dict[Site, jax.Array]


def apply_equation(eqn: Any, arguments: Sequence[Any]) -> list[Any]:
    """Run one equation on other arguments."""
    functions, params = _bindings(eqn)
    result = eqn.primitive.bind(*functions, *arguments, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def _bindings(eqn: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    params = eqn.primitive.get_bind_params(eqn.params)
    if isinstance(params, tuple):
        return tuple(params[0]), dict(params[1])
    return (), params


def run(
    program: Program,
    arguments: Sequence[Any],
    nudges: Nudges,
    wanted: frozenset[Site],
    slots: dict[int, Any] | None = None,
) -> tuple[list[Any], Records]:
    """Run a program.

    Parameters
    ----------
    program
        What to run.
    arguments
        Its inputs.
    nudges
        What to add to the outputs of sites: zeros, whose gradients are the sites' output gradients.
    wanted
        The sites whose batched inputs to record.
    slots
        Filled with every value of the program, by slot.

    Returns
    -------
    list
        The outputs.
    dict
        The recorded inputs; those of sites inside loops stacked along new first axes.
    """
    slots = {} if slots is None else slots
    slots.update(program.constants)
    slots.update(zip(program.inputs, arguments, strict=True))
    records: Records = {}
    for operation in program.operations:
        records.update(perform(operation, slots, nudges, wanted))
    outputs = [slots[slot] for slot in program.outputs]
    for place, lift in program.output_lifts.items():
        outputs[place] = lifted(outputs[place], lift, nudges.get(lift))
    return outputs, records


def perform(operation: Operation, slots: dict[int, Any], nudges: Nudges, wanted: frozenset[Site]) -> Records:
    """Run one operation on the values in `slots`, and put its results there; return what it recorded."""
    given = [slots[slot] for slot in operation.inputs]
    records: Records = {}
    for position, lift in operation.lifts.items():
        given[position] = lifted(given[position], lift, nudges.get(lift))
    if any(body.sites() for body in operation.bodies):
        structured = _STRUCTURED[operation.eqn.primitive.name]
        results, records = structured(operation, given, nudges, wanted)
    elif operation.row_column is not None:
        results = [aligned_gather(operation.eqn, given[0], given[1], *operation.row_column)]
    else:
        results = apply_equation(operation.eqn, given)
    site = operation.site
    if site is not None and site in wanted:
        records[site] = given[site.data]
    if site is not None and site in nudges:
        results = [results[0] + nudges[site]]
    slots.update(zip(operation.outputs, results, strict=True))
    return records


def operand_of_lift(value: jax.Array, site: Site) -> jax.Array:
    """Return the part of a value of the parameters that every sample gets, without the samples' axis."""
    if value.ndim == 0:
        value = value.reshape((1,) * len(site.output.shape))
    return lax.index_in_dim(value, 0, site.rows.axis, keepdims=False)


def lifted(value: jax.Array, site: Site, nudge: jax.Array | None) -> jax.Array:
    """Return a value of the parameters as one value a sample, nudged sample by sample."""
    if nudge is None:
        return value
    shape = site.output.shape
    each = operand_of_lift(value, site)[None] + nudge
    return jnp.broadcast_to(spread(each, site.rows, shape[site.rows.axis]), shape)


def zero_nudges(sites: Sequence[Site], samples: int) -> dict[Site, jax.Array]:
    """Return zeros for each site, stacked over the loops around it."""
    zeros = {}
    for site in sites:
        shape, lengths = site.output.shape, tuple(length for length, _ in site.loops)
        if site.kind == "lift":
            axis, own = site.rows.axis, site.operand.shape or (1,) * len(shape)
            shape = (samples, *own[:axis], *own[axis + 1 :])
        zeros[site] = jnp.zeros((*lengths, *shape), site.output.dtype)
    return zeros


def _inside(program: Program, nudges: Nudges) -> dict[Site, jax.Array]:
    return {site: nudges[site] for site in program.sites() if site in nudges}


def _strong(values: Any) -> Any:
    """Drop weak types, so that the two ends of a loop and all branches agree."""
    return jax.tree.map(lambda array: lax.convert_element_type(array, array.dtype), values)


def _run_scan(operation: Operation, given: list[Any], nudges: Nudges, wanted: frozenset[Site]) -> Any:
    eqn, (body,) = operation.eqn, operation.bodies
    consts, carried = loop_parts(eqn)
    inner = _inside(body, nudges)
    order, keys = list(inner), list[Site]()

    def step(carry: list[Any], slices: tuple[list[Any], list[Any]]) -> tuple[list[Any], Any]:
        own = dict(zip(order, slices[1], strict=True))
        outputs, records = run(body, [*given[:consts], *carry, *slices[0]], own, wanted)
        keys[:] = list(records)
        return _strong(outputs[:carried]), (outputs[carried:], list(records.values()))

    carry, (stacked, kept) = lax.scan(
        step,
        _strong(list(given[consts : consts + carried])),
        (list(given[consts + carried :]), [inner[site] for site in order]),
        length=eqn.params["length"],
        reverse=eqn.params["reverse"],
        unroll=eqn.params["unroll"],
    )
    return [*carry, *stacked], dict(zip(keys, kept, strict=True))


def _run_cond(operation: Operation, given: list[Any], nudges: Nudges, wanted: frozenset[Site]) -> Any:
    recorded = [site for body in operation.bodies for site in body.sites() if site in wanted]
    inner = {site: nudges[site] for body in operation.bodies for site in _inside(body, nudges)}
    order = list(inner)

    def taken(body: Program) -> Any:
        def call(arguments: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
            outputs, records = run(body, arguments, dict(zip(order, values, strict=True)), wanted)
            kept = [records[site] if site in records else _blank(operation, site) for site in recorded]
            return _strong(outputs), _strong(kept)

        return call

    outputs, records = lax.switch(
        given[0], [taken(body) for body in operation.bodies], list(given[1:]), [inner[site] for site in order]
    )
    return outputs, dict(zip(recorded, records, strict=True))


def _blank(operation: Operation, site: Site) -> jax.Array:
    """Return what a site of a branch that is not taken records."""
    data = site.eqn.invars[site.data].aval
    lengths = tuple(length for length, _ in site.loops[len(operation.loops) :])
    return jnp.zeros((*lengths, *data.shape), data.dtype)


def _run_remat(operation: Operation, given: list[Any], nudges: Nudges, wanted: frozenset[Site]) -> Any:
    (body,), params = operation.bodies, operation.eqn.params
    inner = _inside(body, nudges)
    order, keys = list(inner), list[Site]()

    def call(arguments: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs, records = run(body, arguments, dict(zip(order, values, strict=True)), wanted)
        keys[:] = list(records)
        return outputs, list(records.values())

    recomputed = jax.checkpoint(call, policy=params["policy"], prevent_cse=params["prevent_cse"])
    outputs, kept = recomputed(given, [inner[site] for site in order])
    return outputs, dict(zip(keys, kept, strict=True))


_STRUCTURED = {
    "scan": _run_scan,
    "cond": _run_cond,
    "remat2": _run_remat,
    "remat": _run_remat,
    "checkpoint": _run_remat,
}
