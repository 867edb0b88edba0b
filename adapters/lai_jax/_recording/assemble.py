"""From a program, its plan and one run of it to the records of a trace."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core import Record
from lai_jax._program.evaluate import Records, run, zero_nudges
from lai_jax._program.model import Model
from lai_jax._program.program import Site
from lai_jax._program.sample_axis import split
from lai_jax._recording.arrays import convolution_arrays, dense_arrays, number_of_groups, table_arrays
from lai_jax._recording.parameters import built_gradients
from lai_jax._recording.plan import Plan
from lai_jax._recording.records import TransposedTrace
from lai_jax._recording.uses import Use


@dataclass(frozen=True)
class Measured:
    """What one run of the program gave.

    Parameters
    ----------
    losses
        `(n,)`.
    records
        The batched inputs of sites.
    cotangents
        The output gradients of sites.
    """

    losses: jax.Array
    records: Records
    cotangents: Records


def measure(model: Model, plan: Plan, everything: bool) -> Measured:
    """Run the program once, and back to the last layer's output, or to the outputs of `everything`."""
    sites = model.program.sites()
    nudged = [plan.uses[-1].site]
    recorded = [site for site in sites if site.is_layer]
    if everything:
        biases = {use.site.bias for use in plan.uses if use.bias}
        nudged = [site for site in sites if site not in biases]
        recorded = [site for site in sites if site.kind != "lift"]
    keys: list[Site] = []

    def losses(nudges: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        own = dict(zip(nudged, nudges, strict=True))
        (values,), records = run(model.program, model.arguments, own, frozenset(recorded))
        keys[:] = list(records)
        return values, list(records.values())

    zeros = list(zero_nudges(nudged, model.samples).values())
    values, pull, kept = jax.vjp(losses, zeros, has_aux=True)
    (gradients,) = pull(jnp.ones_like(values))
    records, cotangents = dict(zip(keys, kept, strict=True)), dict(zip(nudged, gradients, strict=True))
    return Measured(values, records, cotangents)


def records_of(model: Model, plan: Plan, measured: Measured, everything: bool) -> list[Record]:
    """Return the records of a trace, the last layer's at the end."""
    layers = [_record(model, use, measured) for use in plan.uses if everything or use.site.is_layer]
    if isinstance(layers[-1], lai.ConvolutionTrace):  # LAI reads rows of output gradients
        layers[-1] = layers[-1].unfolded()
    built: list[Record] = []
    if everything and plan.built:
        sites = list(dict.fromkeys(site for own in plan.built.values() for site in own))
        leaves = list(plan.built)
        gradients = built_gradients(model, sites, leaves, measured.records, measured.cotangents)
        built = [lai.GainTrace(None, gradients[leaf], name=model.names[leaf]) for leaf in leaves]
    found = [*layers[:-1], *built, layers[-1]]
    if model.real == model.samples:
        return found
    return [_first(record, model.real) for record in found]


def records_leaves(plan: Plan) -> list[frozenset[int]]:
    """Return of each record of an `all` trace which parameters it explains."""
    layers = []
    for use in plan.uses:
        own = frozenset[int]() if use.built or use.site.frozen else use.site.operand.leaves
        bias = use.site.bias.operand.leaves if use.bias and use.site.bias is not None else frozenset[int]()
        layers.append(own | bias)
    return [*layers[:-1], *(frozenset((leaf,)) for leaf in plan.built), layers[-1]]


def _first(record: Record, samples: int) -> Record:
    """Keep the first samples of a record."""
    return jax.tree.map(lambda array: array[:samples], record)


def _record(model: Model, use: Use, measured: Measured) -> Record:
    site, samples = use.site, model.samples
    data: Any = measured.records[site]
    cotangent: Any = measured.cotangents.get(site)
    if use.iteration is not None:
        data = data[use.iteration]
        cotangent = None if cotangent is None else cotangent[use.iteration]
    if site.kind == "gather":
        ids, read = table_arrays(site, data, cotangent, samples)
        return lai.EmbeddingTrace(ids, read, rows=site.operand.shape[0], weight=use.key, name=use.name)
    if site.kind == "convolution":
        return _convolution(use, data, cotangent, samples)
    return _dense(use, *_dense_arrays(use, data, cotangent, samples))


def _dense_arrays(use: Use, data: Any, cotangent: Any, samples: int) -> tuple[Any, Any]:
    """Return activations and output gradients; iterations that are positions side by side."""

    def one(batch: Any, gradients: Any) -> tuple[Any, Any]:
        return dense_arrays(use.site, batch, gradients, samples)

    if use.iteration is not None:
        return one(data, cotangent)
    loops = len(use.site.loops)
    flat = data.reshape((-1, *data.shape[loops:]))
    if cotangent is None:
        stacked = jax.vmap(lambda batch: one(batch, None)[0])(flat), None
    else:
        stacked = jax.vmap(one)(flat, cotangent.reshape((-1, *cotangent.shape[loops:])))
    return tuple(  # type: ignore[return-value]  # two arrays
        None if array is None else jnp.moveaxis(array, 0, 1).reshape((samples, -1, array.shape[-1]))
        for array in stacked
    )


def _dense(use: Use, activations: Any, gradients: Any) -> Record:
    kind = lai.LayerTrace
    if use.built or use.site.frozen:
        kind = lai.ReadoutTrace
    elif use.transposed:
        kind = TransposedTrace
    return kind(
        activations,
        gradients,
        bias=use.bias,
        weight=use.key,
        groups=number_of_groups(use.site),
        name=use.name,
    )


def _convolution(use: Use, data: Any, cotangent: Any, samples: int) -> Record:
    site, params = use.site, use.site.eqn.params
    if use.built or site.frozen:
        return _unfolded(use, data, cotangent, samples)
    maps, gradients = convolution_arrays(site, data, cotangent)
    spec = params["dimension_numbers"].rhs_spec
    return lai.ConvolutionTrace(
        maps,
        gradients,
        kernel=tuple(site.operand.shape[axis] for axis in spec[2:]),
        stride=tuple(params["window_strides"]),
        padding=tuple((int(low), int(high)) for low, high in params["padding"]),
        dilation=tuple(params["rhs_dilation"]),
        groups=params["feature_group_count"],
        bias=use.bias,
        weight=use.key,
        name=use.name,
    )


def _unfolded(use: Use, data: Any, cotangent: Any, samples: int) -> Record:
    """Record a convolution for LAI alone: its maps, pixel by pixel."""
    numbers = use.site.eqn.params["dimension_numbers"]
    rows = ((data, use.site.rows, numbers.lhs_spec), (cotangent, use.site.output_rows, numbers.out_spec))
    pixels = []
    for array, own, spec in rows:
        moved = None if array is None else jnp.moveaxis(split(array, own, samples), spec[1] + 1, -1)
        pixels.append(None if moved is None else moved.reshape((samples, -1, moved.shape[-1])))
    return lai.ReadoutTrace(pixels[0], pixels[1], name=use.name)
