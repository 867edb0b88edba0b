"""The compatibility suites: their judges tell right from wrong, and a sample of them finds nothing anew."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional

import lai_core as lai
from benchmarks.compatibility import around, counts, judge_jax, judge_torch, nets_jax
from benchmarks.compatibility.forms import LOOP, Form, Operation, as_it_is, form_of
from benchmarks.compatibility.verdicts import Row

ROOT = Path(__file__).parents[2]
TORCH = ["opinfo", "moduleinfo", "transformers"]


@pytest.fixture(autouse=True)
def _float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def operation(run, *arguments, **options):
    return Operation(lambda *given, others=as_it_is: [run(*given)], arguments, **options)


def verdict(problem):
    """Judge what `problem` returns or raises."""
    row = Row()
    row.add("ghost", problem, 1e-7)
    return row.ghost


def test_our_own_refusal_is_told_from_a_crash_and_from_a_wrong_number():
    assert verdict(lambda: lai.keep_top(torch.ones(3), 2.0)) == "refused"
    assert verdict(lambda: torch.ones(2) @ torch.ones(3)) == "crash"
    assert verdict(lambda: int("x")) == "crash"  # a ValueError, and not this library's
    assert verdict(lambda: 0.1) == "wrong"
    assert verdict(lambda: float("nan")) == "wrong"
    assert verdict(lambda: 1e-9) == "exact"


@pytest.mark.parametrize(
    ("run", "arguments", "kept", "form"),
    [
        (torch.tanh, [(2, 3)], (), Form(expands=True, results=(0,))),
        (lambda a: a.sum(), [(2, 3)], (), LOOP),
        (lambda a: a - a.mean(0), [(2, 3)], (), Form(1, True, 3, (1,))),
        (lambda a: a - a.mean(), [(2, 3)], (), LOOP),
        (functional.linear, [(5, 3), (4, 3)], (1,), Form(0, True, 5, (0,))),
        (functional.conv1d, [(2, 3, 6), (4, 3, 2)], (1,), Form(0, True, 2, (0,))),
        (lambda a, b: torch.bmm(a.transpose(0, 1), b), [(3, 2, 4), (2, 4, 5)], (1,), Form(0, True, 3, (1,))),
    ],
)
def test_the_samples_axis_is_found_by_trying(run, arguments, kept, form):
    torch.manual_seed(0)
    found = form_of(operation(run, *map(torch.randn, arguments)), kept)
    assert found == form


def test_a_right_operation_is_exact_and_an_unfit_one_says_why():
    torch.manual_seed(0)
    row = around.attempt(operation(torch.sin, torch.randn(2, 2)), "data")
    assert (row.ghost, row.exact, row.lai) == ("exact", "exact", "exact")
    row = around.attempt(operation(torch.floor, torch.randn(2, 2)), "data")
    assert (row.ghost, row.reason) == ("unfit", "no gradient")
    row = around.attempt(operation(lambda a: a + torch.rand(2, 2), torch.randn(2, 2)), "data")
    assert row.ghost == "unfit"
    row = around.attempt(operation(torch.sin, torch.randn(0)), "weight")
    assert row.reason == "arguments without entries"


def test_an_answer_of_another_function_is_seen_to_be_wrong(monkeypatch):
    torch.manual_seed(0)
    scores = judge_torch.lai_torch.exact_scores
    monkeypatch.setattr(judge_torch.lai_torch, "exact_scores", lambda *batch: 1.001 * scores(*batch))
    monkeypatch.setattr(judge_torch.lai, "lai_kernel", lambda *traces, positions: lai.lli_kernel(*traces))
    row = around.attempt(operation(torch.sin, torch.randn(2, 2)), "data")
    assert (row.ghost, row.exact, row.lai) == ("exact", "wrong", "wrong")


@pytest.mark.parametrize("stop", [lambda hidden: hidden, jax.lax.stop_gradient])
def test_jax_layers_that_reach_no_loss_are_not_expected(stop):
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        gain = nets_jax.drawn(rng, 3)
        case = nets_jax.between(lambda own, hidden: own * stop(hidden), gain, 3, rng, nets_jax.batches(rng))
        assert judge_jax.judge(case).lai == "exact"


def test_what_is_pinned_may_not_get_worse():
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


@pytest.mark.slow
def test_a_sample_finds_nothing_wrong_that_is_not_recorded(tmp_path):
    found = sampled(tmp_path, TORCH, 30)
    assert sum(row["ghost"] == "exact" for rows in found.values() for row in rows.values()) > 2


@pytest.mark.weekly
def test_a_sample_of_the_jax_suites_finds_nothing_wrong(tmp_path):
    found = sampled(tmp_path, ["harnesses", "jax-libraries"], 6)
    assert any(row["ghost"] == "exact" for rows in found.values() for row in rows.values())


@pytest.mark.weekly
def test_a_longer_sample_finds_nothing_wrong_that_is_not_recorded(tmp_path):
    found = sampled(tmp_path, TORCH, 240)
    assert sum(row["ghost"] == "exact" for rows in found.values() for row in rows.values()) > 8
