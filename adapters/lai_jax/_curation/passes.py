"""Which passes a step makes: one forward pass for scoring and training, or one for each.

Every pass has one shape: `forward(batch)` returns what is scored, and after it `backward(weights)` the
gradient of `sum_j weights_j loss_j` of the same batch with respect to the trainable leaves. `best` are the
rows to run back on, without which all weights are 0; None: all rows.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._curation.problem import Batch, Problem
from lai_jax._curation.rows import count_of, weighted, with_stand_ins
from lai_jax._curation.selective_pass import WayBack, value_of_leaves, weighted_rows
from lai_jax._exact.directional import directional_derivatives
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.leaves import all_finite
from lai_jax._program.losses import check_targets, is_batched, losses_of_leaves, take
from lai_jax._program.tail import last_part, tail_of
from lai_jax._recording.assemble import Measured, measure
from lai_jax._recording.plan import Plan
from lai_jax._recording.recorders import Recorder


@dataclass(frozen=True)
class Recorded:
    """What a forward pass gives to be scored."""

    losses: jax.Array  # `(n,)`
    trace: Any  # what the recorder made of the batch
    plan: Plan  # which parameters the trace explains, and as what


class SharedPass:
    """One forward pass for scoring, by what a recorder keeps, and training."""

    def __init__(self, problem: Problem, recorder: Recorder) -> None:
        self.problem, self.recorder = problem, recorder

    def forward(self, batch: Batch) -> Recorded:
        """Run forward, keep the residuals, and record."""
        self.batch = batch
        everything = self.recorder.everything
        self.model, plan = self.problem.planned(batch, everything=everything)
        model = self.model
        self.moving = [jnp.asarray(model.parameters[leaf]) for leaf in model.trainable]
        use = None if everything else plan.last
        tail = None if use is None else tail_of(model.program, use)
        # The gradients from which the recording is made are where the way back can begin as well: what the
        # loss does to the outputs is run back once, for both.
        part = None if tail is None else last_part(model.program, tail, model.trainable)
        self.end = model.program.outputs[0] if part is None else part.start
        layers = frozenset(own.number for own in model.program.uses() if own.is_layer)
        slots = [*self.recorder.slots(model, plan)]
        for each in (tail, part):
            slots += [] if each is None else each.slots
        value, self.vjp, (losses, records, values) = jax.vjp(
            lambda leaves: value_of_leaves(model, leaves, model.data, self.end, layers, slots),
            self.moving,
            has_aux=True,
        )
        self.gradients = jnp.ones_like(value) if part is None else part.pulled_back(values)
        if everything:  # takes a backward pass of its own
            trace = self.recorder.run(model, plan)[1]
            return Recorded(losses[: model.real], self.problem.masked(trace, batch), plan)
        if use is None or tail is None:  # the last layer is inside a loop or branch: differentiate from there
            measured = measure(model, plan, everything=False)
        else:
            gradients = tail.ended(self.end).pulled_back(values, self.gradients)
            measured = Measured(losses, records, {use.number: gradients})
        trace = self.recorder.recorded(model, plan, measured, values)
        return Recorded(losses[: model.real], self.problem.masked(trace, batch), plan)

    def backward(self, weights: jax.Array, best: jax.Array | None) -> list[jax.Array]:
        """Run back on the rows that are kept, through what the forward pass left."""
        model, samples = self.model, self.model.samples
        if model.mapped:  # not the batch's own program, which it is at these numbers alone
            return weighted_gradient(self.problem, self.batch, weights, best)
        if best is not None and model.real == samples:
            way = self.way_back(best.shape[0])
            chosen, own = weighted(weights, best, way.small.samples)
            return way.gradient(self.vjp, self.gradients, chosen, own, self.problem.spread)
        padded = jnp.concatenate([weights, jnp.zeros(samples - model.real, weights.dtype)])
        where = model.program.values[self.end].where
        gradients = list(self.vjp(weighted_rows(self.gradients, where, padded))[0])
        # A sample of weight 0 whose residuals are not finite leaves 0 * inf = NaN in every gradient. Then,
        # and only then, the batch is run again with another sample in its place.
        return jax.lax.cond(
            all_finite(gradients),
            lambda: gradients,
            lambda: weighted_gradient(self.problem, self.batch, weights, None),
        )

    def way_back(self, rows: int) -> WayBack:
        """Return the way back for so many rows, after `forward`."""
        small = self.problem.read(take(self.batch, slice(rows)))
        return WayBack(self.model, small, self.moving, self.end)

    def leaves_little(self, rows: int) -> bool:
        """Whether the residuals take no more memory than the gradient, and so many rows can be run back."""
        if self.model.mapped or self.model.real != self.model.samples:
            return False
        try:
            residuals = self.way_back(rows).bytes
        except UnexplainedError:
            return False
        return residuals <= sum(leaf.size * leaf.dtype.itemsize for leaf in self.moving)


class SeparatePass:
    """One forward pass for scoring, another one for training on the rows that are kept."""

    def __init__(self, problem: Problem, recorder: Recorder) -> None:
        self.problem, self.recorder = problem, recorder

    def forward(self, batch: Batch) -> Recorded:
        """Run forward, and record."""
        self.batch = batch
        model, plan = self.problem.planned(batch, everything=self.recorder.everything)
        losses, trace = self.recorder.run(model, plan)
        return Recorded(losses, self.problem.masked(trace, batch), plan)

    def backward(self, weights: jax.Array, best: jax.Array | None) -> list[jax.Array]:
        """Run the rows that are kept forward and back."""
        return weighted_gradient(self.problem, self.batch, weights, best)


class ThriftyPass:
    """One forward pass if what it leaves takes no more memory than the gradient will, otherwise two."""

    def __init__(self, problem: Problem, recorder: Recorder, rows: int | float) -> None:
        self.problem, self.recorder, self.rows = problem, recorder, rows

    def forward(self, batch: Batch) -> Recorded:
        """Run forward, and record."""
        shared = SharedPass(self.problem, self.recorder)
        recorded = shared.forward(batch)
        self.chosen: SharedPass | SeparatePass = shared
        if not shared.leaves_little(count_of(self.rows, recorded.losses.shape[0])):
            self.chosen = SeparatePass(self.problem, self.recorder)
            recorded = self.chosen.forward(batch)
        return recorded

    def backward(self, weights: jax.Array, best: jax.Array | None) -> list[jax.Array]:
        """Run back on the rows that are kept."""
        return self.chosen.backward(weights, best)


class DirectionalPass(SeparatePass):
    """Scores by derivatives along a direction: no trace, any architecture."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def forward(self, batch: Batch) -> Any:
        """Return the function from a direction to every loss, and its derivative along the direction."""
        check_targets(*batch)
        self.batch = batch
        moving, losses = losses_of_leaves(self.problem.apply, self.problem.loss, self.problem.params)
        return lambda direction: directional_derivatives(losses, moving, batch, direction)


Pass = SharedPass | SeparatePass | ThriftyPass


def weighted_gradient(
    problem: Problem, batch: Batch, weights: jax.Array, best: jax.Array | None
) -> list[jax.Array]:
    """Return the gradient of the weighted losses of the best rows, run forward once more; None: of all."""
    if best is None or best.shape == weights.shape:
        rows, own = with_stand_ins(batch, weights), weights
    else:
        chosen, own = weighted(weights, best, best.shape[0])
        spread = problem.spread
        rows = jax.tree.map(lambda leaf: spread(leaf) if is_batched(leaf) else leaf, take(batch, chosen))
    moving, losses = losses_of_leaves(problem.apply, problem.loss, problem.params)

    def total(values: list[jax.Array]) -> jax.Array:
        found = losses(values, rows)
        return jnp.sum(own.astype(found.dtype) * found)

    return jax.grad(total)(moving)
