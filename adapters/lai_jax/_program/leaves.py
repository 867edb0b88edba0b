"""The leaves of the parameters: their names, those that train, and complex ones as two real ones."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def find_floating(leaves: list[Any]) -> list[int]:
    """Return which leaves hold floating-point numbers: these are trainable."""
    return [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]


def real_leaves(params: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves, each complex one as its real and its imaginary part, and how to put others back.

    The gradient with respect to both parts is the direction in which a real function grows the most, so
    that scores and steps are those of real parameters. (`jax.grad` of a complex one is its conjugate.)
    """
    leaves, tree = jax.tree.flatten(params)
    split: list[Any] = []
    for leaf in leaves:
        split += [jnp.real(leaf), jnp.imag(leaf)] if _is_complex(leaf) else [leaf]

    def restore(values: list[Any]) -> Any:
        left = iter(values)
        joined = [
            jax.lax.complex(next(left), next(left)) if _is_complex(leaf) else next(left) for leaf in leaves
        ]
        return jax.tree.unflatten(tree, joined)

    return split, restore


def leaf_names(params: Any) -> list[str]:
    """Return the name of every leaf of `real_leaves`: the path to it."""
    paths, _ = jax.tree_util.tree_flatten_with_path(params)
    names: list[str] = []
    for path, leaf in paths:
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "params"
        names += [f"{name}/real", f"{name}/imag"] if _is_complex(leaf) else [name]
    return names


def split_leaves(params: Any) -> tuple[list[jax.Array], Callable[[list[Any]], Any]]:
    """Return the floating-point leaves, and how to put others in their place."""
    leaves, whole = real_leaves(params)
    places = find_floating(leaves)
    moving = [jnp.asarray(leaves[place]) for place in places]
    return moving, lambda values: whole(replace_leaves(leaves, places, values))


def replace_leaves(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    given = list(leaves)
    for place, value in zip(places, values, strict=True):
        given[place] = value
    return given


def check_finite(leaves: Sequence[jax.Array]) -> jax.Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


def _is_complex(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.complexfloating))
