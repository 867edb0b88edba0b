"""Checks of traces against themselves and against each other, from shapes and types alone."""

from typing import Any, Literal

from lai_core._checks import check_budget
from lai_core._gradients import Workspace
from lai_core._namespace import Array, accumulation_dtype, is_floating, namespace_of
from lai_core._records import Trace, where

Needs = Literal["output", "all"]


def _arrays(role: str, trace: Trace) -> dict[str, Array]:
    return {
        f"{where(role, index, layer)}.{field}": array
        for index, layer in enumerate(trace.layers)
        for field, array in layer.arrays().items()
    }


def check_trace(role: str, trace: Any, needs: Needs, memory_budget: int) -> Workspace:
    """Raise unless `trace` is sound and has the output gradients an estimator needs.

    Returns
    -------
    Workspace
        Where to compute with its arrays.

    Raises
    ------
    TypeError
        If it is not a trace, or its arrays are of a wrong kind.
    ValueError
        If a shape is wrong or output gradients are missing.
    """
    if not isinstance(trace, Trace):
        msg = f"{role}: expected a Trace, got {type(trace).__name__}"
        raise TypeError(msg)
    named = _arrays(role, trace)
    xp = namespace_of(named)
    for index, layer in enumerate(trace.layers):
        here = where(role, index, layer)
        layer.check(here, xp)
        if layer.samples() != trace.layers[0].samples():
            msg = (
                f"{here}: expected {trace.layers[0].samples()} samples as in {role}.layers[0], "
                f"got {layer.samples()}"
            )
            raise ValueError(msg)
        last = index == len(trace.layers) - 1
        if layer.output_gradients is None and (last or needs == "all"):
            asked = "the last layer's" if needs == "output" else "every layer's (trace with gradients='all')"
            msg = f"{here}.output_gradients: expected {asked} output gradients, got None"
            raise ValueError(msg)
    dtypes = [array.dtype for array in named.values() if is_floating(xp, array.dtype)]  # ids are not
    return Workspace(xp, accumulation_dtype(xp, *dtypes), check_budget(memory_budget))


def check_pair(validation: Trace, training: Any, needs: Needs, memory_budget: int) -> Workspace:
    """Raise unless two traces are of one model and can be scored against each other.

    Returns
    -------
    Workspace
        Where to compute with the arrays of both.

    Raises
    ------
    ValueError
        If their layers differ in number, width, bias, groups, kind or sharing.
    """
    left = check_trace("validation", validation, needs, memory_budget)
    right = check_trace("training", training, needs, memory_budget)
    first = {"validation": next(iter(_arrays("validation", validation).values()))}
    xp = namespace_of(first | {"training": next(iter(_arrays("training", training).values()))})
    check_layouts("validation", layouts(validation, needs), training, needs)
    return Workspace(xp, accumulation_dtype(xp, left.dtype, right.dtype), left.memory_budget)


Layouts = tuple[tuple[tuple[str, Any], ...], ...]
"""Of each layer, names and values of what must be equal on both sides; hashable, so static in a pytree."""


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
    """Raise unless the layers of `training` are those of `expected`, which came from `source`.

    Raises
    ------
    ValueError
        If they differ in number, or a layer in width, bias, groups, kind or weight key.
    """
    if len(expected) != len(training.layers):
        msg = f"training: expected {len(expected)} layers as in {source}, got {len(training.layers)}"
        raise ValueError(msg)
    for index, pair in enumerate(zip(expected, layouts(training, needs), strict=True)):
        theirs, ours = (dict(layout) for layout in pair)
        for what in (*theirs, *ours):
            if theirs.get(what) != ours.get(what):
                here = where("training", index, training.layers[index])
                msg = f"{here}: expected {what} {theirs.get(what)!r} as in {source}, got {ours.get(what)!r}"
                raise ValueError(msg)


def check_same_samples(validation: Trace, training: Trace) -> None:
    """Raise unless two traces hold equally many samples, so that sample j can be left out of score j.

    Raises
    ------
    ValueError
        If they do not.
    """
    n_val, n_train = validation.layers[0].samples(), training.layers[0].samples()
    if n_val != n_train:
        msg = (
            f"exclude_self: expected the same batch as validation and as training, got {n_val} validation "
            f"and {n_train} training samples"
        )
        raise ValueError(msg)
