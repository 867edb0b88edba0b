"""What the benchmarks measure, at toy size, and the committed counts that no run may exceed."""

import copy
import json

import pytest

from benchmarks.seconds import BASELINE, measure, worse

FIGURES = {"model": {"kept": {"cpu_ratio": 0.9, "flops_ratio": 0.8, "waits": 1, "launches": 100}}}


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"cpu_ratio": 9.0, "hand_ratio": 7.0}, None),  # seconds are never judged
        ({"flops_ratio": 0.9}, "flops_ratio: 0.800 before, 0.900 now"),
        ({"waits": 2}, "waits: 1.000 before, 2.000 now"),
        ({"launches": 110}, "launches: 100.000 before, 110.000 now"),
    ],
)
def test_counts_that_grow_are_worse(row, named):
    found = copy.deepcopy(FIGURES)
    found["model"]["kept"] |= row
    assert worse(FIGURES, found) == ([] if named is None else [f"model kept {named}"])
    assert worse(found, FIGURES) == []
    assert worse(FIGURES, {"model": {}}) == ["model kept: not measured any more"]


KNOWN = json.loads(BASELINE.read_text(encoding="utf-8"))


def test_smallest_step_keeps_committed_counts():
    assert worse(KNOWN, measure(["tiny_mlp"], rounds=0)) == []


@pytest.mark.weekly  # models of twelve blocks take 20 minutes to count; the smallest model is counted above
def test_launch_counts_stay_within_committed_ones():
    assert worse(KNOWN, measure(["bert_12_launches", "gpt_12_launches"], rounds=0)) == []
