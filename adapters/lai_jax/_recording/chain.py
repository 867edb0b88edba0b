"""Chains of layers: what lies between the output of one layer and the input of the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from lai_core._adapters import not_a_chain
from lai_jax._program.model import Model
from lai_jax._program.program import Operation, Program, Site
from lai_jax._recording.arrays import has_positions, product_axes
from lai_jax._recording.plan import Plan
from lai_jax._recording.uses import Use


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
        raise not_a_chain(use.name, "goes into a convolution")
    if not outside:
        raise not_a_chain(use.name, "is inside a loop, a branch or a recomputation")
    if len(shape) != 2 or has_positions(site, samples):
        raise not_a_chain(use.name, f"has shape {shape}, not (n, d)")
    if product_axes(site).weight_groups:
        raise not_a_chain(use.name, "meets several matrices side by side")


def _link(program: Program, found: Mapping[Site, Operation], before: Use, after: Use) -> Link:
    start = found[before.site].outputs[0]
    end, weight = (found[after.site].inputs[place] for place in (after.site.data, after.site.parameter))
    if program.values[end].layers != {before.site} or len(program.values[start].shape) != 2:
        raise not_a_chain(after.name, f"does not come from the output of layer {before.name!r} alone")
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
