"""`python -m benchmarks gpu` runs at toy size where there is no GPU, and measures every method."""

from pathlib import Path

import pytest
import torch

from benchmarks.gpu import COLUMNS, METHODS, cell

pytestmark = pytest.mark.slow
UNTRIED = {way for way in METHODS if "CUDA graphs" in way}


@pytest.mark.parametrize(
    ("name", "kind", "refused"),
    [
        ("resnet18", torch.bfloat16, {"LAI, selective", "by hand"}),
        ("bert_base", None, set()),
        ("gpt2", torch.bfloat16, {"by hand"}),
        ("llama_1b", None, set()),
    ],
)
def test_each_method_runs_or_is_refused_by_name(name, kind, refused, tmp_path):
    found, why, broken = cell(name, "cpu", kind, 1, tmp_path, toy=True)
    assert not broken
    assert why.keys() == refused | {"opacus, fresh"} | UNTRIED
    assert {why[way] for way in UNTRIED} == {"CUDA graphs not tried: there is no GPU"}
    assert found.keys() | why.keys() == METHODS.keys()
    for row in found.values():
        assert row.keys() == set(COLUMNS)
        log = Path(row.pop("log")).read_text(encoding="utf-8")
        assert all(value >= 0 for value in row.values())
        assert {f"peak_mib {row['peak_mib']}", f"milliseconds {row['milliseconds']}"} <= {*log.splitlines()}
        assert "round 0: " in log
    assert len(list(tmp_path.iterdir())) == len(METHODS)
    assert found["plain"]["ratio"] == found["plain"]["memory"] == 1.0
    assert found["plain on half"]["flops"] == pytest.approx(0.5)
    assert found["LAI, kept"]["flops"] < 0.9
