"""What tests of the JAX adapter are built on: a loss and batches."""

from typing import Any

import jax
import optax

from tests.lai_jax.oracle import Batch, drawn, labels
from tests.support.fixtures import HALF

__all__ = ["HALF", "classified", "cross_entropy", "vectors"]


def cross_entropy(outputs: Any, targets: Any) -> jax.Array:
    """Cross-entropy of each sample."""
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


def vectors(samples: int, seed: int = 0) -> Batch:
    """Draw vectors of four, each with a number to reach."""
    return drawn(samples, 4, seed=seed), drawn(samples, seed=seed)


def classified(samples: int, seed: int = 0) -> Batch:
    """Draw vectors of four, each with one of three classes."""
    return drawn(samples, 4, seed=seed), labels(samples, seed=seed)
