"""Checking and arranging what gate-corrected LAI takes: two traces, two lists of gates, column norms."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, accumulation_dtype, cast
from lai_core._theory.prepared import check_shape, numbered, prepared
from lai_core.estimators._arguments import check_lai_pair
from lai_core.records.base import Trace, where


@dataclass(frozen=True)
class GateInputs:
    """What the estimator multiplies, validation side first; every list has one entry a layer."""

    work: Workspace
    embeddings: tuple[list[Array], list[Array]]
    constants: list[float]
    gates: list[Array]
    scaled_gates: list[Array]
    gradients: tuple[Array, Array]


def gate_inputs(
    traces: tuple[Trace, Trace],
    gates: tuple[Sequence[Array], Sequence[Array]],
    column_norms: Sequence[Array],
    memory_budget: int,
) -> GateInputs:
    """Check everything from shapes alone, and scale the validation side's gates by the column norms.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If the traces are not of a chain of dense layers without positions, or shapes do not fit.
    """
    validation, training = traces
    work = check_lai_pair(validation, training, "mean", memory_budget)
    check_dense("validation", validation, work)
    check_dense("training", training, work)
    theirs, ours = ([layer.embedding(work.xp) for layer in trace.layers] for trace in traces)
    outputs: tuple[Array, Array] = (
        validation.layers[-1].output_gradients,
        training.layers[-1].output_gradients,
    )
    constants = [float(layer.has_readout_bias) for layer in training.layers]
    count = len(training.layers) - 1
    if count == 0:
        return GateInputs(work, (theirs, ours), constants, [], [], outputs)
    names = ("validation_gates", "training_gates", "column_norms")
    lists = dict(zip(names, (*gates, column_norms), strict=True))
    for name, arrays in lists.items():
        if len(numbered(name, arrays)) != count:
            msg = f"{name}: expected {count} arrays, one for every layer but the last, got {len(arrays)}"
            raise ValueError(msg)
    named = {key: array for name, arrays in lists.items() for key, array in numbered(name, arrays).items()}
    xp, read = prepared(named | {"training": outputs[1]})
    dtype = accumulation_dtype(xp, work.dtype, read[0].dtype)
    read = [cast(xp, array, dtype) for array in read]
    left, right, norms = read[:count], read[count : 2 * count], read[2 * count : 3 * count]
    widths = [int(array.shape[-1]) for array in norms] + [int(outputs[1].shape[-1])]
    for index in range(count):
        check_shape(f"column_norms[{index}]", norms[index], (widths[index],))
        for name, side, trace in (("validation", left, validation), ("training", right, training)):
            expected = (trace.layers[0].samples(), widths[index])
            check_shape(f"{name}_gates[{index}]", side[index], expected)
    scaled = [gate * (norm / width) for gate, norm, width in zip(left, norms, widths[1:], strict=True)]
    wide = Workspace(xp, dtype, work.memory_budget)
    return GateInputs(wide, (theirs, ours), constants, right, scaled, outputs)


def check_dense(role: str, trace: Trace, work: Workspace) -> None:
    """Raise unless every layer is dense, without positions, with a matrix of its own.

    Raises
    ------
    ValueError
        If one is not.
    """
    keys: set[Hashable] = set()
    for index, layer in enumerate(trace.layers):
        embedding: Any = layer.embedding(work.xp)
        here = where(role, index, layer)
        if embedding is None or embedding.ndim != 2 or getattr(layer, "groups", 1) != 1:
            got = "none" if embedding is None else f"shape {tuple(embedding.shape)}"
            msg = (
                f"{here}: expected a dense layer with activations (n, d) and groups=1, got {got}; "
                "lai_kernel knows positions and groups"
            )
            raise ValueError(msg)
        if layer.weight is not None and layer.weight in keys:
            msg = f"{here}: expected a matrix of its own, got the key {layer.weight!r} of an earlier layer"
            raise ValueError(msg)
        keys.add(layer.weight)
