r"""What several public functions take: traces, layer weights, and the meaning of positions.

What LAI means on layers that are used at many positions of one sample:

=========  ==============================================================  ======================
positions  kernel                                                          fits
=========  ==============================================================  ======================
tokens     :math:`\sum_{tt'} \langle g_{zt}, g_{jt'}\rangle                every layer has the
           \sum_l \langle a^l_{zt}, a^l_{jt'}\rangle`                      last layer's positions
mean       means over positions of a and of g, then as without positions   always
flatten    :math:`\sum_l \langle A^l_z, A^l_j\rangle_F                     validation and training
           \langle G_z, G_j\rangle_F`                                      have equal positions
=========  ==============================================================  ======================

A position that is masked (`mask_positions`) counts for nothing: it is in no pair and in no mean, and the
number of positions that a mean divides by is that of the others.
"""

from collections.abc import Sequence
from typing import Any

from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_choice, check_number, quote_words
from lai_core._engine.factors import number_of_positions, with_positions
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, Namespace, cast, is_array, namespace_of
from lai_core.records._once import check_once
from lai_core.records.base import Record, Trace, locate
from lai_core.records.compatible import check_pair

POSITIONS = ("tokens", "mean", "flatten")


def arrange(work: Workspace, array: Array, positions: str, valid: Array | None) -> Array:
    """Return `array` as `positions` sees it, `(n, t, d)`: where `valid` is False, as if it were not there."""
    xp = work.xp
    masked = valid is not None and array.ndim == 3
    if masked:
        array = xp.where(xp.expand_dims(valid, axis=2), array, xp.zeros_like(array[:1, :1, :1]))
    if positions == "tokens":
        return with_positions(xp, array)
    if positions == "flatten":
        return xp.reshape(array, (array.shape[0], 1, -1))
    if not masked and number_of_positions(array) == 1:  # a mean of one
        return with_positions(xp, cast(xp, array, work.dtype))
    if not masked and array.dtype == work.dtype:
        return xp.mean(array, axis=1, keepdims=True)
    summed = xp.sum(array, axis=1, keepdims=True, dtype=work.dtype)
    if not masked:
        return summed * (1.0 / number_of_positions(array))
    count = xp.expand_dims(xp.sum(xp.astype(valid, work.dtype), axis=1, keepdims=True), axis=2)
    return summed / xp.where(count > 0, count, xp.ones_like(count))


def bias_column(work: Workspace, array: Array, positions: str, valid: Array | None) -> Array | None:
    """Return what a readout bias multiplies, `(n, 1, t)`; None where that is one 1 at every position."""
    if positions != "flatten" or array.ndim == 2:
        return None
    xp = work.xp
    ones = xp.ones_like(array[..., 0], dtype=work.dtype) if valid is None else xp.astype(valid, work.dtype)
    return xp.expand_dims(ones, axis=1)


def misfit(trace: Trace, xp: Namespace, positions: str, role: str = "trace") -> str | None:
    """Say why `positions` does not fit the layers of `trace`; None if it fits."""
    if positions != "tokens":
        return None
    expected = number_of_positions(trace.layers[-1].output_gradients)
    for index, layer in enumerate(trace.layers):
        read = layer.readout_input(xp)
        if read is not None and (count := number_of_positions(read)) != expected:
            return f"{locate(role, index, layer)} has {count} positions, the last layer {expected}"
    return None


def get_last_layer(trace: Trace, work: Workspace) -> Record:
    """Return the last record, unless it is that of a table or a gain: LAI and LLI read the last layer."""
    last = trace.layers[-1]
    if last.readout_input(work.xp) is None:
        msg = (
            f"layers[{len(trace.layers) - 1}] ({last.name!r}): expected the last record to be that of a "
            f"layer (dense or convolution), got a {type(last).__name__}: LAI and LLI have no last layer to "
            "read; Ghost needs none"
        )
        raise ValueError(msg)
    return last


@check_once
def check_lai_trace(
    trace: Trace, work: Workspace, positions: str, role: str, among: Sequence[str] = POSITIONS
) -> None:
    """Raise unless LAI can score `trace` at these `positions`."""
    check_choice("positions", positions, POSITIONS)
    last = trace.layers[-1]
    if not last.has_output_rows:
        here = locate(role, len(trace.layers) - 1, last)
        msg = (
            f"{here}: expected a last record with output gradients (n, d) or (n, t, d), got a "
            f"{type(last).__name__}, whose are maps; put its unfolded() record last"
        )
        raise ValueError(msg)
    get_last_layer(trace, work)
    if (reason := misfit(trace, work.xp, positions, role)) is not None:
        fitting = [other for other in among if misfit(trace, work.xp, other) is None]
        msg = (
            f"positions: {positions!r} needs the last layer's positions in every layer, but "
            f"{reason}; these fit: {quote_words(fitting)}"
        )
        raise ValueError(msg)


@check_once
def check_lai_pair(validation: Any, training: Any, positions: str, memory_budget: int) -> Workspace:
    """Raise unless LAI can score these traces at these `positions`; return where to compute."""
    work = check_pair(validation, training, "output", memory_budget)
    check_lai_trace(validation, work, positions, "validation")
    check_lai_trace(training, work, positions, "training")
    sides = zip(validation.layers, training.layers, strict=True)
    for index, layers in enumerate(sides if positions == "flatten" else ()):
        before, read = (layer.readout_input(work.xp) for layer in layers)
        if before is None or read is None:
            continue
        expected, got = number_of_positions(before), number_of_positions(read)
        if expected != got:
            msg = (
                f"{locate('training', index, layers[1])}: expected {expected} positions as in validation "
                f"because positions='flatten' aligns them, got {got}; 'mean' does not need it"
            )
            raise ValueError(msg)
    return work


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
