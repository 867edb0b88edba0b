"""Each sample's gradient by reverse mode, one sample at a time: what everything else is judged by."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.leaves import floating, leaf_names, moving_leaves, real_leaves
from lai_jax._program.losses import batch_size, check_targets, losses_of, take


def sample_gradients(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], inputs: Any, targets: Any
) -> dict[str, jax.Array]:
    """Return each sample's gradient of each parameter, `(n, size)`, one sample at a time."""
    losses = losses_of(apply, loss)
    check_targets(inputs, targets)
    names, moving = leaf_names(params), floating(real_leaves(params)[0])
    values, restored = moving_leaves(params)

    def one(values: list[Any], sample: Any) -> jax.Array:
        return losses(restored(values), *sample)[0]

    singles = (take((inputs, targets), slice(j, j + 1)) for j in range(batch_size(inputs)))
    rows = [jax.grad(one)(values, single) for single in singles]
    return {names[i]: jnp.stack([row[k].reshape(-1) for row in rows]) for k, i in enumerate(moving)}
