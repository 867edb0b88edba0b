"""Chains of layers: what lies between the output of one layer and the input of the next, and its gates.

The input of layer l + 1 is a function of the output s of layer l. Where that function works entry by
entry, its Jacobian is the diagonal of the gates phi'(s), which one product with ones reads off. That it
does is decided from its operations and those of its derivative rules, never from numbers: it must keep
features apart as the program keeps samples apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from lai_core._adapters import make_chain_error
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.evaluate import Wanted, perform
from lai_jax._program.model import Model, reader_of
from lai_jax._program.program import Operation, Value
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._recording.arrays import has_positions, product_axes
from lai_jax._recording.plan import Plan
from lai_jax._recording.planned import PlannedRecord


@dataclass(frozen=True)
class Link:
    """What lies between one layer and the next."""

    # `before`, `after`: the layers
    before: PlannedRecord
    after: PlannedRecord
    start: int  # slot of the output of the one
    between: list[Operation]  # from there to the input of the other
    end: int  # slot of that input
    weight: int  # slot of the matrix of `after`


def links_of(model: Model, plan: Plan) -> list[Link]:
    """Return what lies between each layer and the next; raise unless all are linear, on `(n, d)`."""
    layers = [planned for planned in plan.records if planned.use.is_layer]
    values, operations = model.program.values, model.program.operations
    found = {operation.use: operation for operation in operations if operation.use is not None}
    if layers[-1].use.frozen:  # of which no input is recorded, to which the gates before it belong
        raise make_chain_error(layers[-1].name, "goes into weights that do not train")
    for planned in layers:
        use = planned.use
        shape = tuple(use.eqn.invars[use.data].aval.shape)
        if use.kind == "convolution":
            raise make_chain_error(planned.name, "goes into a convolution")
        if use not in found:
            raise make_chain_error(planned.name, "is inside a loop, a branch or a recomputation")
        if len(shape) != 2 or has_positions(use):
            raise make_chain_error(planned.name, f"has shape {shape}, not (n, d)")
        if product_axes(use).weight_groups:
            raise make_chain_error(planned.name, "meets several matrices side by side")
    links = []
    for before, after in pairwise(layers):
        start = found[before.use].outputs[0]
        end, weight = (found[after.use].inputs[place] for place in (after.use.data, after.use.parameter))
        if values[end].layers != {before.use} or len(values[start].shape) != 2:
            what = f"does not come from the output of layer {before.name!r} alone"
            raise make_chain_error(after.name, what)
        # Between two layers lies what the first one's output leads to (forward) and the second one's input
        # comes from (backward): the operations on every path from `start` to `end`, and no others.
        reached, following = {start}, list[Operation]()
        for operation in operations:
            if reached.intersection(operation.inputs):
                following.append(operation)
                reached.update(operation.outputs)
        wanted, between = {end}, list[Operation]()
        for operation in reversed(following):
            if wanted.intersection(operation.outputs):
                between.insert(0, operation)
                wanted.update(operation.inputs)
        links.append(Link(before, after, start, between, end, weight))
    return links


def gates_of(model: Model, link: Link, slots: Mapping[int, Any]) -> jax.Array:
    """Return the gates between two layers, `(n, d)`, from the values of the program's slots."""

    def run(start: jax.Array) -> jax.Array:
        own = {**slots, link.start: start}
        for operation in link.between:
            perform(operation, own, {}, Wanted())
        return own[link.end]

    start, samples = slots[link.start], link.before.use.samples_out
    values, vjp = jax.vjp(run, start)
    # What keeps samples apart works sample by sample; what keeps features apart as well, entry by entry.
    features = SampleAxis(1 - samples.axis, start.shape[1 - samples.axis])
    known = Value(start.shape, start.dtype, features)
    try:
        program = reader_of().whole(jax.make_jaxpr(run)(start), [known])
        found, operation = program.values[program.outputs[0]].sample_axis, "as it is arranged"
    except UnexplainedError as error:
        # it begins with `apply, loss: NAME`, the operation's
        found, operation = None, str(error).split()[2]
    if found != features.move(1 - link.after.use.samples_in.axis) or values.size != start.size:
        what = f"is no function entry by entry ({operation}) of the output of layer {link.before.name!r}"
        raise make_chain_error(link.after.name, what)
    (gates,) = vjp(jnp.ones_like(values))
    return samples.split(gates).reshape((model.samples, -1))[: model.real]
