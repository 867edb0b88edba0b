"""`python -m benchmarks gpu` runs at toy size where there is no GPU, and measures every method."""

import pytest
import torch

from benchmarks.gpu.command import COLUMNS, cell
from benchmarks.gpu.methods import METHODS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "kind", "refused"),
    [
        ("resnet18", torch.bfloat16, {"LAI, selective", "by hand"}),
        ("bert_base", None, set()),
        ("gpt2", torch.bfloat16, {"by hand"}),
        ("llama_1b", None, set()),
    ],
)
def test_each_method_runs_or_is_refused_by_name(name, kind, refused):
    found, why, broken = cell(name, "cpu", kind, 1, toy=True)
    assert not broken
    assert why.keys() == refused | {"opacus, fresh"}
    assert found.keys() | why.keys() == METHODS.keys()
    for row in found.values():
        assert row.keys() == set(COLUMNS)
        assert all(value >= 0 for value in row.values())
    assert found["plain"]["ratio"] == found["plain"]["memory"] == 1.0
    assert found["plain on half"]["flops"] == pytest.approx(0.5)
    assert found["LAI, kept"]["flops"] < 0.9
