"""Checks of traces against themselves and against each other, from shapes and types alone."""

from collections.abc import Hashable
from typing import Any, Literal

from lai_core._engine.checks import check_count, quote_words
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, accumulation_dtype, is_array, is_floating, namespace_of
from lai_core.records._once import check_once
from lai_core.records.base import Trace, locate

Needs = Literal["output", "all"] | None
"""Of which layers a trace must hold output gradients: the last one, or all."""


def _arrays(role: str, trace: Trace) -> dict[str, Array]:
    named = {}
    for index, layer in enumerate(trace.layers):
        here = locate(role, index, layer)
        if not layer.arrays():
            msg = f"{here}: expected arrays, got None for {quote_words(layer.array_fields)}"
            raise ValueError(msg)
        named.update({f"{here}.{field}": array for field, array in layer.arrays().items()})
    return named


@check_once
def check_trace(role: str, trace: Any, needs: Needs, memory_budget: int) -> Workspace:
    """Raise unless a trace is sound and has the gradients an estimator needs; return where to compute."""
    if not isinstance(trace, Trace):
        msg = f"{role}: expected a Trace, got {type(trace).__name__}"
        raise TypeError(msg)
    named = _arrays(role, trace)
    xp = namespace_of(named)
    first: dict[Hashable, int] = {}  # of each key: records with equal keys have matrices of equal shape
    for index, layer in enumerate(trace.layers):
        here = locate(role, index, layer)
        layer.check(here, xp)
        if layer.samples() != trace.layers[0].samples():
            msg = (
                f"{here}: expected {trace.layers[0].samples()} samples as in {role}.layers[0], "
                f"got {layer.samples()}"
            )
            raise ValueError(msg)
        if is_array(layer.weight) or not isinstance(layer.weight, Hashable):
            got = type(layer.weight).__name__
            msg = f"{here}.weight: expected a hashable key such as the parameter's name, got {got}"
            raise TypeError(msg)
        last = index == len(trace.layers) - 1
        if layer.output_gradients is None and (needs == "all" or (last and needs == "output")):
            of = "the last layer" if needs == "output" else "every layer (trace with gradients='all')"
            msg = f"{here}.output_gradients: expected output gradients of {of}, got None"
            raise ValueError(msg)
        if layer.weight is None or layer.matrix_shape is None:
            continue
        other = first.setdefault(layer.weight, index)
        shapes = trace.layers[other].matrix_shape, layer.matrix_shape
        if shapes[0] != shapes[1]:
            msg = (
                f"{here}: shares the weight {layer.weight!r} with "
                f"{locate(role, other, trace.layers[other])}: expected a matrix of its shape "
                f"(groups, outputs, inputs) = {shapes[0]}, got {shapes[1]}"
            )
            raise ValueError(msg)
    dtypes = [array.dtype for array in named.values() if is_floating(xp, array.dtype)]  # ids are not
    return Workspace(xp, accumulation_dtype(xp, *dtypes), check_count("memory_budget", memory_budget))


@check_once
def check_pair(validation: Trace, training: Any, needs: Needs, memory_budget: int) -> Workspace:
    """Raise unless two traces can be scored against each other; return where to compute."""
    sides = {"validation": validation, "training": training}
    left, right = (check_trace(role, trace, needs, memory_budget) for role, trace in sides.items())
    xp = namespace_of({role: next(iter(_arrays(role, trace).values())) for role, trace in sides.items()})
    check_layouts("validation", layouts(validation, needs), training, needs)
    return Workspace(xp, accumulation_dtype(xp, left.dtype, right.dtype), left.memory_budget)


Layouts = tuple[tuple[tuple[str, Any], ...], ...]
"""Of each layer, names and values of what must be equal on both sides; hashable, so static in a pytree."""


@check_once
def layouts(trace: Trace, needs: Needs) -> Layouts:
    """Return of each layer what must be equal on both sides of an estimator with these needs."""
    found = []
    for index, layer in enumerate(trace.layers):
        layout = {**layer.layout(), "weight key": layer.weight}
        if needs == "output" and index < len(trace.layers) - 1:
            layout.pop("width of the output gradients", None)  # not looked at, and one side may lack them
        found.append(tuple(layout.items()))
    return tuple(found)


def check_layouts(source: str, expected: Layouts, training: Trace, needs: Needs) -> None:
    """Raise unless the layers of `training` are those of `expected`, which came from `source`."""
    check_equal_layouts(source, expected, "training", layouts(training, needs), training)


def check_equal_layouts(
    source: str, expected: Layouts, role: str, got: Layouts, trace: Trace | None = None
) -> None:
    """Raise unless two sides have the same layers, named as in the trace if there is one."""
    if expected == got:
        return
    if len(expected) != len(got):
        msg = f"{role}: expected {len(expected)} layers as in {source}, got {len(got)}"
        raise ValueError(msg)
    for index, pair in enumerate(zip(expected, got, strict=True)):
        wanted, given = (dict(layout) for layout in pair)
        for what in (*wanted, *given):
            if wanted.get(what) != given.get(what):
                here = locate(role, index, trace.layers[index]) if trace else f"{role}.layers[{index}]"
                msg = f"{here}: expected {what} {wanted.get(what)!r} as in {source}, got {given.get(what)!r}"
                raise ValueError(msg)


def check_same_samples(validation: Trace, training: Trace) -> None:
    """Raise unless two traces have equal shapes, so that sample j can be left out of score j."""
    n_val, n_train = validation.layers[0].samples(), training.layers[0].samples()
    if n_val != n_train:
        msg = (
            f"exclude_self: expected the same batch as validation and as training, got {n_val} validation "
            f"and {n_train} training samples"
        )
        raise ValueError(msg)
    for index, (before, layer) in enumerate(zip(validation.layers, training.layers, strict=True)):
        for field, array in layer.arrays().items():
            other = before.arrays().get(field)
            if other is not None and tuple(other.shape) != tuple(array.shape):
                msg = (
                    f"exclude_self: expected the same batch as validation and as training, but "
                    f"{locate('training', index, layer)}.{field} has shape {tuple(array.shape)}, in "
                    f"validation {tuple(other.shape)}"
                )
                raise ValueError(msg)
