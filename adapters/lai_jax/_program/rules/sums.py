"""Products with entries of a parameter that are added up: layers, however they are written.

A gain is no layer: each of its entries multiplies entries of what it meets. It becomes one where such
products are summed, `y = sum_i w_i h_i`, whether by a sum, a product with a fixed matrix, or one after the
other. So it is followed through the program which entries are entries of a parameter, which are products
with one, and along which axes these differ; every operation that is not linear in them ends it, as does a
sum of a product and such a function of it: `x - log(sum(exp(x)))`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from lai_jax._program.program import Scaled, Use, Value
from lai_jax._program.rules.primitives import ELEMENTWISE, names
from lai_jax._program.views import match_views

_KEPT = names("neg copy convert_element_type real imag select_n reduce_precision sharding_constraint name")
_ADDED = names("add sub add_any")
_ARRANGED = names(
    "slice dynamic_slice dynamic_update_slice pad rev concatenate stack unstack split gather scatter"
)
_SUMMED = names(
    """
    cumsum reduce_window_sum reduce_window conv_general_dilated fft triangular_solve scatter-add
    scatter-sub
    """
)
Found = frozenset[Scaled]


@dataclass(frozen=True)
class Followed:
    """What is known of an operation's output: what scales its entries, and the parameters it summed."""

    scaled: Found = frozenset()
    summed: frozenset[Use] = frozenset()


def entries_of(use: Use, value: Value, *, size: int) -> Found:
    """Return what one copy a sample of a parameter's value is: its own entries, none of a single number."""
    if size == 1:
        return frozenset()
    axes = {axis for axis, length in enumerate(value.shape) if length > 1} - value.flat
    return frozenset((Scaled(use, frozenset(axes), own=True),))


def follow(eqn: Any, values: Sequence[Value], rows: Callable[[Use], bool]) -> Followed:
    """Return what an operation on batched values makes of the entries of parameters in them."""
    if not any(value.scaled for value in values):
        return Followed()
    carried = {one for value in values for one in value.scaled if one.row or one.bent}
    plain = [replace(value, scaled=value.scaled - carried) for value in values]
    found = _follow(eqn, plain, rows)
    products = [{one.use for one in value.scaled if not (one.own or one.part)} for value in plain]
    ended = set[Use]()
    if eqn.primitive.name in _ADDED | {"select_n"}:
        bent = [{one.use for one in value.scaled if one.bent} for value in values]
        for (own, _), (_, curved) in permutations(zip(products, bent, strict=True), 2):
            ended |= own & curved
        found = replace(found, scaled=frozenset(one for one in found.scaled if one.use not in ended))
    elif eqn.primitive.name in ELEMENTWISE:
        ended = set[Use]().union(*products) - {one.use for one in found.scaled}
    carried |= {Scaled(use, frozenset(), bent=True) for use in ended}
    rowed = {one for one in carried | found.scaled if one.row}
    # A row of a matrix beside the batch is an offset; several of them are prototypes.
    several = {one.use for one in rowed for other in rowed if one is not other and _differ(one, other)}
    return Followed(found.scaled | carried, found.summed | several)


def _follow(eqn: Any, values: Sequence[Value], rows: Callable[[Use], bool]) -> Followed:
    name = eqn.primitive.name
    if name in ("mul", "div"):
        return Followed(frozenset(_products(name, values)))
    if name in _ADDED:
        return _sum_of_two(values, rows)
    if name == "dot_general":
        return _contract(eqn, values)
    every = frozenset[Scaled]().union(*(value.scaled for value in values))
    if name in _KEPT:
        return Followed(every)
    moved = _MOVES.get(name)
    if moved is not None:
        return Followed(frozenset(replace(one, axes=moved(eqn, one.axes)) for one in every))
    if name in _ARRANGED:
        return Followed(frozenset(_spread(eqn, one) for one in every))
    products = frozenset(one for one in every if not one.own)
    if name == "reduce_sum":
        gone = set(eqn.params["axes"])
        kept = frozenset(replace(one, axes=_shift(one.axes, gone)) for one in every)
        return _end(kept, (one for one in products if one.axes & gone))
    if name == "triangular_solve" and values[1].batched and not _is_own(values[1]):
        return _end(frozenset(_spread(eqn, one) for one in every), values[0].scaled)
    if name in _SUMMED:
        return _end(frozenset(_spread(eqn, one) for one in every), (one for one in products if one.axes))
    if name in ELEMENTWISE and all(_is_own(value) or not value.batched for value in values):
        return Followed(every - products)  # another way to write the parameter
    return Followed()


