"""One forward pass for scoring and training, and the update by the weights that came of it."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._curation import selective_pass as _selective
from lai_jax._program.leaves import floating, moving_leaves
from lai_jax._program.losses import losses_of, take
from lai_jax._program.model import Model
from lai_jax._program.tail import output_gradients, tail_of
from lai_jax._recording.assemble import Measured, measure
from lai_jax._recording.plan import Plan


def count_of(rows: int | float, samples: int) -> int:
    """Return how many rows the backward pass runs on.

    Raises
    ------
    ValueError
        If there are fewer.
    """
    count = math.ceil(round(rows * samples, 9)) if isinstance(rows, float) else rows
    if count > samples:
        msg = f"rows: expected at most the {samples} rows of the batch, got {rows}"
        raise ValueError(msg)
    return max(count, 1)


class Forward:
    """The one forward pass of a step: losses, recorded inputs, and the way back.

    Parameters
    ----------
    model, plan
        What to run.
    also
        Further values of the program to keep, by slot.
    """

    def __init__(self, model: Model, plan: Plan, also: Sequence[int] = ()) -> None:
        self.model, self.plan = model, plan
        self.moving = [jnp.asarray(model.parameters[leaf]) for leaf in model.trainable]
        self.data = model.arguments[len(model.names) :]
        self.site = plan.uses[-1].site
        self.tail = tail_of(model.program, self.site)
        wanted = frozenset(site for site in model.program.sites() if site.is_layer)
        self.order = [site for site in model.program.sites() if site in wanted]
        keep = [*(() if self.tail is None else self.tail[2]), *also]
        self.losses, self.pull, (self.records, kept) = jax.vjp(
            lambda values: _selective.losses_of_leaves(model, values, self.data, wanted, keep),
            self.moving,
            has_aux=True,
        )
        self.slots = dict(zip(keep, kept, strict=True))

    def measured(self) -> Measured:
        """Return what a trace of the last layer's gradients needs."""
        if self.tail is None:  # the last layer is inside a loop or branch: differentiate from there
            return measure(self.model, self.plan, everything=False)
        _, operations, slots = self.tail
        kept = [self.slots[slot] for slot in slots]
        gradients = output_gradients(self.model.program, operations, slots, kept)
        return Measured(self.losses, dict(zip(self.order, self.records, strict=True)), {self.site: gradients})

    def gradient(self, weights: jax.Array) -> list[jax.Array]:
        """Return the gradient of the weighted losses, by a backward pass for all rows."""
        padding = self.model.samples - self.model.real
        padded = jnp.concatenate([weights, jnp.zeros(padding, weights.dtype)]) if padding else weights
        return list(self.pull(padded.astype(self.losses.dtype))[0])

    def gradient_of_rows(self, weights: jax.Array, count: int, small: Model) -> list[jax.Array]:
        """Return the gradient of the weighted losses, by a backward pass for `count` rows."""
        if self.model.samples != self.model.real:
            return self.gradient(weights)
        chosen, own = _heaviest(weights, count, small.samples)
        return _selective.chosen_gradient(
            self.model, small, self.pull, self.moving, chosen, own.astype(self.losses.dtype)
        )


def _heaviest(weights: jax.Array, count: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Return the rows of the `count` largest weights, and these; `size` of both, the rest of weight 0."""
    order = jnp.argsort(-weights)
    counted = jnp.arange(size) < count
    chosen = jnp.where(counted, order[:size], order[0])
    own = jnp.where(counted, weights[chosen], 0.0)
    return jnp.where(own > 0, chosen, chosen[0]), own  # rows of weight 0 may hold what is not finite


def recomputed(
    apply: Any, params: Any, loss: Any, batch: Any, weights: jax.Array, count: int | None
) -> list[jax.Array]:
    """Return the gradient of the weighted losses of the heaviest rows, run forward once more."""
    rows = weights.shape[0] if count is None else count
    chosen, own = _heaviest(weights, rows, rows)
    inputs, targets = take(batch, chosen)
    moving, restored = moving_leaves(params)

    def weighted(values: list[jax.Array]) -> jax.Array:
        found = losses_of(apply, loss)(restored(values), inputs, targets)
        return jnp.sum(own.astype(found.dtype) * found)

    return jax.grad(weighted)(moving)


def best(scores: jax.Array, count: int) -> jax.Array:
    """Keep the `count` largest scores, and NaN for the others, which no policy keeps."""
    finite = jnp.where(jnp.isnan(scores), -jnp.inf, scores)
    place = jnp.argsort(jnp.argsort(-finite))
    return jnp.where(place < count, scores, jnp.nan)


def stepped(
    tx: Any, params: Any, opt_state: Any, gradients: list[jax.Array], weights: jax.Array
) -> tuple[Any, Any, jax.Array]:
    """Update, unless nothing was kept or the gradient is not finite."""
    leaves, tree = jax.tree.flatten(params)
    trainable = floating(leaves)
    given = [jnp.zeros_like(leaf) for leaf in leaves]
    for leaf, gradient in zip(trainable, gradients, strict=True):
        given[leaf] = gradient
    updates, new_state = tx.update(jax.tree.unflatten(tree, given), opt_state, params)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(gradient)) for gradient in gradients]))
    skipped = ~(finite & jnp.any(weights > 0))
    moved = list(leaves)
    for leaf in trainable:
        new = leaves[leaf] + jax.tree.leaves(updates)[leaf].astype(leaves[leaf].dtype)
        moved[leaf] = jnp.where(skipped, leaves[leaf], new)
    state = jax.tree.map(lambda old, new: jnp.where(skipped, old, new), opt_state, new_state)
    return jax.tree.unflatten(tree, moved), state, skipped
