"""Each sample's gradient by reverse mode, one sample at a time: what everything else is judged by."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.leaves import floating, leaf_names, real_leaves
from lai_jax._program.losses import batch_size, check_targets, losses_of_leaves, take


def sample_gradients(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], inputs: Any, targets: Any
) -> dict[str, jax.Array]:
    """Return each sample's gradient of each parameter, `(n, size)`, one sample at a time."""
    check_targets(inputs, targets)
    names, moving = leaf_names(params), floating(real_leaves(params)[0])
    values, losses = losses_of_leaves(apply, loss, params)
    gradient = jax.grad(lambda values, single: losses(values, single)[0])
    rows = [gradient(values, take((inputs, targets), slice(j, j + 1))) for j in range(batch_size(inputs))]
    return {names[i]: jnp.stack([row[k].reshape(-1) for row in rows]) for k, i in enumerate(moving)}
