"""From a program, its plan and one run of it to the records of a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core import Record
from lai_core.records import LayerTrace, OuterGradient, ParameterGradient, Workspace, with_positions
from lai_jax._program.evaluate import Records, Wanted, run, zero_perturbations
from lai_jax._program.model import Model
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._recording.arrays import dense_arrays, product_axes, table_arrays
from lai_jax._recording.parameters import materialise_gradients
from lai_jax._recording.plan import Plan, is_plain
from lai_jax._recording.planned import PlannedRecord


# The kind of record that only arises from programs, written by public names alone as one's own would be.
@dataclass(frozen=True, eq=False, repr=False)
class TransposedTrace(LayerTrace):
    """A use of a shared matrix the other way round: `s = W^T a` where other records have `s = W a`.

    Parameters and errors are those of `LayerTrace`.
    """

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Shape of W: groups, and the outputs and inputs of the records that use it straight."""
        shape = super().matrix_shape
        return None if shape is None else (shape[0], shape[2], shape[1])

    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of W: activations as rows, output gradients as columns."""
        rows, columns = (
            with_positions(work.xp, array) for array in (self.activations, self.output_gradients)
        )
        turned = OuterGradient(rows, (columns,), groups=self.groups)
        return {**super().parameter_gradients(work), "weight": turned}


@dataclass(frozen=True)
class Measured:
    """What one run of the program gave."""

    losses: jax.Array  # `(n,)`
    records: Records  # the batched inputs of uses, by number
    cotangents: Records  # the output gradients of uses, by number


def measure(model: Model, plan: Plan, everything: bool) -> Measured:
    """Run the program once, and back to the last layer's output, or to the outputs of `everything`."""
    read = [own.use for own in plan.records if everything or own.use.is_layer]
    uses = dict.fromkeys([*read, *(use for uses in plan.materialised.values() for use in uses)])
    perturbed = list(uses) if everything else [use for use in uses if use is plan.last]
    wanted = Wanted(frozenset(use.number for use in uses if use.kind != "copy"))

    # The gradient with respect to a perturbation of zero, added to an output, is the output's gradient.
    def losses(perturbations: Records) -> tuple[jax.Array, Records]:
        (values,), records = run(model.program, model.arguments, perturbations, wanted)
        return values, records

    values, vjp, records = jax.vjp(losses, zero_perturbations(perturbed), has_aux=True)
    (cotangents,) = vjp(jnp.ones_like(values))
    return Measured(values, records, cotangents)


def records_of(model: Model, plan: Plan, measured: Measured, everything: bool) -> list[Record]:
    """Return the records of a trace, the last layer's at the end."""
    planned = [own for own in plan.records if everything or own.use.is_layer]
    if not everything and is_plain(planned[-1].use):
        # LLI reads the weight that the samples meet, whatever parameters it is computed from
        planned[-1] = replace(planned[-1], materialised=False)
    layers = [_record(own, measured) for own in planned]
    # Of a frozen last layer the output gradients alone are read.
    if plan.last is not None and plan.last.frozen:
        frozen: Any = layers[-1]
        nothing = jnp.zeros_like(frozen.output_gradients[..., :1])
        layers[-1] = lai.ReadoutTrace(nothing, frozen.output_gradients, name=frozen.name)
    if model.mapped:
        layers = [_drop_row(layer) for layer in layers]
    if plan.unread is None and isinstance(layers[-1], lai.ConvolutionTrace):
        layers[-1] = layers[-1].unfolded()  # LAI reads rows of output gradients
    whole: list[Record] = []
    if plan.materialised:
        uses = list(dict.fromkeys(use for own in plan.materialised.values() for use in own))
        leaves = list(plan.materialised)
        gradients = materialise_gradients(model, uses, leaves, measured.records, measured.cotangents)
        whole = [lai.GainTrace(None, gradients[leaf], name=model.names[leaf]) for leaf in leaves]
    found = [*layers[:-1], *whole, *layers[-1:]]
    if plan.unread is not None:  # LAI and LLI refuse a record of nothing, and Ghost adds it up to nothing
        found.append(
            lai.GainTrace(None, jnp.zeros((model.samples, 1), measured.losses.dtype), name="no last layer")
        )
    if model.real == model.samples:
        return found
    return [jax.tree.map(lambda array: array[: model.real], record) for record in found]


