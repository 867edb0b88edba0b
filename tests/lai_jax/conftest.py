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
