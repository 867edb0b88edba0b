"""From a validation set to what a curated step scores against."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

import lai_core as lai
from lai_core._adapters import are_cheaper, fit_weights, layer_parts, make_weight_error, width_of
from lai_core.estimators.catalogue import find_estimator
from lai_jax._curation.meshes import automatic, explicit_sharding
from lai_jax._curation.options import (
    EstimatorName,
    check_carried,
    check_counts,
    check_taken,
    check_valid,
    find_scorer,
)
from lai_jax._curation.problem import Problem
from lai_jax._curation.rows import finite
from lai_jax._exact.validation_gradient import ValidationGradient
from lai_jax._program.losses import batch_size, check_targets, take
from lai_jax._recording.recorders import Valid, record_trace
from lai_jax.validation import Sketch, Validation


def summarize(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    estimator: EstimatorName = "lai",
    positions: str | None = None,
    sketch: Sketch | None = None,
    calibration: int = 32,
    chunk: int | None = None,
    parts: int | None = None,
    last: str | None = None,
    valid: Valid | None = None,
) -> Validation:
    """Trace a validation set and sum it up, for `curated_update` with the same estimator.

    Samples whose loss is not finite count for nothing. Works inside `jax.jit`.

    Parameters
    ----------
    apply, params, loss, inputs, targets, last
        As for `trace`.
    estimator
        `ghost`, `lai`, `lli`, `preconditioned_lai`, `gate_lai`, `calibrated_lai` or `exact`.
    positions
        What LAI's product means on layers with positions. None: `tokens` if every layer has the last
        layer's positions, else `mean`. Of `flatten` with positions there is no summary, and the set's
        trace is kept.
    sketch
        For `lai` and `calibrated_lai`: sketch the output gradients, here and in the step.
    calibration
        For `calibrated_lai`: on how many samples, at equal distances, the layer weights are fitted to
        Ghost; at least two.
    valid
        For LAI and its kin: a function of a batch's inputs that returns its mask `(n, t)`, not zero where a
        position counts. None: all positions count.
    chunk
        Trace at most so many samples at once, one chunk after the other in one program.
    parts
        Cut the validation set into so many parts, whose scores tell how far their sum can be off; the policy
        of the step is then called with all of them, as `lai_core.drop_harmful` is. 16 will do. None: it is
        not cut.

    Returns
    -------
    Validation
        The third argument of the step.

    Raises
    ------
    ValueError
        If an option is unknown or unfit, or as in `trace`, `trace_gates` or `lai_core.summarize`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: jnp.tanh(inputs @ params["w"]) @ params["o"]
    >>> params = {"w": jnp.ones((4, 8)), "o": jnp.ones((8, 50))}
    >>> loss = lambda outputs, targets: (outputs**2).sum(-1)
    >>> sketch = lai_jax.draw_sketch(jax.random.key(0), 50, 8)
    >>> found = lai_jax.summarize(apply, params, loss, jnp.ones((5, 4)), jnp.zeros(5), sketch=sketch)
    >>> [total.shape for total in found.side.totals[0]]
    [(8, 4), (8, 8)]
    """
    find_scorer(estimator)
    check_carried(estimator, sketch, None)
    check_valid(estimator, valid)
    if chunk is not None and parts is not None:
        msg = f"chunk: expected None beside parts={parts}, which are traced one after the other, got {chunk}"
        raise ValueError(msg)
    check_counts(calibration=calibration, chunk=chunk, parts=parts)
    check_taken(estimator, positions=positions, calibration=calibration, last=last)
    check_targets(inputs, targets)
    lies = explicit_sharding("summarize", (inputs, targets))

    def run(params: Any, inputs: Any, targets: Any) -> Validation:
        problem, batch = Problem(apply, params, loss, last, valid), (inputs, targets)
        how = Validation(None, sketch, positions=positions)

        def side_of(part: Any, counted: Any) -> Any:
            return find_scorer(estimator).side(problem, part, counted, how)

        if parts is not None:
            side = _sum_parts(side_of, batch, parts)
        elif chunk is None or chunk >= batch_size(inputs):
            side = side_of(batch, True)
        else:
            side = _sum_chunks(side_of, batch, chunk)
        weights, read = None, side.positions if isinstance(side, lai.ValidationSummary) else positions
        if find_estimator(estimator).fits_weights:
            weights = _fit_weights(problem, batch, positions=str(read), size=calibration)
        return Validation(side, sketch, weights, read if isinstance(side, lai.Trace) else None, parts)

    given = params, inputs, targets
    return run(*given) if lies is None else automatic(run, given, lies, PartitionSpec())


def _sum_parts(side_of: Callable[[Any, jax.Array], Any], batch: tuple[Any, Any], parts: int) -> Any:
    """Sum up parts whose sizes differ by one at most; the smaller are filled up with what does not count."""
    samples = batch_size(batch[0])
    if not 2 <= parts <= samples:
        msg = f"parts: expected a number from 2 to that of the validation samples ({samples}), got {parts}"
        raise ValueError(msg)
    ends = jnp.arange(parts + 1) * samples // parts
    places = ends[:-1, None] + jnp.arange(-(-samples // parts))

    def part(place_and_end: tuple[jax.Array, jax.Array]) -> Any:
        place, end = place_and_end
        side = side_of(take(batch, jnp.minimum(place, samples - 1)), place < end)
        if not isinstance(side, lai.ValidationSummary):
            msg = "parts: expected an estimator and positions that have a ValidationSummary; leave it out"
            raise ValueError(msg)
        return side

    return jax.lax.map(part, (places, ends[1:]))


def _sum_chunks(side_of: Callable[[Any, jax.Array], Any], batch: tuple[Any, Any], chunk: int) -> Any:
    """Add up chunks of one size; the last one is filled up with samples that do not count."""
    samples = batch_size(batch[0])
    places = jnp.arange(-(-samples // chunk) * chunk).reshape((-1, chunk))

    def part(place: jax.Array) -> Any:
        side = side_of(take(batch, jnp.minimum(place, samples - 1)), place < samples)
        if not isinstance(side, (lai.ValidationSummary, ValidationGradient)):
            msg = (
                "chunk: expected an estimator and positions that have a summary; the trace of every "
                "validation sample is kept for these, so leave it out"
            )
            raise ValueError(msg)
        return side

    form = jax.eval_shape(part, places[0])
    if isinstance(form, lai.ValidationSummary) and form.factored:
        factors: Any = form.totals[0]
        if are_cheaper(len(places) * factors[0].shape[0], factors[0].shape[1], width_of(factors)):
            parts = jax.lax.map(part, places)  # their summaries, along a first axis of every array
            factors, *rest = parts.totals
            whole = tuple(factor.reshape((-1, *factor.shape[2:])) for factor in factors)
            summed = (tuple(block.sum(0) for block in blocks) for blocks in rest)
            return replace(parts, totals=(whole, *summed), samples=parts.samples.sum())

    def sum_chunk(place: jax.Array) -> Any:
        side = part(place)
        return side.summed() if isinstance(side, lai.ValidationSummary) else side

    zeros = jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), jax.eval_shape(sum_chunk, places[0]))
    return jax.lax.scan(lambda sums, place: (sums + sum_chunk(place), None), zeros, places)[0]


def _fit_weights(problem: Problem, batch: tuple[Any, Any], *, positions: str, size: int) -> jax.Array:
    """Return each layer's slope of Ghost's part on LAI's, over pairs of different samples, `(L,)`."""
    # Fitted on at most `size` rows of the batch, at equal distances; those whose loss is not finite count
    # for nothing. A layer's part of Ghost is that of its matrix and bias from this use alone; it is nothing
    # for a frozen last layer, whose weight is then 0.
    samples = batch_size(batch[0])
    used = min(samples, max(size, 2))
    if used < 2:
        msg = "inputs: estimator 'calibrated_lai' is calibrated on at least two samples, got 1"
        raise ValueError(msg)
    chosen = take(batch, jnp.arange(used) * samples // used)
    model, plan = problem.plan_trace(chosen, everything=False)
    losses, trace = record_trace(model, plan, everything=True)
    trace = problem.masked(trace, chosen)
    pairs = zip(plan.records, trace.layers, strict=True)
    layers = [(planned, record) for planned, record in pairs if planned.use.is_layer]
    sound = jnp.isfinite(losses) & finite(trace)
    counted = sound[:, None] & sound[None, :] & ~jnp.eye(used, dtype=bool)
    parts = []
    for planned, record in layers:
        if planned.materialised:
            raise make_weight_error(planned.name)
        parts.append(layer_parts(record, layers[-1][1], positions, trains=not planned.use.frozen))
    return fit_weights(parts, counted)