def records_leaves(plan: Plan) -> list[frozenset[int]]:
    """Return of each record of an `all` trace which parameters it explains."""
    layers = []
    for own in plan.records:
        weight = frozenset[int]() if own.seen_by_lai_alone else own.use.operand.leaves
        layers.append(weight | (own.bias.operand.leaves if own.bias else frozenset[int]()))
    whole = (frozenset((leaf,)) for leaf in plan.materialised)
    return [*layers[:-1], *whole, *layers[-1:]]


def _drop_row(record: Record) -> Record:
    """Drop a single position: the row of a batch of one, which has become an axis of its own."""
    if not isinstance(record, (lai.LayerTrace, lai.ReadoutTrace)):
        return record

    def row(array: Any) -> Any:
        return array[:, 0] if array.ndim == 3 and array.shape[1] == 1 else array

    return jax.tree.map(row, record)


def _record(planned: PlannedRecord, measured: Measured) -> Record:
    use = planned.use
    data: Any = measured.records[use.number]
    cotangent: Any = measured.cotangents.get(use.number)
    if planned.iteration is not None:
        data = data[planned.iteration]
        cotangent = None if cotangent is None else cotangent[planned.iteration]
    if use.kind == "gather":
        ids, read = table_arrays(use, data, cotangent)
        return lai.EmbeddingTrace(ids, read, rows=use.operand.shape[0], weight=planned.key, name=planned.name)
    if use.kind == "convolution":
        return _convolution(planned, data, cotangent)
    record_one = partial(dense_arrays, use)
    if planned.iteration is not None:
        activations, gradients = record_one(data, cotangent)
    else:  # iterations are positions side by side: `(iterations, n, [t,] d)` becomes `(n, positions, d)`
        loops = len(use.loops)
        flat = jax.tree.map(lambda array: array.reshape((-1, *array.shape[loops:])), (data, cotangent))
        activations, gradients = jax.tree.map(
            lambda array: jnp.moveaxis(array, 0, 1).reshape((array.shape[1], -1, array.shape[-1])),
            jax.vmap(record_one)(*flat),
        )
    kind = lai.LayerTrace
    if planned.seen_by_lai_alone:
        kind, activations, gradients = lai.ReadoutTrace, _real(activations), _real(gradients)
    elif planned.transposed:
        kind = TransposedTrace
    groups = prod(use.operand.shape[axis] for axis in product_axes(use).weight_groups)
    options: Any = {"bias": planned.biased, "weight": planned.key, "groups": groups, "name": planned.name}
    return kind(activations, gradients, **options)


def _convolution(planned: PlannedRecord, data: Any, cotangent: Any) -> Record:
    use, params = planned.use, planned.use.eqn.params
    numbers = params["dimension_numbers"]
    if planned.seen_by_lai_alone:  # its maps, pixel by pixel
        maps = _pixels(data, use.samples_in, numbers.lhs_spec)
        gradients = None if cotangent is None else _pixels(cotangent, use.samples_out, numbers.out_spec)
        return lai.ReadoutTrace(_real(maps), _real(gradients), bias=planned.biased, name=planned.name)
    return lai.ConvolutionTrace(
        jnp.transpose(data, numbers.lhs_spec),
        None if cotangent is None else jnp.transpose(cotangent, numbers.out_spec),
        kernel=tuple(use.operand.shape[axis] for axis in numbers.rhs_spec[2:]),
        stride=tuple(params["window_strides"]),
        padding=tuple((int(low), int(high)) for low, high in params["padding"]),
        dilation=tuple(params["rhs_dilation"]),
        groups=params["feature_group_count"],
        bias=planned.biased,
        weight=planned.key,
        name=planned.name,
    )


def _real(array: Any) -> Any:
    """Return complex features as twice as many real ones."""
    if array is None or not jnp.iscomplexobj(array):
        return array
    return jnp.stack([array.real, array.imag], -1).reshape((*array.shape[:-1], -1))


def _pixels(maps: jax.Array, samples: SampleAxis, spec: Sequence[int]) -> jax.Array:
    moved = jnp.moveaxis(samples.split(maps), spec[1] + 1, -1)
    return moved.reshape((samples.samples, -1, moved.shape[-1]))
