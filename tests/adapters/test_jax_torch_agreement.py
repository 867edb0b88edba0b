"""The same weights give the same traces and scores in both frameworks."""

import jax
import pytest

from benchmarks import agreement


@pytest.mark.parametrize("name", agreement.PAIRS)
def test_torch_and_jax_agree(name):
    with jax.enable_x64(True):
        found = agreement.measure(agreement.PAIRS[name])
    assert found["relative_error"] <= 1e-10
    assert found["coverage"] == 1.0
