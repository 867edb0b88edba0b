"""The leaves of the parameters: their names, and those that train."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def floating(leaves: list[Any]) -> list[int]:
    """Return which leaves hold floating-point numbers: these are trainable."""
    return [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]


def leaf_names(params: Any) -> list[str]:
    """Return the name of every leaf: the path to it."""
    paths, _ = jax.tree_util.tree_flatten_with_path(params)
    return [jax.tree_util.keystr(path, simple=True, separator="/") or "params" for path, _ in paths]


def moving_leaves(params: Any) -> tuple[list[jax.Array], Callable[[list[Any]], Any]]:
    """Return the floating-point leaves, and how to put others in their place."""
    leaves, tree = jax.tree.flatten(params)
    places = floating(leaves)

    def restored(values: list[Any]) -> Any:
        given = list(leaves)
        for place, value in zip(places, values, strict=True):
            given[place] = value
        return jax.tree.unflatten(tree, given)

    return [jnp.asarray(leaves[place]) for place in places], restored
