"""Checks and readings of the arguments that several public functions share."""

from collections.abc import Sequence
from typing import Any

from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_choice, check_number
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, cast, is_array, namespace_of
from lai_core._engine.positions import number_of_positions
from lai_core.estimators._parameters import last_layer
from lai_core.estimators._positions import POSITIONS, check_positions_fit
from lai_core.records._once import once_a_layout
from lai_core.records.base import Trace, where
from lai_core.records.compatible import check_pair


@once_a_layout
def check_lai_trace(
    trace: Trace, work: Workspace, positions: str, role: str, among: Sequence[str] = POSITIONS
) -> None:
    """Raise unless LAI can score `trace` at these `positions`."""
    check_choice("positions", positions, POSITIONS)
    last = trace.layers[-1]
    if not last.has_output_rows:
        here = where(role, len(trace.layers) - 1, last)
        msg = (
            f"{here}: expected a last record with output gradients (n, d) or (n, t, d), got a "
            f"{type(last).__name__}, whose are maps; put its unfolded() record last"
        )
        raise ValueError(msg)
    if all(layer.readout_input(work.xp) is None for layer in trace.layers):
        msg = f"{role}: expected at least one layer that LAI sees (a dense or convolution record), got none"
        raise ValueError(msg)
    last_layer(trace, work)
    check_positions_fit(trace, work.xp, positions, role, among)


@once_a_layout
def check_lai_pair(validation: Any, training: Any, positions: str, memory_budget: int) -> Workspace:
    """Raise unless LAI can score these traces at these `positions`; return where to compute."""
    work = check_pair(validation, training, "output", memory_budget)
    check_lai_trace(validation, work, positions, "validation")
    check_lai_trace(training, work, positions, "training")
    if positions == "flatten":
        for index, (before, layer) in enumerate(zip(validation.layers, training.layers, strict=True)):
            here = where("training", index, layer)
            check_equal_positions(before.readout_input(work.xp), layer.readout_input(work.xp), here)
    return work


def check_equal_positions(validation: Array | None, training: Array | None, here: str) -> None:
    """Raise unless two arrays, if there are any, have equally many positions."""
    if validation is None or training is None:
        return
    expected, got = number_of_positions(validation), number_of_positions(training)
    if expected != got:
        msg = (
            f"{here}: expected {expected} positions as in validation because positions='flatten' aligns "
            f"them, got {got}; 'mean' does not need it"
        )
        raise ValueError(msg)


def readout_scales(layer_weights: Any, training: Trace, work: Workspace) -> Sequence[Array | float]:
    """Return the factor of each layer's readout, checked; 1.0 each where `layer_weights` is None."""
    count = len(training.layers)
    if layer_weights is None:
        return (1.0,) * count
    if is_array(layer_weights):
        check_array("layer_weights", layer_weights, str(count))
        namespace_of({"training": training.layers[-1].output_gradients, "layer_weights": layer_weights})
        weights = cast(work.xp, layer_weights, work.dtype)
        return tuple(weights[index] for index in range(count))
    if isinstance(layer_weights, str) or not isinstance(layer_weights, Sequence):
        msg = f"layer_weights: expected an array or a sequence of floats, got {type(layer_weights).__name__}"
        raise TypeError(msg)
    if len(layer_weights) != count:
        msg = f"layer_weights: expected one weight for each of the {count} layers, got {len(layer_weights)}"
        raise ValueError(msg)
    for index, weight in enumerate(layer_weights):
        check_number(f"layer_weights[{index}]", weight)
    return tuple(float(weight) for weight in layer_weights)
