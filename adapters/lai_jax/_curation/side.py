"""The validation side of a step: traced, and summed up where there is a summary."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_jax._exact.validation_gradient import ValidationGradient, validation_gradient
from lai_jax._program.losses import take
from lai_jax._program.model import read
from lai_jax._recording.assemble import measure, records_of
from lai_jax._recording.chain import links_of
from lai_jax._recording.gates import gated, measure_chain
from lai_jax._recording.plan import make_plan
from lai_jax.sketch import Sketch


def side_of(
    apply: Any,
    params: Any,
    loss: Any,
    batch: tuple[Any, Any],
    counted: Any,
    estimator: str,
    positions: str | None,
    sketch: Sketch | None,
    last: str | None,
) -> tuple[Any, str | None]:
    """Return what some samples are as a side, those not `counted` left out, and how positions are read."""
    if estimator == "exact":
        return validation_gradient(apply, params, loss, batch, counted), None
    model = read(apply, params, loss, *batch)
    plan = make_plan(model, last)
    if estimator == "gate_lai":
        links = links_of(model, plan)
        measured, slots = measure_chain(model, plan)
        chain = gated(model, plan, measured, links, slots)
        counted = counted & jnp.isfinite(measured.losses[: model.real])
        trace, gates = _counted((chain.trace, chain.gates), counted)
        return replace(chain, trace=trace, gates=gates), None
    measured = measure(model, plan, estimator == "ghost")
    trace = lai.Trace(records_of(model, plan, measured, estimator == "ghost"))
    counted = counted & jnp.isfinite(measured.losses[: model.real])
    trace = _counted(trace, counted)
    if estimator in ("ghost", "lli"):
        return replace(lai.summarize(trace, estimator), samples=counted.sum()), None
    if positions is None:
        positions = "tokens" if "tokens" in lai.fitting_positions(trace) else "mean"
    gradients: Any = trace.layers[-1].output_gradients
    sketched = trace if sketch is None else sketch(trace)
    if positions == "flatten" and gradients.ndim == 3:
        return sketched, positions
    kind = "lai" if estimator == "calibrated_lai" else estimator
    return replace(lai.summarize(sketched, kind, positions=positions), samples=counted.sum()), positions


def _counted(tree: Any, counted: jax.Array) -> Any:
    """Put zeros in the place of samples that do not count: of these every product is 0."""

    def each(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jnp.where(counted.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, jnp.zeros((), leaf.dtype))

    return jax.tree.map(each, tree)


def side_in_chunks(one: Any, batch: tuple[Any, Any], samples: int, chunk: int) -> tuple[Any, str | None]:
    """Add up chunks of one size; the last one is filled up with samples that do not count."""
    meanings: list[str | None] = []
    places = jnp.arange(-(-samples // chunk) * chunk).reshape((-1, chunk))

    def part(place: jax.Array) -> Any:
        index = jnp.minimum(place, samples - 1)
        own = take(batch, index)
        side, meaning = one(own, place < samples)
        meanings.append(meaning)
        if not isinstance(side, (lai.ValidationSummary, ValidationGradient)):
            msg = (
                "chunk: expected an estimator and positions that have a summary; the trace of every "
                "validation sample is kept for these, so leave it out"
            )
            raise ValueError(msg)
        return side

    zeros = jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), jax.eval_shape(part, places[0]))
    total, _ = jax.lax.scan(lambda sums, place: (sums + part(place), None), zeros, places)
    return total, meanings[0]
