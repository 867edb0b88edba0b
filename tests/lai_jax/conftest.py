"""Every test of the JAX adapter draws from one seed and computes in double precision by default."""

from collections.abc import Iterator

import jax
import pytest

from tests.support.fixtures import seeded

__all__ = ["seeded"]


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def optimised() -> Iterator[None]:
    """Compile as JAX does by itself: what is optimised is rounded in other places."""
    held = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", held)
