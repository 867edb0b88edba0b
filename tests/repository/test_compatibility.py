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
from benchmarks.compatibility import command
from benchmarks.compatibility.judge import judge, judge_error, squares
from benchmarks.compatibility.torch_case import Case

ROOT = Path(__file__).parents[2]


def verdict(problem):
    return judge_error(problem, 1e-7, [])[0]


def test_refusals_crashes_and_errors_are_distinguished():
    assert verdict(lambda: lai.keep_top(torch.ones(3), 2.0)) == "refused"
    assert verdict(lambda: torch.ones(2) @ torch.ones(3)) == "crash"
    assert verdict(lambda: int("x")) == "crash"  # a ValueError, and not this library's
    assert verdict(lambda: 0.1) == "wrong"
    assert verdict(lambda: float("nan")) == "wrong"
    assert verdict(lambda: 1e-9) == "exact"


def test_failures_and_fewer_exact_cases_count():
    right = {"ghost": "exact", "exact": "exact"}
    wrong = right | {"exact": "wrong", "reason": "relative error 1"}
    now, then = ({"suite": {"sin#0": row, "cos#0": right}} for row in (wrong, right))
    assert command.find_failures(now) == ["suite: exact of sin#0: relative error 1"]
    assert command.find_failures(then) == []
    found, pinned = map(command.count, (now, then))
    assert command.find_losses(found, pinned) == ["suite: exact was exact in 2 cases, and is in 1"]
    assert command.find_losses(pinned, found) == command.find_losses(found, {}) == []


SAMPLED = {
    "torch": (["moduleinfo", "transformers"], ["nn.LSTM#0", "causal/GPT2LMHeadModel"]),
    "jax": (
        ["jax-libraries"],
        ["equinox/Conv2d", "nnx/RMSNorm", "linen/MultiHeadDotProductAttention", "optax/hinge_loss"],
    ),
}


@pytest.mark.weekly  # other packages' suites, which are run whole before a release
@pytest.mark.parametrize("framework", SAMPLED)
def test_sampled_suites_find_nothing_new(tmp_path, framework):
    suites, names = SAMPLED[framework]
    options = [option for suite in suites for option in ("--suite", suite)]
    options += [option for name in names for option in ("--case", name)]
    program = [sys.executable, "-m", "benchmarks", "compatibility", *options]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, env=paths)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "build" / "compatibility.json").read_text())
    assert [row["ghost"] for rows in found.values() for row in rows.values()] == ["exact"] * len(names)


def test_faulty_traces_are_wrong(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    training, validation = ((torch.randn(n, 3).double(), torch.randn(n, 2).double()) for n in (3, 2))
    layers = {name: (name, True) for name in "02"}
    case = Case(model=model, loss=squares, training=training, validation=validation, layers=layers)
    found = judge(lambda: case)
    assert [found[each] for each in command.ESTIMATORS] == ["exact", "exact", "exact"]
    made = lai_torch.trace

    def trace(*given, **options):
        *first, last = made(*given, **options).layers
        return lai.Trace([*first, replace(last, output_gradients=last.output_gradients * (1 + 1e-4))])

    monkeypatch.setattr(lai_torch, "trace", trace)
    found = judge(lambda: case)
    assert [found[each] for each in command.ESTIMATORS] == ["wrong", "exact", "wrong"], found["reason"]
