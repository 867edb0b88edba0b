"""LAI with layer weights that are calibrated on the model's own gradients."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core.calibration import block_weights
from lai_jax._program.losses import batch_size, take
from lai_jax._program.model import read
from lai_jax._recording.assemble import measure, records_of
from lai_jax._recording.plan import make_plan
from lai_jax._recording.uses import Use


def fitted_weights(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    batch: tuple[Any, Any],
    *,
    positions: str,
    size: int,
    last: str | None,
) -> jax.Array:
    """Return each layer's slope of Ghost's part on LAI's, over pairs of different samples, `(L,)`.

    Fitted on at most `size` rows of the batch, at equal distances; those whose loss is not finite count
    for nothing. A layer's part of Ghost is that of its matrix and bias from this use alone; it is
    nothing for a frozen layer, whose weight is then 0.

    Raises
    ------
    ValueError
        If the batch has one sample, or a layer's weight is computed from parameters.
    """
    samples = batch_size(batch[0])
    used = min(samples, max(size, 2))
    if used < 2:
        msg = "inputs: estimator 'calibrated_lai' is calibrated on at least two samples, got 1"
        raise ValueError(msg)
    index = jnp.arange(used) * samples // used
    inputs, targets = take(batch, index)
    model = read(apply, params, loss, inputs, targets)
    plan = replace(make_plan(model, last, partial=True), built={})
    measured = measure(model, plan, everything=True)
    pairs = zip(plan.uses, records_of(model, plan, measured, everything=True), strict=True)
    layers = [(use, record) for use, record in pairs if use.site.is_layer]
    parts = [_parts(use, record, layers[-1][1], positions) for use, record in layers]
    finite = jnp.isfinite(measured.losses)
    counted = finite[:, None] & finite[None, :] & ~jnp.eye(used, dtype=bool)
    ours, ghost = (jnp.stack([jnp.where(counted, part[side], 0.0) for part in parts]) for side in (0, 1))
    return block_weights(ours, ghost)


def _parts(use: Use, record: Any, last: Any, positions: str) -> tuple[jax.Array, jax.Array]:
    """Return one layer's part of LAI's kernel, and of Ghost's.

    Raises
    ------
    ValueError
        If the layer's weight is computed from parameters.
    """
    alone = record is last
    pair = lai.Trace([last] if alone else [record, last])
    ours = lai.lai_kernel(pair, pair, positions=positions, layer_weights=[1.0] if alone else [1.0, 0.0])
    if use.site.frozen:
        return ours, jnp.zeros_like(ours)
    if use.built:
        msg = (
            f"estimator: 'calibrated_lai' expects layers whose weight is a parameter, {use.name!r} has one "
            "that is computed from others or used in several ways; use estimator='lai', which weighs all "
            "layers alike, or 'ghost'"
        )
        raise ValueError(msg)
    single = lai.Trace([record])
    return ours, lai.ghost_kernel(single, single)
