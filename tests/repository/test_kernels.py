"""What `python -m benchmarks kernels` measures, at toy size: counts and figures, never seconds."""

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
