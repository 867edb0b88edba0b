"""From scores to weights, and from the gradient of the weighted losses to new parameters."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._curation.estimators import Scored
from lai_jax._curation.meshes import laid_like
from lai_jax._curation.rows import best, count_of
from lai_jax._program.leaves import floating, real_leaves


def weigh(
    policy: Callable[..., jax.Array],
    scores: jax.Array,
    rows: int | float | None,
    scored: Scored,
) -> jax.Array:
    """Return the weights of a policy on the best `rows` scores; a sample without a score has weight 0."""
    seen = scores if rows is None else best(scores, count_of(rows, scores.shape[0]))
    more = {"losses": scored.losses} if sees_losses(policy) else {}
    if scored.parts is None:
        weights = policy(seen, **more)
    else:
        weights = policy(jnp.where(jnp.isnan(seen), jnp.nan, scored.parts), sizes=scored.sizes, **more)
    return jnp.where(jnp.isnan(scores), 0.0, weights)


def sees_losses(policy: Callable[..., Any]) -> bool:
    """Whether a policy names `losses` among its arguments, and has not been given them."""
    given = policy.keywords if isinstance(policy, functools.partial) else {}
    try:
        return "losses" in inspect.signature(policy).parameters and "losses" not in given
    except ValueError:  # written in C
        return False


def stepped(
    tx: Any, params: Any, opt_state: Any, gradients: list[jax.Array], weights: jax.Array
) -> tuple[Any, Any, jax.Array]:
    """Update, unless nothing was kept or the gradient is not finite."""
    leaves, restored = real_leaves(params)
    trainable = floating(leaves)
    given = [jnp.zeros_like(leaf) for leaf in leaves]
    for leaf, gradient in zip(trainable, gradients, strict=True):
        given[leaf] = gradient
    updates, new_state = tx.update(restored(given), opt_state, params)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(gradient)) for gradient in gradients]))
    skipped = ~(finite & jnp.any(weights > 0))
    moved, changes = list(leaves), real_leaves(updates)[0]
    for leaf in trainable:
        new = leaves[leaf] + changes[leaf].astype(leaves[leaf].dtype)
        moved[leaf] = laid_like(leaves[leaf], jnp.where(skipped, leaves[leaf], new))
    state = jax.tree.map(lambda old, new: laid_like(old, jnp.where(skipped, old, new)), opt_state, new_state)
    return restored(moved), state, skipped
