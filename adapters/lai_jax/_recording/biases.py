"""Finding biases: a parameter added to nothing but the output of a layer, feature by feature."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from lai_jax._program.program import Operation, Program, Use
from lai_jax._program.rules.values import rearrange
from lai_jax._program.views import View
from lai_jax._recording.planned import PlannedRecord


def add_biases(
    biases: Mapping[Use, Use],
    records: Sequence[PlannedRecord],
    by_leaf: Mapping[int, Sequence[Use]],
    left_out: Collection[int],
) -> list[PlannedRecord]:
    """Return the records with the biases that belong to them: one bias to one weight, used nowhere else."""
    of_weight: dict[Any, set[Any]] = defaultdict(set)
    of_bias: dict[Any, set[Any]] = defaultdict(set)
    copies: dict[Any, set[Use]] = defaultdict(set)
    views: dict[Any, View] = {}
    for index, own in enumerate(records):
        bias, weight = biases.get(own.use), own.key or index
        view = None if own.seen_by_lai_alone or bias is None else own.view(bias.operand.view)
        if bias is None or view is None:
            continue
        place = (view.leaf, view.offset)
        of_weight[weight].add(place)
        of_bias[place].add(weight)
        copies[place].add(bias)
        views[place] = view
    # A weight with two biases has two gradients by one name, and a bias of two weights, whole or in part,
    # has cross terms between them. What such a leaf holds is materialised.
    spoilt = {leaf for places in of_weight.values() if len(places) > 1 for leaf, _ in places}
    spoilt |= {place[0] for place, weights in of_bias.items() if len(weights) > 1}
    spoilt |= {one.leaf for one, other in combinations(views.values(), 2) if one.overlaps(other)}
    fused = {bias for place, own in copies.items() if place[0] not in spoilt for bias in own}
    # And so is a leaf that is used in any other place, or left out.
    shared = set(left_out) | {leaf for leaf, own in by_leaf.items() if any(use not in fused for use in own)}
    fused = {bias for bias in fused if not bias.operand.leaves & shared}
    return [replace(own, bias=bias) if (bias := biases.get(own.use)) in fused else own for own in records]


def bias_uses(program: Program) -> dict[Use, Use]:
    found: dict[Use, Use] = {}
    makers = {slot: operation for operation in program.operations for slot in operation.outputs}
    counts = Counter(slot for operation in program.operations for slot in operation.inputs)
    counts.update(program.outputs)
    for operation in program.operations:
        for body in operation.bodies:
            found |= bias_uses(body)
        if operation.eqn.primitive.name == "add" and len(operation.copies) == 1:
            ((position, bias),) = operation.copies.items()
            layer = _layer_before(operation.inputs[1 - position], makers, counts)
            view, shape = bias.operand.view, tuple(operation.eqn.outvars[0].aval.shape)
            if layer is None or view is None or len(view.cells.shape) != len(shape):
                continue
            use, features = layer
            if features.cells.shape != shape:
                continue
            cells = np.broadcast_to(view.cells, shape)
            strides = zip(features.cells.strides, cells.strides, shape, strict=True)
            if all(feature == own for feature, own, size in strides if size > 1):
                found[use] = bias
    return found


def _layer_before(slot: int, makers: dict[int, Operation], counts: Counter[int]) -> tuple[Use, View] | None:
    """Follow an output back to its layer, through rearrangements that nothing else reads."""
    operation = makers.get(slot)
    if operation is None or counts[slot] != 1:
        return None
    if operation.use is not None and operation.use.is_layer:
        # which feature each entry of the output is, as a view of all features
        use = operation.use
        shape, params = use.output.shape, use.eqn.params
        if use.kind == "convolution":
            places: tuple[int, ...] = (params["dimension_numbers"].out_spec[1],)
        else:
            contract, batch = params["dimension_numbers"]
            groups = len(batch[use.parameter])
            rank = len(use.eqn.invars[use.parameter].aval.shape)
            own = rank - groups - len(contract[use.parameter])
            first = groups if use.parameter == 0 else len(shape) - own
            places = (*range(groups), *range(first, first + own))
        sizes = [shape[axis] if axis in places else 1 for axis in range(len(shape))]
        return use, View(0, np.broadcast_to(np.empty(sizes, np.int8), shape))
    if len(operation.inputs) != 1:
        return None
    before = _layer_before(operation.inputs[0], makers, counts)
    if before is None:
        return None
    view = rearrange(operation.eqn, before[1])
    return None if view is None else (before[0], view)