def _is_own(value: Value) -> bool:
    """Whether a batched value is made of a parameter's entries alone."""
    return bool(value.scaled) and all(one.own for one in value.scaled) and not value.layers


def _products(name: str, values: Sequence[Value]) -> list[Scaled]:
    found = []
    for position, value in enumerate(values):
        other = values[1 - position]
        for one in value.scaled:
            below = name == "div" and position == 1
            if below and not one.own:
                continue  # one over a product is none
            met = other.batched and not _is_own(other)
            found.append(replace(one, own=one.own and not met))
    return found


def _sum_of_two(values: Sequence[Value], rows: Callable[[Use], bool]) -> Followed:
    """Add two values: different products of one parameter make a sum of several; an offset makes none."""
    products = [[one for one in value.scaled if not one.own] for value in values]
    beside: list[Scaled] = []
    summed = [left for left in products[0] for right in products[1] if _differ(left, right)]
    for position, value in enumerate(values):
        other = values[1 - position]
        if _is_own(other) or not other.batched:
            continue
        for one in value.scaled:
            if not one.own:
                continue
            # The same row of the batch beside several rows of a parameter: prototypes, whose distances hold
            # the product of both.
            single = {axis for axis in one.axes if other.shape[axis] == 1}
            if single and one.axes - single:
                summed.append(one)
            elif rows(one.use):
                beside.append(Scaled(one.use, frozenset(), row=True))
    kept = [one for each in products for one in each]
    if all(_is_own(value) or not value.batched for value in values):
        kept += [one for value in values for one in value.scaled if one.own]
    return _end(frozenset((*kept, *beside)), summed)


def _differ(left: Scaled, right: Scaled) -> bool:
    """Whether two products hold different entries of one parameter, as far as one can see."""
    if left.use.operand.leaves.isdisjoint(right.use.operand.leaves):
        return False
    if left.part or right.part:
        return True
    return not match_views(left.use.operand.view, right.use.operand.view)


def _contract(eqn: Any, values: Sequence[Value]) -> Followed:
    contract, _ = eqn.params["dimension_numbers"]
    kept, summed = [], []
    for position, value in enumerate(values[:2]):
        other = values[1 - position]
        met = other.batched and not _is_own(other)
        for one in value.scaled:
            product = replace(one, own=one.own and not met)
            if not product.own and one.axes & set(contract[position]):
                summed.append(one)
            kept.append(_spread(eqn, product))
    return _end(frozenset(kept), summed)


def _end(kept: Found, summed: Any) -> Followed:
    uses = frozenset(one.use for one in summed)
    return Followed(frozenset(one for one in kept if one.use not in uses), uses)


def _spread(eqn: Any, one: Scaled) -> Scaled:
    """Return what is known where axes are not followed: entries may differ along each of them."""
    if not one.axes and not one.part:
        return replace(one, part=True)
    shape = eqn.outvars[0].aval.shape
    return replace(one, axes=frozenset(axis for axis, size in enumerate(shape) if size > 1), part=True)


def _shift(axes: frozenset[int], gone: set[int]) -> frozenset[int]:
    return frozenset(axis - sum(one < axis for one in gone) for axis in axes - gone)


def _reshape(eqn: Any, axes: frozenset[int]) -> frozenset[int]:
    """Return the axes of more than one entry: what differs along one axis may differ along each of them."""
    return axes and frozenset(axis for axis, size in enumerate(eqn.outvars[0].aval.shape) if size > 1)


_MOVES: Mapping[str, Callable[[Any, frozenset[int]], frozenset[int]]] = {
    "transpose": lambda eqn, axes: frozenset(
        place for place, axis in enumerate(eqn.params["permutation"]) if axis in axes
    ),
    "broadcast_in_dim": lambda eqn, axes: frozenset(
        int(eqn.params["broadcast_dimensions"][axis]) for axis in axes
    ),
    "squeeze": lambda eqn, axes: _shift(axes, set(eqn.params["dimensions"])),
    "reshape": _reshape,
}
