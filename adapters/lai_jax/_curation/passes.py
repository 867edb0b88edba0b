"""Which passes a step makes: one forward pass for scoring and training, or one for each.

Every pass has one shape: `forward(batch)` returns what is scored, and after it `backward(weights)` the
gradient of the weighted losses of the same batch.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from lai_jax._curation.problem import Batch, Problem
from lai_jax._curation.rows import count_of, heaviest, with_stand_ins
from lai_jax._curation.selective_pass import chosen_gradient, losses_of_leaves
from lai_jax._exact.directional import directional_derivatives
from lai_jax._program.leaves import all_finite, moving_leaves
from lai_jax._program.losses import check_targets, is_batched, take
from lai_jax._program.tail import tail_of
from lai_jax._recording.assemble import Measured, measure
from lai_jax._recording.plan import Plan
from lai_jax._recording.recorders import Recorder


@dataclass(frozen=True)
class Recorded:
    """What a forward pass gives to be scored.

    Parameters
    ----------
    losses
        `(n,)`.
    trace
        What the recorder made of the batch.
    plan
        Which parameters the trace explains, and as what.
    """

    losses: jax.Array
    trace: Any
    plan: Plan


class Pass(Protocol):
    """Runs one batch forward, and back once its samples have weights."""

    def forward(self, batch: Batch) -> Any:
        """Return what is scored."""

    def backward(self, weights: jax.Array) -> list[jax.Array]:
        """Return the gradient of `sum_j weights_j loss_j` with respect to the trainable leaves."""


class SharedPass:
    """One forward pass for scoring and training.

    Parameters
    ----------
    problem
        What is trained.
    recorder
        What of the batch is scored.
    rows
        Run back on so many rows at most, a number or a share; None: on all.
    """

    def __init__(self, problem: Problem, recorder: Recorder, rows: int | float | None) -> None:
        self.problem, self.recorder, self.rows = problem, recorder, rows

    def forward(self, batch: Batch) -> Recorded:
        """Run forward, keep the residuals, and record."""
        self.batch = batch
        everything = self.recorder.everything
        self.model, plan = self.problem.planned(batch, everything=everything)
        model = self.model
        self.moving = [jnp.asarray(model.parameters[leaf]) for leaf in model.trainable]
        use = None if everything else plan.last
        tail = None if use is None else tail_of(model.program, use)
        layers = frozenset(own.number for own in model.program.uses() if own.is_layer)
        slots = (*self.recorder.slots(model, plan), *(tail.slots if tail else ()))
        self.losses, self.vjp, (records, values) = jax.vjp(
            lambda leaves: losses_of_leaves(model, leaves, model.data, layers, slots),
            self.moving,
            has_aux=True,
        )
        if everything:  # takes a backward pass of its own
            trace = self.recorder.run(model, plan)[1]
            return Recorded(self.losses[: model.real], self.problem.masked(trace, batch), plan)
        if use is None or tail is None:  # the last layer is inside a loop or branch: differentiate from there
            measured = measure(model, plan, everything=False)
        else:
            measured = Measured(self.losses, records, {use.number: tail.output_gradients(values)})
        trace = self.recorder.recorded(model, plan, measured, values)
        return Recorded(self.losses[: model.real], self.problem.masked(trace, batch), plan)

    def backward(self, weights: jax.Array) -> list[jax.Array]:
        """Run back on the rows that are kept, through what the forward pass left."""
        model, samples = self.model, self.model.samples
        if model.mapped:  # not the batch's own program, which it is at these numbers alone
            count = weights.shape[0] if self.rows is None else count_of(self.rows, weights.shape[0])
            return weighted_gradient(self.problem, self.batch, weights, count)
        weights = weights.astype(self.losses.dtype)
        if self.rows is not None and model.real == samples:
            count = count_of(self.rows, samples)
            small = self.problem.read(take(self.batch, slice(count)))
            chosen, own = heaviest(weights, count, small.samples)
            return chosen_gradient(model, small, self.vjp, self.moving, chosen, own, self.problem.spread)
        padded = jnp.concatenate([weights, jnp.zeros(samples - model.real, weights.dtype)])
        gradients = list(self.vjp(padded)[0])
        # A sample of weight 0 whose residuals are not finite leaves 0 * inf = NaN in every gradient. Then,
        # and only then, the batch is run again with another sample in its place.
        return jax.lax.cond(
            all_finite(gradients),
            lambda: gradients,
            lambda: weighted_gradient(self.problem, self.batch, weights, model.real),
        )


class SeparatePass:
    """One forward pass for scoring, another one for training on the rows that are kept.

    Parameters
    ----------
    problem, recorder, rows
        As for `SharedPass`.
    """

    def __init__(self, problem: Problem, recorder: Recorder, rows: int | float | None) -> None:
        self.problem, self.recorder, self.rows = problem, recorder, rows

    def forward(self, batch: Batch) -> Recorded:
        """Run forward, and record."""
        self.batch = batch
        model, plan = self.problem.planned(batch, everything=self.recorder.everything)
        losses, trace = self.recorder.run(model, plan)
        return Recorded(losses, self.problem.masked(trace, batch), plan)

    def backward(self, weights: jax.Array) -> list[jax.Array]:
        """Run the rows that are kept forward and back."""
        count = weights.shape[0] if self.rows is None else count_of(self.rows, weights.shape[0])
        return weighted_gradient(self.problem, self.batch, weights, count)


class DirectionalPass(SeparatePass):
    """Scores by derivatives along a direction: no trace, any architecture.

    Parameters
    ----------
    problem, rows
        As for `SharedPass`.
    """

    def __init__(self, problem: Problem, rows: int | float | None) -> None:
        self.problem, self.rows = problem, rows

    def forward(self, batch: Batch) -> Any:
        """Return the function from a direction to every loss, and its derivative along the direction."""
        check_targets(*batch)
        self.batch = batch
        moving, restored = moving_leaves(self.problem.params)

        def losses(values: list[jax.Array], batch: Batch) -> jax.Array:
            return self.problem.losses(restored(values), batch)

        return lambda direction: directional_derivatives(losses, moving, batch, direction)


def weighted_gradient(problem: Problem, batch: Batch, weights: jax.Array, count: int) -> list[jax.Array]:
    """Return the gradient of the weighted losses of the `count` heaviest rows, run forward once more."""
    if count == weights.shape[0]:
        rows, own = with_stand_ins(batch, weights), weights
    else:
        chosen, own = heaviest(weights, count, count)
        spread = problem.spread
        rows = jax.tree.map(lambda leaf: spread(leaf) if is_batched(leaf) else leaf, take(batch, chosen))
    moving, restored = moving_leaves(problem.params)

    def weighted(values: list[jax.Array]) -> jax.Array:
        losses = problem.losses(restored(values), rows)
        return jnp.sum(own.astype(losses.dtype) * losses)

    return jax.grad(weighted)(moving)
