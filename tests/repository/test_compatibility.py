"""The compatibility suites: their judges tell right from wrong, and a sample of them finds nothing anew."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from benchmarks.compatibility import counts
from benchmarks.compatibility.judge import Row, judge, squares
from benchmarks.compatibility.torch_case import Case

ROOT = Path(__file__).parents[2]


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


SAMPLED = {
    "torch": (
        ["cdist#9*", "linalg.solve#1", "nn.functional.conv2d#2", "nn.LSTM#0", "causal/GPT2LMHeadModel"],
        9,
    ),
    "jax": (["tan#*", "dot_general#preferred_lhs_float32*", "equinox/Conv2d", "optax/hinge_loss"], 16),
}


@pytest.mark.weekly  # other packages' suites, which are run whole before a release
@pytest.mark.parametrize("framework", SAMPLED)
def test_sampled_suites_find_nothing_new(tmp_path, framework):
    names, exact = SAMPLED[framework]
    options = [option for name in names for option in ("--case", name)]
    suites = (
        ["opinfo", "moduleinfo", "transformers"] if framework == "torch" else ["harnesses", "jax-libraries"]
    )
    options += [option for suite in suites for option in ("--suite", suite)]
    command = [sys.executable, "-m", "benchmarks", "compatibility", *options]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=paths)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "build" / "compatibility.json").read_text())
    assert sum(row["ghost"] == "exact" for rows in found.values() for row in rows.values()) >= exact


def change_gradients(layer, change):
    return replace(layer, output_gradients=change(layer.output_gradients))


FAULTS = {
    "bias": lambda layer: replace(layer, bias=False),
    "scale": lambda layer: change_gradients(layer, lambda gradients: gradients * (1 + 1e-4)),
    "rows": lambda layer: change_gradients(layer, lambda gradients: gradients.flip(0)),
}
"""What an adapter might do to the last layer."""


def judge_model(monkeypatch, fault, place=-1, *, last=1.0, **options):
    """Judge a small model before and after a fault in one layer of its traces."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[2].weight.data.mul_(last)
    training, validation = ((torch.randn(n, 3).double(), torch.randn(n, 2).double()) for n in (3, 2))
    layers = {name: (name, True) for name in "02"}
    case = Case(model=model, loss=squares, training=training, validation=validation, layers=layers, **options)
    row = judge(case)
    assert (row.ghost, row.exact, row.lai) == ("exact", "exact", "exact"), row.reason

    def trace(*given, **options):
        layers = [*made(*given, **options).layers]
        layers[place] = fault(layers[place])
        return lai.Trace(layers)

    made = lai_torch.trace
    monkeypatch.setattr(lai_torch, "trace", trace)
    return judge(case)


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_traces_are_wrong(monkeypatch, fault):
    row = judge_model(monkeypatch, FAULTS[fault])
    assert (row.ghost, row.exact, row.lai) == ("wrong", "exact", "wrong"), row.reason


@pytest.mark.parametrize(
    ("place", "size", "eps", "verdict"),
    [(-1, 2**-24, 2**-52, "wrong"), (-1, 2**-24, 2**-23, "exact"), (0, 0.01, 2**-23, "wrong")],
)
def test_rounding_follows_the_precision(monkeypatch, place, size, eps, verdict):
    def fault(layer):
        return change_gradients(layer, lambda gradients: gradients * (1 + size))

    # gradients of the first layer, which the case is about, are a tenth of those behind it
    row = judge_model(monkeypatch, fault, place, last=0.1, about=("0",), eps=eps)
    assert row.ghost == verdict, row.reason
