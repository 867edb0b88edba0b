"""The validation side of a curated step: what samples are scored against, as one pytree."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_jax._curation.calibrated import fitted_weights
from lai_jax._curation.options import check_carried, check_counts, check_estimator
from lai_jax._exact.validation_gradient import ValidationGradient, validation_gradient
from lai_jax._program.model import batch_size, check_targets, is_batched, read
from lai_jax._recording.assemble import measure, records_of
from lai_jax._recording.chain import links_of
from lai_jax._recording.plan import make_plan
from lai_jax.gates import gated, measured_chain
from lai_jax.sketch import Sketch


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["side", "sketch", "layer_weights"],
    meta_fields=["positions"],
)
@dataclass(frozen=True)
class Validation:
    """What a curated step scores against; a pytree, as `summarize` makes it or put together by hand.

    Attributes
    ----------
    side
        A `ValidationSummary`; a `Trace` where there is no summary; a `GateTrace` for `gate_lai`; the
        summed gradient for `exact`. Sketched if there is a sketch.
    sketch
        With which the step sketches its own side.
    layer_weights
        `(L,)`: by which LAI weighs the layers; None: all 1.
    positions
        How to read positions where `side` is a `Trace`.
    """

    side: Any
    sketch: Sketch | None = None
    layer_weights: jax.Array | None = None
    positions: str | None = None


def summarize(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    estimator: str = "lai",
    positions: str | None = None,
    sketch: Sketch | None = None,
    calibration: int = 32,
    chunk: int | None = None,
    last: str | None = None,
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
    chunk
        Trace at most so many samples at once, one chunk after the other in one program.

    Returns
    -------
    Validation
        The third argument of the step.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
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
    check_estimator(estimator)
    check_carried(estimator, sketch, None)
    check_counts(calibration=calibration, chunk=chunk)
    check_targets(inputs, targets)
    samples = batch_size(inputs)
    batch = (inputs, targets)

    def one(own: tuple[Any, Any], counted: Any) -> tuple[Any, str | None]:
        return _side(apply, params, loss, own, counted, estimator, positions, sketch, last)

    if chunk is None or chunk >= samples:
        side, meaning = one(batch, True)
    else:
        side, meaning = _in_chunks(one, batch, samples, chunk)
    if estimator != "calibrated_lai":
        return Validation(side, sketch, positions=meaning if isinstance(side, lai.Trace) else None)
    weights = fitted_weights(apply, params, loss, batch, positions=str(meaning), size=calibration, last=last)
    return Validation(side, sketch, weights, meaning if isinstance(side, lai.Trace) else None)


def _side(
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
        measured, slots = measured_chain(model, plan)
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


def _in_chunks(one: Any, batch: tuple[Any, Any], samples: int, chunk: int) -> tuple[Any, str | None]:
    """Add up chunks of one size; the last one is filled up with samples that do not count."""
    meanings: list[str | None] = []
    places = jnp.arange(-(-samples // chunk) * chunk).reshape((-1, chunk))

    def part(place: jax.Array) -> Any:
        index = jnp.minimum(place, samples - 1)
        own = jax.tree.map(lambda leaf: leaf[index] if is_batched(leaf) else leaf, batch)
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
