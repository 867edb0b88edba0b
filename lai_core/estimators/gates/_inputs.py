"""Checking and arranging what gate-corrected LAI takes: two traces, two lists of gates, column norms."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, accumulation_dtype, cast
from lai_core._theory.arrays import checked
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
    theirs, ours = ([layer.readout_input(work.xp) for layer in trace.layers] for trace in traces)
    outputs: tuple[Array, Array] = (
        validation.layers[-1].output_gradients,
        training.layers[-1].output_gradients,
    )
    constants = [float(layer.has_readout_bias) for layer in training.layers]
    count = len(training.layers) - 1
    if count == 0:
        return GateInputs(work, (theirs, ours), constants, [], [], outputs)
    left, right, norms = _read(*gates, column_norms, outputs[1])
    names = ("validation_gates", "training_gates", "column_norms")
    for name, arrays in zip(names, (left, right, norms), strict=True):
        if len(arrays) != count:
            msg = f"{name}: expected {count} arrays, one for every layer but the last, got {len(arrays)}"
            raise ValueError(msg)
    xp, dtype = work.xp, accumulation_dtype(work.xp, work.dtype, left[0].dtype)
    left, right, norms = ([cast(xp, array, dtype) for array in arrays] for arrays in (left, right, norms))
    widths = [int(array.shape[-1]) for array in norms] + [int(outputs[1].shape[-1])]
    for index in range(count):
        for name, side, trace in ((names[0], left, validation), (names[1], right, training)):
            shape, expected = tuple(side[index].shape), (trace.layers[0].samples(), widths[index])
            if shape != expected:
                msg = f"{name}[{index}]: expected shape {expected}, got {shape}"
                raise ValueError(msg)
    scaled = [gate * (norm / width) for gate, norm, width in zip(left, norms, widths[1:], strict=True)]
    wide = Workspace(xp, dtype, work.memory_budget)
    return GateInputs(wide, (theirs, ours), constants, right, scaled, outputs)


@checked
def _read(
    validation_gates: Sequence[Float[Array, "n_val d"]],
    training_gates: Sequence[Float[Array, "n_train d"]],
    column_norms: Sequence[Float[Array, " d"]],
    training: Float[Array, "n_train d_L"],
    /,
) -> tuple[Sequence[Array], Sequence[Array], Sequence[Array]]:
    """Return gates and norms in one type, that of the last layer's output gradients where it is wider."""
    return validation_gates, training_gates, column_norms


def check_dense(role: str, trace: Trace, work: Workspace) -> None:
    """Raise unless every layer is dense, without positions, with a matrix of its own.

    Raises
    ------
    ValueError
        If one is not.
    """
    keys: set[Hashable] = set()
    for index, layer in enumerate(trace.layers):
        embedding: Any = layer.readout_input(work.xp)
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
