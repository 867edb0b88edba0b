"""Gates of a chain of layers, read off the program.

The input of layer l + 1 is a function of the output s of layer l. Where that function works entry by
entry, its Jacobian is the diagonal of the gates phi'(s), which one product with ones reads off. That it
does is decided from the operations of the backward pass alone, never from numbers: everything that a
cotangent meets on its way must be elementwise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lai_core._adapters import not_a_chain
from lai_jax._program.model import Model
from lai_jax._program.program import closed_of
from lai_jax._program.rules.primitives import CALLS, CUSTOM_RULES, ELEMENTWISE, RECOMPUTED
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._recording.arrays import product_axes
from lai_jax._recording.chain import Link

_CALLS = (*CALLS, *RECOMPUTED, *CUSTOM_RULES)
_RESHAPES = ("reshape", "broadcast_in_dim")

AxisLabels = tuple[str | None, ...]
"""What each axis is: samples, features, or None where it has one entry."""


def gates_of(model: Model, link: Link, slots: Mapping[int, Any]) -> jax.Array:
    """Return the gates between two layers, `(n, d)`, from the values of the link's slots."""
    values, vjp = link.between.vjp(slots)
    backward = jax.make_jaxpr(lambda cotangent: vjp(cotangent)[0])(values).jaxpr
    try:
        (reached,) = _through(backward, [_axis_labels(values.shape, link.after.use.samples_in)])
    except _MixesError as error:
        what = f"is no function entry by entry ({error}) of the output of layer {link.before.name!r}"
        raise not_a_chain(link.after.name, what) from None
    samples = link.before.use.samples_out
    if reached != _axis_labels(slots[link.between.start].shape, samples):
        what = f"does not come from the output of layer {link.before.name!r} alone"
        raise not_a_chain(link.after.name, what)
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


def _through(jaxpr: Any, entering: Sequence[AxisLabels | None]) -> list[AxisLabels | None]:
    """Follow cotangents through a linear, elementwise program; None is said of what does not hold them."""
    known = dict(zip(jaxpr.invars, entering, strict=True))

    def of(atom: Any) -> AxisLabels | None:
        return None if hasattr(atom, "val") else known.get(atom)

    for eqn in jaxpr.eqns:
        own = [of(atom) for atom in eqn.invars]
        if all(labels is None for labels in own):
            continue
        inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr")))
        if eqn.primitive.name in _CALLS:
            outputs = _through(closed_of(inner).jaxpr, own)
        else:
            outputs = [_after(eqn, own)]
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def _after(eqn: Any, entering: Sequence[AxisLabels | None]) -> AxisLabels:
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
