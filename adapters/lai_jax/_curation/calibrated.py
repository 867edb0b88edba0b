"""LAI with layer weights that are calibrated on the model's own gradients."""

from dataclasses import replace

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core._adapters import computed_weight, layer_parts
from lai_core._adapters import fitted_weights as slopes
from lai_jax._curation.problem import Batch, Problem
from lai_jax._program.losses import batch_size, take
from lai_jax._recording.assemble import measure, records_of
from lai_jax._recording.plan import make_plan


def fitted_weights(problem: Problem, batch: Batch, *, positions: str, size: int) -> jax.Array:
    """Return each layer's slope of Ghost's part on LAI's, over pairs of different samples, `(L,)`.

    Fitted on at most `size` rows of the batch, at equal distances; those whose loss is not finite count
    for nothing. A layer's part of Ghost is that of its matrix and bias from this use alone; it is
    nothing for a frozen layer, whose weight is then 0.
    """
    samples = batch_size(batch[0])
    used = min(samples, max(size, 2))
    if used < 2:
        msg = "inputs: estimator 'calibrated_lai' is calibrated on at least two samples, got 1"
        raise ValueError(msg)
    chosen = take(batch, jnp.arange(used) * samples // used)
    model = problem.read(chosen)
    plan = replace(make_plan(model, problem.last, partial=True), materialised={})
    measured = measure(model, plan, everything=True)
    trace = problem.masked(lai.Trace(records_of(model, plan, measured, everything=True)), chosen)
    pairs = zip(plan.records, trace.layers, strict=True)
    layers = [(planned, record) for planned, record in pairs if planned.use.is_layer]
    finite = jnp.isfinite(measured.losses)
    counted = finite[:, None] & finite[None, :] & ~jnp.eye(used, dtype=bool)
    parts = []
    for planned, record in layers:
        if planned.materialised:
            raise computed_weight(planned.name)
        trains = not planned.use.frozen
        parts.append(layer_parts(record, layers[-1][1], positions, trains=trains))
    return slopes(parts, counted)
