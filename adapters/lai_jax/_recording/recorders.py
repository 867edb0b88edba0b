"""From a model and its plan to what estimators score: a trace, or the trace of a chain with its gates."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core.estimators.gates import GateTrace, squared_column_norms
from lai_jax._program.evaluate import Wanted, run
from lai_jax._program.model import Model
from lai_jax._recording.arrays import product_axes
from lai_jax._recording.assemble import measure, records_of
from lai_jax._recording.chain import gates_of, links_of
from lai_jax._recording.plan import Plan

Valid = Callable[[Any], jax.Array | None]
"""From a batch's inputs to its mask `(n, t)`, not zero where a position counts; None: all count."""


def record_trace(model: Model, plan: Plan, *, everything: bool) -> tuple[jax.Array, lai.Trace]:
    """Run the model forward and back once; of `everything`, what Ghost needs, back through all of it."""
    measured = measure(model, plan, everything)
    return measured.losses[: model.real], lai.Trace(records_of(model, plan, measured, everything))


def record_gates(model: Model, plan: Plan) -> tuple[jax.Array, GateTrace]:
    """Run a chain of layers forward, and back to its last layer's output."""
    links = links_of(model, plan)  # raises unless it is a chain
    losses, trace = record_trace(model, plan, everything=False)
    values: dict[int, Any] = {}
    run(model.program, model.arguments, {}, Wanted(), values)  # compiled, the forward pass that is there
    gates, norms = tuple(gates_of(model, link, values) for link in links), []
    for link in links:
        axes = product_axes(link.after.use)
        weight = jnp.transpose(values[link.weight], (*axes.weight_outputs, *axes.weight_inputs))
        norms.append(squared_column_norms(weight.reshape((-1, weight.shape[-1]))))
    return losses, GateTrace(trace, gates, tuple(norms))


def mask_trace(trace: lai.Trace, valid: jax.Array | Valid | None, inputs: Any) -> lai.Trace:
    """Return a trace with the positions that count, those of a mask or of a function of the inputs."""
    mask: Any = valid(inputs) if callable(valid) else valid
    return trace if mask is None else lai.mask_positions(trace, mask != 0)
