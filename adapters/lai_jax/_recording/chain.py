"""Chains of layers: what lies between the output of one layer and the input of the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from lai_core._adapters import not_a_chain
from lai_jax._program.model import Model
from lai_jax._program.program import Operation, Program, Use
from lai_jax._program.tail import Tail, tail_from
from lai_jax._recording.arrays import has_positions, product_axes
from lai_jax._recording.plan import Plan
from lai_jax._recording.planned import PlannedRecord


@dataclass(frozen=True)
class Link:
    """What lies between one layer and the next."""

    # `before`, `after`: the layers
    before: PlannedRecord
    after: PlannedRecord
    between: Tail  # from the output of the one to the input of the other
    weight: int  # slot of the matrix of `after`


def links_of(model: Model, plan: Plan) -> list[Link]:
    """Return what lies between each layer and the next; raise unless all are linear, on `(n, d)`."""
    layers = [planned for planned in plan.records if planned.use.is_layer]
    operations = model.program.operations
    found = {operation.use: operation for operation in operations if operation.use is not None}
    for planned in layers:
        _check_layer(planned, planned.use in found)
    return [_link(model.program, found, *pair) for pair in pairwise(layers)]


def _check_layer(planned: PlannedRecord, outside: bool) -> None:
    use = planned.use
    shape = tuple(use.eqn.invars[use.data].aval.shape)
    if use.kind == "convolution":
        raise not_a_chain(planned.name, "goes into a convolution")
    if not outside:
        raise not_a_chain(planned.name, "is inside a loop, a branch or a recomputation")
    if len(shape) != 2 or has_positions(use):
        raise not_a_chain(planned.name, f"has shape {shape}, not (n, d)")
    if product_axes(use).weight_groups:
        raise not_a_chain(planned.name, "meets several matrices side by side")


def _link(
    program: Program, found: Mapping[Use, Operation], before: PlannedRecord, after: PlannedRecord
) -> Link:
    start = found[before.use].outputs[0]
    end, weight = (found[after.use].inputs[place] for place in (after.use.data, after.use.parameter))
    if program.values[end].layers != {before.use} or len(program.values[start].shape) != 2:
        raise not_a_chain(after.name, f"does not come from the output of layer {before.name!r} alone")
    # Between two layers lies what the first one's output leads to (forward) and the second one's input comes
    # from (backward): the operations on every path from `start` to `end`, and no others.
    wanted, between = {end}, list[Operation]()
    for operation in reversed(tail_from(program, start).operations):
        if wanted.intersection(operation.outputs):
            between.insert(0, operation)
            wanted.update(operation.inputs)
    needed = wanted.difference({start}, *(operation.outputs for operation in between))
    return Link(before, after, Tail(start, tuple(between), tuple(sorted(needed)), end), weight)
