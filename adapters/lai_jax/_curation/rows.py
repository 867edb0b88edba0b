"""Which rows of a batch a step trains on, and which count at all."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.losses import is_batched


def best(scores: jax.Array, rows: int | float) -> tuple[jax.Array, jax.Array]:
    """Return the rows of the largest scores, so many or a share; and the scores with NaN for all others."""
    samples = scores.shape[0]
    count = math.ceil(round(rows * samples, 9)) if isinstance(rows, float) else rows
    if count > samples:
        msg = f"rows: expected at most the {samples} rows of the batch, got {rows}"
        raise ValueError(msg)
    values = jnp.where(jnp.isnan(scores), -jnp.inf, jnp.where(scores == 0, 0.0, scores))  # -0 is 0
    highest, chosen = jax.lax.top_k(values, max(count, 1))
    # Among equals `top_k` takes the first: of those equal to the lowest taken, all up to the last one taken.
    lowest = highest.min()
    last = jnp.where(highest == lowest, chosen, -1).max()
    taken = (values > lowest) | ((values == lowest) & (jnp.arange(samples) <= last))
    return chosen, jnp.where(taken, scores, jnp.nan)


def put_stand_ins(batch: Any, weights: jax.Array) -> Any:
    """Put the first sample that has a weight in the place of every sample that has none.

    By sums and choices alone, so that a batch spread over devices stays where it is. Random keys, which
    are always finite, stay too.
    """
    numbers, kept = jnp.arange(weights.shape[0]), weights != 0
    first = numbers == jnp.min(jnp.where(kept, numbers, weights.shape[0]))

    def replace(leaf: Any) -> Any:
        if not is_batched(leaf) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        added = jnp.where(_rows(leaf, first), leaf, jnp.zeros((), leaf.dtype)).sum(axis=0)
        return jnp.where(_rows(leaf, kept), leaf, added.astype(leaf.dtype))

    return jax.tree.map(replace, batch)


def fill_rows(weights: jax.Array, chosen: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Return the chosen rows and their weights; `size` of both, the rest of weight 0.

    A row of weight 0 may hold what is not finite: one that has a weight stands in for it.
    """
    own = weights[chosen]
    rows = jnp.where(own != 0, chosen, chosen[jnp.argmax(own != 0)])
    more = size - chosen.shape[0]
    return (rows, own) if more == 0 else (jnp.pad(rows, (0, more), "edge"), jnp.pad(own, (0, more)))


def _rows(leaf: jax.Array, each: jax.Array) -> jax.Array:
    """Give one entry a sample the axes of an array."""
    return each.reshape((-1,) + (1,) * (leaf.ndim - 1))


def finite(tree: Any) -> jax.Array:
    """Return of which samples all numbers are finite, `(n,)`."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(leaf).all(tuple(range(1, leaf.ndim))) for leaf in leaves]).all(0)


def zero_out(tree: Any, counted: jax.Array) -> Any:
    """Put zeros in the place of samples that do not count: of these every product is 0."""

    def zero_leaf(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jnp.where(_rows(leaf, counted), leaf, jnp.zeros((), leaf.dtype))

    return jax.tree.map(zero_leaf, tree)
