"""Ghost is exact on JAX models of every kind, over all of their parameters."""

import pytest

from workloads import jax_exactness
from workloads.jax_models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_ghost_is_exact_and_covers_everything(name):
    found = jax_exactness.measure(MODELS[name])
    assert found["relative_error"] <= 1e-10
    assert found["coverage"] == 1.0
