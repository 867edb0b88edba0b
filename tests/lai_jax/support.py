"""What tests of the JAX adapter are built on: a loss, batches, and calls that compile once."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from tests.lai_jax.oracle import Batch, drawn, labels
from tests.support.fixtures import HALF

__all__ = ["HALF", "classified", "compiled", "cross_entropy", "vectors"]


def compiled(function: Callable[..., Any], apply: Any, params: Any, *others: Any, **options: Any) -> Any:
    """Call a function of the adapter as one program; on its own, each of its operations would be one."""
    return jax.jit(lambda params: function(apply, params, *others, **options))(params)


def cross_entropy(outputs: Any, targets: Any) -> jax.Array:
    """Cross-entropy of each sample."""
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


def vectors(samples: int, seed: int = 0) -> Batch:
    """Draw vectors of four, each with a number to reach."""
    return drawn(samples, 4, seed=seed), drawn(samples, seed=seed)


def classified(samples: int, seed: int = 0) -> Batch:
    """Draw vectors of four, each with one of three classes."""
    return drawn(samples, 4, seed=seed), labels(samples, seed=seed)
