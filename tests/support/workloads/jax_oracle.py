"""What JAX itself says: one gradient a sample, in a plain loop, of the user's own function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Batch = tuple[Any, Any]


def run_compiled(function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function returns where it is compiled, as numpy arrays; random keys stay as they are."""

    def read(leaf: Any) -> Any:
        return leaf if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended) else np.asarray(leaf)

    return jax.tree.map(read, jax.jit(function)(*given))


def one(tree: Any, index: int) -> Any:
    def cut(leaf: Any) -> Any:
        keys = jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)
        return (leaf if keys else np.asarray(leaf))[index : index + 1]

    return jax.tree.map(cut, tree)


def call(apply: Callable[..., Any], params: Any, inputs: Any) -> Any:
    """Pass inputs as the adapter promises to."""
    if isinstance(inputs, dict):
        return apply(params, **inputs)
    return apply(params, *inputs) if isinstance(inputs, tuple) else apply(params, inputs)


def flat(tree: Any) -> np.ndarray:
    """Join all floating-point numbers of parameters; a complex one counts as two."""
    leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    parts = [[leaf.real, leaf.imag] if np.iscomplexobj(leaf) else [leaf.astype(float)] for leaf in leaves]
    return np.concatenate([one for each in parts for one in each])


def gradients(apply: Callable[..., Any], params: Any, loss: Callable[..., Any], batch: Batch) -> np.ndarray:
    """Each sample's gradient of all floating-point parameters, `(n, size)`, by batches of one."""

    def single(params: Any, inputs: Any, targets: Any) -> jax.Array:
        return loss(call(apply, params, inputs), targets)[0]

    gradient = jax.jit(jax.grad(single, allow_int=True))
    conjugated = lambda leaf: leaf.conj() if np.iscomplexobj(leaf) else leaf  # noqa: E731
    samples = range(jax.tree.leaves(batch[1])[0].shape[0])
    found = (gradient(params, *one(batch, index)) for index in samples)
    return np.stack([flat(jax.tree.map(conjugated, each)) for each in found])
