"""Chains of layers with elementwise functions between them: each layer's gates, read off the program.

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

from lai_jax._program.evaluate import perform
from lai_jax._program.model import Model
from lai_jax._program.primitives import ELEMENTWISE
from lai_jax._program.program import Operation, Program, Site, closed_of
from lai_jax._program.sample_axis import Rows, split
from lai_jax._recording.arrays import has_positions, product_axes
from lai_jax._recording.plan import Plan
from lai_jax._recording.uses import Use

_CALLS = (
    *("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
)
_RESHAPES = ("reshape", "broadcast_in_dim")

Layout = tuple[str | None, ...]
"""What each axis is: samples, features, or None where it has one entry."""


@dataclass(frozen=True)
class Link:
    """What lies between one layer and the next.

    Parameters
    ----------
    before, after
        The layers.
    start, end
        Slots of the output of the one and of the input of the other.
    weight
        Slot of the matrix of `after`.
    operations
        Those between.
    needed
        Other slots that these take.
    """

    before: Use
    after: Use
    start: int
    end: int
    weight: int
    operations: tuple[Operation, ...]
    needed: tuple[int, ...]

    @property
    def slots(self) -> tuple[int, ...]:
        """Every slot that gates and column norms take."""
        return (self.start, self.weight, *self.needed)


def links_of(model: Model, plan: Plan) -> list[Link]:
    """Return what lies between each layer and the next.

    Raises
    ------
    ValueError
        If the model is no chain of linear layers on `(n, d)`, naming the layer.
    """
    uses = [use for use in plan.uses if use.site.is_layer]
    operations = model.program.operations
    found = {operation.site: operation for operation in operations if operation.site is not None}
    for use in uses:
        _check_layer(use, use.site in found, model.samples)
    return [_link(model.program, found, *pair) for pair in pairwise(uses)]


def _check_layer(use: Use, outside: bool, samples: int) -> None:
    site = use.site
    shape = tuple(site.eqn.invars[site.data].aval.shape)
    if site.kind == "convolution":
        raise _no_chain(use.name, "goes into a convolution")
    if not outside:
        raise _no_chain(use.name, "is inside a loop, a branch or a recomputation")
    if len(shape) != 2 or has_positions(site, samples):
        raise _no_chain(use.name, f"has shape {shape}, not (n, d)")
    if product_axes(site).weight_groups:
        raise _no_chain(use.name, "meets several matrices side by side")


def _link(program: Program, found: Mapping[Site, Operation], before: Use, after: Use) -> Link:
    start = found[before.site].outputs[0]
    end, weight = (found[after.site].inputs[place] for place in (after.site.data, after.site.parameter))
    if program.values[end].layers != {before.site} or len(program.values[start].shape) != 2:
        raise _no_chain(after.name, f"does not come from the output of layer {before.name!r} alone")
    reached, forward = {start}, []
    for operation in program.operations:
        if reached.intersection(operation.inputs):
            forward.append(operation)
            reached.update(operation.outputs)
    wanted, between = {end}, []
    for operation in reversed(forward):
        if wanted.intersection(operation.outputs):
            between.append(operation)
            wanted.update(operation.inputs)
    made = {slot for operation in between for slot in operation.outputs}
    return Link(
        before, after, start, end, weight, tuple(between[::-1]), tuple(sorted(wanted - made - {start}))
    )


def gates_of(model: Model, link: Link, slots: Mapping[int, Any]) -> jax.Array:
    """Return the gates between two layers, `(n, d)`, from the values of the link's slots.

    Raises
    ------
    ValueError
        If what lies between does not work entry by entry.
    """

    def function(output: Any) -> Any:
        own = {slot: slots[slot] for slot in link.needed} | {link.start: output}
        for operation in link.operations:
            perform(operation, own, {}, frozenset())
        return own[link.end]

    values, pull = jax.vjp(function, slots[link.start])
    backward = jax.make_jaxpr(lambda cotangent: pull(cotangent)[0])(values).jaxpr
    try:
        (reached,) = _through(backward, [_layout(values.shape, link.after.site.rows)])
    except _MixesError as error:
        what = f"is no function entry by entry ({error}) of the output of layer {link.before.name!r}"
        raise _no_chain(link.after.name, what) from None
    rows = link.before.site.output_rows
    if reached != _layout(slots[link.start].shape, rows):
        what = f"does not come from the output of layer {link.before.name!r} alone"
        raise _no_chain(link.after.name, what)
    (gates,) = pull(jnp.ones_like(values))
    return split(gates, rows, model.samples).reshape((model.samples, -1))[: model.real]


def matrix_above(link: Link, slots: Mapping[int, Any]) -> jax.Array:
    """Return the matrix of the layer after, `(d_out, d_in)`."""
    axes = product_axes(link.after.site)
    weight = jnp.transpose(slots[link.weight], (*axes.weight_outputs, *axes.weight_inputs))
    return weight.reshape((-1, weight.shape[-1]))


class _MixesError(Exception):
    """An operation through which entries may meet."""


def _layout(shape: Sequence[int], rows: Rows) -> Layout:
    return tuple(
        None if size == 1 else "samples" if axis == rows.axis else "features"
        for axis, size in enumerate(shape)
    )


def _through(jaxpr: Any, entering: Sequence[Layout | None]) -> list[Layout | None]:
    """Follow cotangents through a linear program; None is said of what does not depend on them.

    Raises
    ------
    _MixesError
        If an operation on them is not elementwise.
    """
    known = dict(zip(jaxpr.invars, entering, strict=True))

    def of(atom: Any) -> Layout | None:
        return None if hasattr(atom, "val") else known.get(atom)

    for eqn in jaxpr.eqns:
        layouts = [of(atom) for atom in eqn.invars]
        if all(layout is None for layout in layouts):
            continue
        inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr")))
        if eqn.primitive.name in _CALLS:
            outputs = _through(closed_of(inner).jaxpr, layouts)
        else:
            outputs = [_after(eqn, layouts)]
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def _after(eqn: Any, layouts: Sequence[Layout | None]) -> Layout:
    name, shape = eqn.primitive.name, tuple(eqn.outvars[0].aval.shape)
    moving = [(atom, layout) for atom, layout in zip(eqn.invars, layouts, strict=True) if layout is not None]
    (first, layout), *rest = moving
    if name in ELEMENTWISE and len(eqn.outvars) == 1:
        if all(other == layout for _, other in rest):
            return layout
    elif name == "transpose":
        return tuple(layout[axis] for axis in eqn.params["permutation"])
    elif name == "squeeze" or (name in _RESHAPES and eqn.params.get("dimensions") is None):
        labels = [label for label in layout if label is not None]
        if [size for size in shape if size > 1] == [size for size in first.aval.shape if size > 1]:
            return tuple(None if size == 1 else labels.pop(0) for size in shape)
    raise _MixesError(name)


def _no_chain(name: str, what: str) -> ValueError:
    return ValueError(
        f"layer {name!r}: gate-corrected LAI expects linear layers on (n, d), one after the other with "
        f"elementwise functions between them; its input {what}; use estimator='lai', or 'ghost'"
    )
