"""What `python -m benchmarks compare` says, and the committed counts that no run may exceed."""

import copy
import json

import pytest
from click.testing import CliRunner

from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.growth import AXES, along, bounds
from benchmarks.seconds import BASELINE, measure, read, worse

FIGURES = {"model": {"kept": {"cpu_ratio": 0.9, "flops_ratio": 0.8, "waits": 1, "launches": 100}}}


def changed(**row):
    found = copy.deepcopy(FIGURES)
    found["model"]["kept"] |= row
    return found


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"cpu_ratio": 9.0, "hand_ratio": 7.0}, []),  # seconds are never judged
        ({"flops_ratio": 0.9}, ["flops_ratio"]),
        ({"waits": 2}, ["waits"]),
        ({"launches": 110}, ["launches"]),
    ],
)
def test_counts_that_grow_are_worse(row, named):
    found = worse(FIGURES, changed(**row))
    assert len(found) == len(named)
    assert all(name in line for name, line in zip(named, found, strict=True))
    assert worse(changed(**row), FIGURES) == []
    assert worse(FIGURES, {"model": {}}) == ["model kept: not measured any more"]


def test_the_command_fails_where_a_count_is_worse(tmp_path):
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    before.write_text(json.dumps(FIGURES))
    after.write_text(json.dumps(changed(waits=3)))
    runner = CliRunner()
    assert runner.invoke(main, ["compare", str(before), str(before)]).exit_code == 0
    found = runner.invoke(main, ["compare", str(before), str(after)])
    assert found.exit_code != 0
    assert "waits: 1.000 before, 3.000 now" in str(found.exception)
    after.write_text("[]")
    assert "expected the figures" in str(runner.invoke(main, ["compare", str(before), str(after)]).exception)


def test_the_smallest_models_step_counts_no_more_than_the_committed_one():
    assert worse(read(BASELINE), measure(["tiny_mlp"], rounds=0)) == []


@pytest.mark.slow
def test_steps_that_launch_count_no_more_than_the_committed_ones():
    assert worse(read(BASELINE), measure(["bert_12_launches", "gpt_12_launches"], rounds=0)) == []


def test_a_count_that_doubles_with_its_size_has_exponent_one():
    chain, name, start = AXES["layers (MLP)"]
    found = along(chain, name, start)
    assert report.over(found, bounds("layers (MLP)")) == []
    assert 0.8 < found["summary's bytes"] < 1.0  # a matrix for each layer, and what all share
