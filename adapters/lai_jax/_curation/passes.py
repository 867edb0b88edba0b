"""The passes of a step: one forward pass that scores and trains, or another one for training.

Both give a way back: a function from the weights, and from the rows to run back on, to the gradient of
`sum_j weights_j loss_j` with respect to the trainable leaves. Of rows that are not among these all weights
are 0; None: all rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_jax._curation.problem import Batch, Problem
from lai_jax._curation.rows import fill_rows, put_stand_ins
from lai_jax._curation.selective_pass import REFUSED, cut_back, run_back
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.leaves import check_finite
from lai_jax._program.losses import arrays_of, is_batched, losses_of_leaves, take
from lai_jax._program.trial import keep_apart
from lai_jax._recording.assemble import Measured, records_of
from lai_jax._recording.recorders import record_trace

Back = Callable[[jax.Array, jax.Array | None], list[jax.Array]]


class Recorded(NamedTuple):
    """What a forward pass gives to be scored."""

    losses: jax.Array  # `(n,)`
    trace: Any  # of the batch


def run_shared(problem: Problem, batch: Batch, *, everything: bool) -> tuple[Recorded, Back]:
    """Run forward once for scoring and training."""
    model, plan = problem.plan_trace(batch, everything=everything)
    moving = [jnp.asarray(model.parameters[leaf]) for leaf in model.trainable]
    last = None if everything else plan.last
    losses, vjp, records = run_back(model, last, moving, model.data)
    if everything:  # takes a backward pass of its own
        trace = record_trace(model, plan, everything=True)[1]
    else:
        measured = Measured(losses, records, vjp(jnp.ones_like(losses))[1])
        trace = lai.Trace(records_of(model, plan, measured, everything=False))

    def back(weights: jax.Array, best: jax.Array | None) -> list[jax.Array]:
        again = partial(weigh_gradient, problem, batch, weights)
        if model.mapped:  # not the batch's own program, which it is at these numbers alone
            return again(best)
        if best is not None and max(best.shape[0], 2) < model.samples:  # one row is read as two copies
            small = problem.read(take(batch, slice(best.shape[0])))
            chosen, own = fill_rows(weights, best, small.samples)
            return cut_back(model, small, last, moving, vjp, chosen, own, problem.spread)
        padded = jnp.concatenate([weights, jnp.zeros(model.samples - model.real, weights.dtype)])
        found = list(vjp(padded.astype(losses.dtype))[0])
        # A sample of weight 0 whose residuals are not finite leaves 0 * inf = NaN in every gradient. Then,
        # and only then, the batch is run again with another sample in its place.
        return jax.lax.cond(check_finite(found), lambda: found, lambda: again(None))

    return Recorded(losses[: model.real], problem.masked(trace, batch)), back


def weigh_gradient(
    problem: Problem, batch: Batch, weights: jax.Array, best: jax.Array | None
) -> list[jax.Array]:
    """Return the gradient of the weighted losses of the best rows, run forward once more; None: of all."""
    moving, losses = losses_of_leaves(problem.apply, problem.loss, problem.params)
    if best is None or best.shape == weights.shape:
        rows, own = put_stand_ins(batch, weights), weights
    else:
        arrays, restored = arrays_of(batch)
        # fewer rows are another batch, in which a sample has to be what it is in this one
        if not keep_apart(
            lambda at, own: losses([*at], restored([*own])), range(len(moving)), moving, arrays
        ):
            msg = (
                f"{REFUSED}apply or loss computes something else for a sample alone, as if divided by the "
                "batch's size or masked by a row's number; leave out rows"
            )
            raise UnexplainedError(msg)
        chosen, own = fill_rows(weights, best, best.shape[0])
        spread = problem.spread
        rows = jax.tree.map(lambda leaf: spread(leaf) if is_batched(leaf) else leaf, take(batch, chosen))

    def total(values: list[jax.Array]) -> jax.Array:
        found = losses(values, rows)
        return jnp.sum(own.astype(found.dtype) * found)

    return jax.grad(total)(moving)
