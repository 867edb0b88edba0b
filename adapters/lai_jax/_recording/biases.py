"""Finding biases: a parameter added to nothing but the output of a layer, feature by feature."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from lai_jax._program.program import Operation, Program, Site
from lai_jax._program.values import rearranged
from lai_jax._program.views import View
from lai_jax._recording.uses import Use


def fused_biases(
    program: Program, uses: Sequence[Use], by_leaf: Mapping[int, Sequence[Site]], left_out: Collection[int]
) -> set[Site]:
    """Return the lifts that belong to layers: one bias to one weight, and used nowhere else."""
    for site, own in bias_sites(program).items():
        site.bias = own
    of_weight: dict[Any, set[Any]] = defaultdict(set)
    of_bias: dict[Any, set[Any]] = defaultdict(set)
    lifts: dict[Any, Site] = {}
    for index, use in enumerate(uses):
        weight = use.key or index
        bias = None if use.built or use.site.frozen or use.transposed else use.site.bias
        view = None if bias is None else use.view(bias.operand.view)
        if bias is None or view is None:
            of_weight[weight].add(None)
            continue
        place = (view.leaf, view.offset)
        of_weight[weight].add(place)
        of_bias[place].add(weight)
        lifts[place] = bias
    spoilt = {leaf for places in of_weight.values() if len(places) > 1 for leaf, _ in places - {None}}
    spoilt |= {place[0] for place, weights in of_bias.items() if len(weights) > 1}
    fused = {bias for place, bias in lifts.items() if place[0] not in spoilt}
    shared = set(left_out) | {leaf for leaf, own in by_leaf.items() if any(site not in fused for site in own)}
    return {bias for bias in fused if not bias.operand.leaves & shared}


def bias_sites(program: Program) -> dict[Site, Site]:
    """Return of each layer with a bias the site of its bias."""
    found: dict[Site, Site] = {}
    makers = {slot: operation for operation in program.operations for slot in operation.outputs}
    counts = Counter(slot for operation in program.operations for slot in operation.inputs)
    counts.update(program.outputs)
    for operation in program.operations:
        for body in operation.bodies:
            found |= bias_sites(body)
        if operation.eqn.primitive.name == "add" and len(operation.lifts) == 1:
            ((position, bias),) = operation.lifts.items()
            layer = _layer_before(operation.inputs[1 - position], makers, counts)
            if layer is not None and _adds_by_feature(layer, bias, operation):
                found[layer[0]] = bias
    return found


def _layer_before(slot: int, makers: dict[int, Operation], counts: Counter[int]) -> tuple[Site, View] | None:
    """Follow an output back to its layer, through rearrangements that nothing else reads."""
    operation = makers.get(slot)
    if operation is None or counts[slot] != 1:
        return None
    if operation.site is not None and operation.site.is_layer:
        return operation.site, features_of(operation.site)
    if len(operation.inputs) != 1:
        return None
    before = _layer_before(operation.inputs[0], makers, counts)
    if before is None:
        return None
    view = rearranged(operation.eqn, before[1])
    return None if view is None else (before[0], view)


def features_of(site: Site) -> View:
    """Return which feature each entry of a layer's output is, as a view of all features."""
    shape, params = site.output.shape, site.eqn.params
    if site.kind == "convolution":
        places: tuple[int, ...] = (params["dimension_numbers"].out_spec[1],)
    else:
        contract, batch = params["dimension_numbers"]
        groups = len(batch[site.parameter])
        rank = len(site.eqn.invars[site.parameter].aval.shape)
        own = rank - groups - len(contract[site.parameter])
        first = groups if site.parameter == 0 else len(shape) - own
        places = (*range(groups), *range(first, first + own))
    sizes = [shape[axis] if axis in places else 1 for axis in range(len(shape))]
    cells = np.empty(int(np.prod(sizes)), np.int8).reshape(sizes)
    return View(0, np.broadcast_to(cells, shape))


def _adds_by_feature(layer: tuple[Site, View], bias: Site, operation: Operation) -> bool:
    view = bias.operand.view
    shape = tuple(operation.eqn.outvars[0].aval.shape)
    if view is None or len(view.cells.shape) != len(shape) or layer[1].cells.shape != shape:
        return False
    cells = np.broadcast_to(view.cells, shape)
    ours, theirs = layer[1].cells.strides, cells.strides
    return all(a == b for a, b, size in zip(ours, theirs, shape, strict=True) if size > 1)
