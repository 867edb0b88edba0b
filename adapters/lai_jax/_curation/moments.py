"""The running second moment of preconditioned LAI: moved by a batch's sound samples."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_jax._curation.rows import finite, zero_out


@dataclass(frozen=True)
class Moment:
    """The running second moment of preconditioned LAI, and how it moves and acts."""

    previous: Any
    decay: float
    exponent: float
    scale_inputs: bool = False


def update_moment(
    moment: Moment, gradients: jax.Array, sound: jax.Array, valid: jax.Array | None
) -> jax.Array:
    """Return the next second moment, of the samples that are sound; the previous one if there is none."""
    if moment.previous is None:
        msg = "second_moment: expected an array (d_L,) for 'preconditioned_lai', zeros at first, got None"
        raise ValueError(msg)
    sound = sound & finite(gradients)
    count, samples = sound.sum(), gradients.shape[0]
    # lai_core takes the mean of g^2 over all n samples. With zeros for the unsound ones that is count / n
    # times the mean over the others, which the square of sqrt(n / count) undoes.
    # Of a mask, the positions of unsound samples go instead.
    scale = jnp.sqrt(samples / jnp.maximum(count, 1)).astype(gradients.dtype)
    counted = zero_out(gradients, sound)
    if valid is None:
        moved = lai.update_second_moment(moment.previous, scale * counted, decay=moment.decay)
    else:
        valid = valid & sound[:, None]
        moved = lai.update_second_moment(moment.previous, counted, decay=moment.decay, valid=valid)
    return jnp.where(count > 0, moved, moment.previous)


def update_moments(moment: Moment, trace: lai.Trace, sound: jax.Array) -> tuple[jax.Array, Any]:
    """Return the next second moments of output gradients, and of each layer's inputs if these are scaled."""
    last = trace.layers[-1]
    gradients: Any = last.output_gradients
    if not moment.scale_inputs:
        return update_moment(moment, gradients, sound, last.readout_positions), None

    def move(before: Any, read: Any, layer: lai.Record) -> Any:
        if read is None:
            return None
        start = jnp.zeros(read.shape[-1], read.dtype) if before is None else before
        return update_moment(replace(moment, previous=start), read, sound, layer.readout_positions)

    reads = [layer.readout_input(jnp) for layer in trace.layers]
    outputs, inputs = moment.previous or (None, [None] * len(reads))
    return move(outputs, gradients, last), tuple(map(move, inputs, reads, trace.layers))
