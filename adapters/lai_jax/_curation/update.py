"""From scores to weights, and from the gradient of the weighted losses to new parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._curation.rows import best, count_of
from lai_jax._program.leaves import floating


def weigh(
    policy: Callable[..., jax.Array],
    scores: jax.Array,
    rows: int | float | None,
    parts: jax.Array | None,
    sizes: jax.Array | None,
) -> jax.Array:
    """Return the weights of a policy on the best `rows` scores; a sample without a score has weight 0."""
    seen = scores if rows is None else best(scores, count_of(rows, scores.shape[0]))
    if parts is None:
        weights = policy(seen)
    else:
        weights = policy(jnp.where(jnp.isnan(seen), jnp.nan, parts), sizes=sizes)
    return jnp.where(jnp.isnan(scores), 0.0, weights)


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
