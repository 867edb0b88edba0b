"""The compatibility suites: their judges tell right from wrong, and a sample of them finds nothing anew."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lai_core as lai
from benchmarks.compatibility import counts
from benchmarks.compatibility.verdicts import Row

ROOT = Path(__file__).parents[2]
TORCH = ["opinfo", "moduleinfo", "transformers"]


def verdict(problem):
    """Judge what `problem` returns or raises."""
    row = Row()
    row.add("ghost", problem, 1e-7)
    return row.ghost


def test_refusals_crashes_and_errors_are_distinguished():
    assert verdict(lambda: lai.keep_top(torch.ones(3), 2.0)) == "refused"
    assert verdict(lambda: torch.ones(2) @ torch.ones(3)) == "crash"
    assert verdict(lambda: int("x")) == "crash"  # a ValueError, and not this library's
    assert verdict(lambda: 0.1) == "wrong"
    assert verdict(lambda: float("nan")) == "wrong"
    assert verdict(lambda: 1e-9) == "exact"


def test_pinned_counts_may_not_worsen():
    row = {"ghost": "exact", "exact": "wrong", "reason": "exact: relative error 1"}
    found = counts.counted({"suite": {"sin#0": row, "cos#0": row | {"exact": "exact"}}}, 1)
    assert counts.worse(found, found) == []
    cured = counts.counted(
        {"suite": {"sin#0": row | {"exact": "exact"}, "cos#0": row | {"exact": "exact"}}}, 1
    )
    assert counts.worse(cured, found) == []
    assert counts.worse(found, cured) == [
        "suite: exact fails on sin",
        "suite: exact was exact in 2 cases, and is in 1",
    ]
    assert counts.worse(found, {}) == ["suite: exact fails on sin"]


def sampled(folder: Path, suites: list[str], cases: int) -> dict:
    """Run a sample as a user does, and return what it wrote."""
    options = [option for suite in suites for option in ("--suite", suite)]
    command = [sys.executable, "-m", "benchmarks", "compatibility", *options, "--sample", str(cases)]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=paths)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "build" / "compatibility.json").read_text())


@pytest.mark.weekly  # other packages' suites, which are run whole before a release
def test_sampled_torch_suites_find_nothing_new(tmp_path):
    found = sampled(tmp_path, TORCH, 30)
    assert sum(row["ghost"] == "exact" for rows in found.values() for row in rows.values()) > 2


@pytest.mark.weekly
def test_sampled_jax_suites_find_nothing_wrong(tmp_path):
    found = sampled(tmp_path, ["harnesses", "jax-libraries"], 6)
    assert any(row["ghost"] == "exact" for rows in found.values() for row in rows.values())
