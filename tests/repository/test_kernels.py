"""What `python -m benchmarks kernels` measures, at toy size: counts and figures, never seconds."""

import numpy as np
import pytest

from benchmarks import kernels

CASES = kernels.cases(scale=8)


def test_multiply_adds_are_those_of_the_cheaper_way():
    """Of 2 samples with 3 positions, 5 by 7: pairs 6 * 6 * 12 = 432; sums 2 * 6 * 35; built 4 * 35 beside."""
    assert kernels.summed(2, 3, 5, 7) == 420
    assert kernels.paired(2, 3, 5, 7) == 432
    assert kernels.paired(2, 9, 5, 7) == (2 * 18 + 4) * 35
    assert CASES["LLI scores: 512, 10 outputs"].multiply_adds == 16 * 16 * (64 + 10)
    assert CASES["Ghost scores: embedding of 1,000 rows"].multiply_adds == 2 * 16 * 8 * 32


@pytest.mark.parametrize("namespace", kernels.NAMESPACES)
def test_each_kind_of_call_is_measured_on_each_namespace(namespace):
    pytest.importorskip("lai_jax")
    for name in CASES if namespace == "numpy" else ("LAI scores: 5 layers of 512, 10 outputs",):
        found = kernels.measured(namespace, CASES[name], rounds=1)
        assert min(found[key] for key in ("seconds", "matmul", "copy")) > 0, name
        assert found["share"] == found[found["by"]] / found["seconds"], name
        assert found[found["by"]] == max(found["matmul"], found["copy"]), name


def test_a_call_is_of_the_size_that_is_said():
    """So that a share is of what is computed: as many samples, positions and widths as the name says."""
    full = kernels.cases()
    draws = np.random.default_rng(0)
    shapes = {
        name: [
            tuple(array.shape)
            for layer in case.trace(draws, np.asarray).layers
            for array in layer.arrays().values()
        ]
        for name, case in full.items()
    }
    assert shapes["Ghost scores: embedding of 30,000 rows"] == [(16, 64), (16, 64, 256)]
    assert shapes["Ghost kernel: dense, 4 layers of 512"] == [(128, 512)] * 8
    assert shapes["LAI scores: 5 layers of 512, 10 outputs"] == [(128, 512)] * 5 + [(128, 10)]
    assert shapes["Ghost scores: convolution 3x3, 16 channels, 32x32"] == [(16, 16, 32, 32)] * 2
