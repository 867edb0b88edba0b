"""What JAX itself says: one gradient a sample, in a plain loop, of the user's own function."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Batch = tuple[Any, Any]


def one(tree: Any, index: int) -> Any:
    """Cut one sample out of a batch, as a batch of one."""

    def cut(leaf: Any) -> Any:
        keys = jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)
        return (leaf if keys else np.asarray(leaf))[index : index + 1]

    return jax.tree.map(cut, tree)


def call(apply: Callable[..., Any], params: Any, inputs: Any) -> Any:
    """Pass inputs as the adapter promises to."""
    if isinstance(inputs, dict):
        return apply(params, **inputs)
    return apply(params, *inputs) if isinstance(inputs, tuple) else apply(params, inputs)


@functools.lru_cache(maxsize=32)  # compiled once for all batches of a test
def _gradient(apply: Callable[..., Any], loss: Callable[..., Any]) -> Callable[..., Any]:
    def single(params: Any, inputs: Any, targets: Any) -> jax.Array:
        return loss(call(apply, params, inputs), targets)[0]

    return jax.jit(jax.grad(single, allow_int=True))


def gradients(apply: Callable[..., Any], params: Any, loss: Callable[..., Any], batch: Batch) -> jax.Array:
    """Each sample's gradient of all floating-point parameters, `(n, size)`."""
    gradient = _gradient(apply, loss)
    rows = []
    for index in range(jax.tree.leaves(batch[1])[0].shape[0]):
        parts = map(np.asarray, jax.tree.leaves(gradient(params, *one(batch, index))))
        rows.append(
            np.concatenate([part.ravel() for part in parts if jnp.issubdtype(part.dtype, jnp.floating)])
        )
    return jnp.asarray(np.stack(rows))
