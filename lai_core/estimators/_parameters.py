"""Each estimator as the parameters it sees; kernels, scores and sums are then the same for all.

Ghost sees the traced parameters, LLI those of the last layer, LAI the virtual linear readouts from
every layer's input to the outputs (the virtual-readout theorem), preconditioned LAI the same with
the training side's output gradients rescaled.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add
from typing import Any

from jaxtyping import Float

from lai_core._engine.gradients import ParameterGradient, Workspace, column_sums, inner_products
from lai_core._engine.namespace import Array, cast
from lai_core._engine.outer import OuterGradient
from lai_core.estimators._arguments import arrange, bias_column, get_last_layer
from lai_core.estimators.catalogue import Facts
from lai_core.records.base import Record, Trace

Gradients = Mapping[Hashable, Sequence[ParameterGradient]]
"""Per parameter, its gradients from each use; the parameter's gradient is their sum."""


@dataclass(frozen=True)
class ReadoutMetric:
    """What multiplies a readout's gradient `g a^T`: row i by `outputs[i]`, column k by `inputs[l][k]`.

    Attributes
    ----------
    outputs
        `(d_L,)`.
    inputs
        `(d_(l-1),)` for each layer, None for one that LAI does not read. None: all 1.
    """

    outputs: Array
    inputs: Sequence[Any] | None = None


def ghost_gradients(trace: Trace, work: Workspace) -> Gradients:
    return _collect(trace.layers, work)


def collect_gradients(
    estimator: Facts, trace: Trace, work: Workspace, positions: str = "tokens"
) -> Gradients:
    """Return the gradients that an estimator sees of one side."""
    if estimator.parameters == "readouts":
        return lai_gradients(trace, work, positions)
    if estimator.parameters == "last":  # from this one use of them
        return _collect([get_last_layer(trace, work)], work)
    return ghost_gradients(trace, work)


def _collect(layers: Sequence[Record], work: Workspace) -> Gradients:
    found: dict[Hashable, list[ParameterGradient]] = {}
    for index, layer in enumerate(layers):
        matrix = ("layer", index) if layer.weight is None else ("weight", layer.weight)
        for parameter, gradient in layer.parameter_gradients(work).items():
            found.setdefault((matrix, parameter), []).append(gradient)
    return {parameter: _join_uses(uses, work) for parameter, uses in found.items()}


def _join_uses(uses: list[ParameterGradient], work: Workspace) -> Sequence[ParameterGradient]:
    """Return all uses of a parameter as one gradient, where one of them knows how to take in the others."""
    for index, use in enumerate(uses if len(uses) > 1 else ()):
        if (whole := use.join([*uses[:index], *uses[index + 1 :]], work)) is not None:
            return [whole]
    return uses


def lai_gradients(
    trace: Trace,
    work: Workspace,
    positions: str,
    readout_scales: Sequence[Array | float] | None = None,
    metric: "ReadoutMetric | None" = None,
) -> Gradients:
    """Return the gradients of LAI's virtual readouts, all from one set of output gradients.

    `readout_scales` (one a layer) is for the training side alone: it enters an inner product once.
    So does `metric`.
    """
    xp, last = work.xp, trace.layers[-1]
    output_gradients: Array = last.output_gradients
    if metric is not None:
        output_gradients = _scale_axis(work, output_gradients, metric.outputs)
    # the positions of the last layer's inputs that count, where its outputs have as many
    counted = last.readout_positions
    if counted is not None and tuple(output_gradients.shape[:-1]) != tuple(counted.shape):
        counted = None
    rows = arrange(work, output_gradients, positions, counted)
    columns, scales, biases = [], [], []
    for index, layer in enumerate(trace.layers):
        read = layer.readout_input(xp)
        if read is None:
            continue
        if metric is not None and metric.inputs is not None:
            read = _scale_axis(work, read, metric.inputs[index])
        # Columns too, though rows that do not count are zero: zero times what is no number is none.
        valid = layer.readout_positions
        scale: Any = None if readout_scales is None else readout_scales[index]
        columns.append(arrange(work, read, positions, valid))
        scales.append(scale)
        if not layer.has_readout_bias:
            continue
        column = bias_column(work, read, positions, valid)
        if column is None:
            biases.append(scale)
        else:
            columns.append(column)
            scales.append(scale)
    # All readout biases have one gradient: validation's column is 1, training's their joint weight.
    constant = (1.0 if readout_scales is None else _sum_parts(biases)) if biases else None
    plain = readout_scales is None or all(scale.__class__ is float and scale == 1.0 for scale in scales)
    weighted = None if plain else tuple(scales)
    return {"readouts": [OuterGradient(rows, tuple(columns), constant=constant, scales=weighted)]}


def _scale_axis(work: Workspace, values: Array, scale: Array) -> Array:
    return cast(work.xp, values, work.dtype) * cast(work.xp, scale, work.dtype)


def kernel(validation: Gradients, training: Gradients, work: Workspace) -> Float[Array, "n_val n_train"]:
    return _sum_parts([inner_products(*pair, work) for pair in pairs(validation, training)])


def scores(validation: Gradients, training: Gradients, work: Workspace) -> Float[Array, " n_train"]:
    """Return the kernel's column sums, each parameter by the cheaper contraction."""
    return _sum_parts([column_sums(*pair, work) for pair in pairs(validation, training)])


def diagonal(validation: Gradients, training: Gradients, work: Workspace) -> Float[Array, " n"]:
    """Return the kernel's diagonal, without the kernel."""
    return _sum_parts([use.dot_rowwise(other, work) for use, other in pairs(validation, training)])


def pairs(
    validation: Gradients, training: Gradients
) -> Iterator[tuple[ParameterGradient, ParameterGradient]]:
    for parameter, uses in training.items():
        yield from product(validation[parameter], uses)


def sum_uses(gradients: Gradients, work: Workspace) -> dict[Hashable, tuple[Array, ...]]:
    """Return the gradient of each parameter, summed over samples and uses."""
    found = {}
    for key, uses in gradients.items():
        parts = zip(*(use.total(work) for use in uses), strict=True)
        found[key] = tuple(reduce(add, part) for part in parts)
    return found


def dot_totals(summed: tuple[Any, ...], training: Gradients, work: Workspace) -> Float[Array, " n_train"]:
    """Return the inner products of every training sample's gradient with what `sum_uses` returned.

    One that is a gradient still is summed, or multiplied sample by sample, whichever is cheaper.
    """
    found = []
    for total, uses in zip(summed, training.values(), strict=True):
        if isinstance(total, ParameterGradient):
            found += [column_sums(total, use, work) for use in uses]
        else:
            found += [use.dot_total(total, work) for use in uses]
    return _sum_parts(found)


def _sum_parts(parts: Sequence[Array]) -> Array:
    if not parts:
        raise make_unseen_error("training")
    return reduce(add, parts)


def make_unseen_error(role: str) -> ValueError:
    return ValueError(
        f"{role}: expected a record with parameters of its own, got ReadoutTrace records alone: of these "
        "Ghost sees nothing, nor LLI of one that is last"
    )
