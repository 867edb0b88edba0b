"""Chains of layers: what lies between the output of one layer and the input of the next, and its gates.

The input of layer l + 1 is a function of the output s of layer l. Where that function works entry by
entry, its Jacobian is the diagonal of the gates phi'(s), which one product with ones reads off. That it
does is decided from the operations of the backward pass alone, never from numbers: everything that a
cotangent meets on its way must be elementwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from lai_core._adapters import make_chain_error
from lai_jax._program.model import Model
from lai_jax._program.program import Operation, Program, Use, close_jaxpr
from lai_jax._program.rules.primitives import CALLS, CUSTOM_RULES, ELEMENTWISE, RECOMPUTED
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.tail import Tail, tail_from
from lai_jax._recording.arrays import has_positions, product_axes
from lai_jax._recording.plan import Plan
from lai_jax._recording.planned import PlannedRecord

_CALLS = (*CALLS, *RECOMPUTED, *CUSTOM_RULES)
_RESHAPES = ("reshape", "broadcast_in_dim")

AxisLabels = tuple[str | None, ...]
"""What each axis is: samples, features, or None where it has one entry."""


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
        raise make_chain_error(planned.name, "goes into a convolution")
    if not outside:
        raise make_chain_error(planned.name, "is inside a loop, a branch or a recomputation")
    if len(shape) != 2 or has_positions(use):
        raise make_chain_error(planned.name, f"has shape {shape}, not (n, d)")
    if product_axes(use).weight_groups:
        raise make_chain_error(planned.name, "meets several matrices side by side")


def _link(
    program: Program, found: Mapping[Use, Operation], before: PlannedRecord, after: PlannedRecord
) -> Link:
    start = found[before.use].outputs[0]
    end, weight = (found[after.use].inputs[place] for place in (after.use.data, after.use.parameter))
    if program.values[end].layers != {before.use} or len(program.values[start].shape) != 2:
        raise make_chain_error(after.name, f"does not come from the output of layer {before.name!r} alone")
    # Between two layers lies what the first one's output leads to (forward) and the second one's input comes
    # from (backward): the operations on every path from `start` to `end`, and no others.
    wanted, between = {end}, list[Operation]()
    for operation in reversed(tail_from(program, start).operations):
        if wanted.intersection(operation.outputs):
            between.insert(0, operation)
            wanted.update(operation.inputs)
    needed = wanted.difference({start}, *(operation.outputs for operation in between))
    return Link(before, after, Tail(start, tuple(between), tuple(sorted(needed)), end), weight)


def gates_of(model: Model, link: Link, slots: Mapping[int, Any]) -> jax.Array:
    """Return the gates between two layers, `(n, d)`, from the values of the link's slots."""
    values, vjp = link.between.vjp(slots)
    backward = jax.make_jaxpr(lambda cotangent: vjp(cotangent)[0])(values).jaxpr
    try:
        (reached,) = _follow(backward, [_axis_labels(values.shape, link.after.use.samples_in)])
    except _MixesError as error:
        what = f"is no function entry by entry ({error}) of the output of layer {link.before.name!r}"
        raise make_chain_error(link.after.name, what) from None
    samples = link.before.use.samples_out
    if reached != _axis_labels(slots[link.between.start].shape, samples):
        what = f"does not come from the output of layer {link.before.name!r} alone"
        raise make_chain_error(link.after.name, what)
    (gates,) = vjp(jnp.ones_like(values))
    return samples.split(gates).reshape((model.samples, -1))[: model.real]


def matrix_above(link: Link, slots: Mapping[int, Any]) -> jax.Array:
    """Return the matrix of the layer after, `(d_out, d_in)`."""
    axes = product_axes(link.after.use)
    weight = jnp.transpose(slots[link.weight], (*axes.weight_outputs, *axes.weight_inputs))
    return weight.reshape((-1, weight.shape[-1]))


class _MixesError(Exception):
    """An operation through which entries may meet."""


def _axis_labels(shape: Sequence[int], samples: SampleAxis) -> AxisLabels:
    return tuple(
        None if size == 1 else "samples" if axis == samples.axis else "features"
        for axis, size in enumerate(shape)
    )


def _follow(jaxpr: Any, entering: Sequence[AxisLabels | None]) -> list[AxisLabels | None]:
    """Follow cotangents through a linear, elementwise program; None is said of what does not hold them."""
    known = dict(zip(jaxpr.invars, entering, strict=True))

    def look_up(atom: Any) -> AxisLabels | None:
        return None if hasattr(atom, "val") else known.get(atom)

    for eqn in jaxpr.eqns:
        own = [look_up(atom) for atom in eqn.invars]
        if all(labels is None for labels in own):
            continue
        if eqn.primitive.name in _CALLS:
            inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            outputs = _follow(close_jaxpr(inner).jaxpr, own)
        else:
            outputs = [_step(eqn, own)]
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [look_up(atom) for atom in jaxpr.outvars]


def _step(eqn: Any, entering: Sequence[AxisLabels | None]) -> AxisLabels:
    name, shape = eqn.primitive.name, tuple(eqn.outvars[0].aval.shape)
    moving = [(atom, labels) for atom, labels in zip(eqn.invars, entering, strict=True) if labels is not None]
    (first, labels), *rest = moving
    if name in ELEMENTWISE and len(eqn.outvars) == 1:
        if all(other == labels for _, other in rest):
            return labels
    elif name == "transpose":
        return tuple(labels[axis] for axis in eqn.params["permutation"])
    elif name == "squeeze" or (name in _RESHAPES and eqn.params.get("dimensions") is None):
        left = [label for label in labels if label is not None]
        if [size for size in shape if size > 1] == [size for size in first.aval.shape if size > 1]:
            return tuple(None if size == 1 else left.pop(0) for size in shape)
    raise _MixesError(name)
