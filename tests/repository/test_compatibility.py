"""The compatibility suites: their judges tell right from wrong, and a sample of them finds nothing anew."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from benchmarks.compatibility import around, command, counts, judge_torch
from benchmarks.compatibility.forms import LOOP, Form, Operation, as_it_is, form_of
from benchmarks.compatibility.oracle_torch import Case, gradients_of
from benchmarks.compatibility.proportions import in_proportion, variants
from benchmarks.compatibility.shrink import VOCABULARY
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
    assert verdict(lambda: lai.keep_top(None, 0.5)) in {"refused", "crash"}
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


def test_the_oracle_reads_each_samples_gradient_and_the_layers():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    batch = torch.randn(4, 3), torch.randn(4, 2)
    case = Case(model, judge_torch.squares, batch, batch, layers={"": ("linear", True)})
    found = gradients_of(case, batch)
    beta = model(batch[0]) - batch[1]  # of half the squared distance
    torch.testing.assert_close(found.of["weight"], (beta[:, :, None] * batch[0][:, None]).flatten(1))
    torch.testing.assert_close(found.activations[0], batch[0])
    torch.testing.assert_close(found.last, beta)


class Averaged(nn.Module):
    """A batch normalisation whose positions are averaged, so that the gradient it receives is expanded."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))
        self.head = nn.Linear(3, 2)

    def forward(self, inputs):
        return self.head(self.body(inputs).flatten(2).transpose(1, 2).mean(1))


def test_the_oracle_is_right_behind_a_batch_normalisation_whose_output_is_averaged():
    torch.manual_seed(0)
    model, batch = Averaged().eval(), (torch.randn(4, 1, 6, 6), torch.randn(4, 2))
    rows = gradients_of(Case(model, judge_torch.squares, batch, batch), batch)
    judge_torch.squares(model(batch[0]), batch[1]).sum().backward()
    torch.testing.assert_close(rows.of["body.0.bias"].sum(0), model.body[0].bias.grad)


class Doubled(torch.autograd.Function):
    """The identity, whose backward pass says that it doubles."""

    @staticmethod
    def forward(context, values):
        return values.clone()

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


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


class ByLength(torch.autograd.Function):
    """The identity, whose backward pass divides by the number of rows."""

    @staticmethod
    def forward(context, values):
        return values.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient / len(gradient)


def test_an_operation_whose_gradient_of_a_batch_is_not_its_samples_asks_nothing():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    batch = torch.randn(4, 3), torch.randn(4, 2)

    def loss(outputs, targets):
        return judge_torch.squares(ByLength.apply(outputs), targets)

    row = judge_torch.judge(Case(net, loss, batch, batch))
    assert (row.ghost, row.exact) == ("unfit", "unfit")
    assert row.reason == "torch's gradient of the batch is not the sum of those of its samples"


def test_an_answer_of_another_function_is_seen_to_be_wrong(monkeypatch):
    torch.manual_seed(0)
    scores = judge_torch.lai_torch.exact_scores
    monkeypatch.setattr(judge_torch.lai_torch, "exact_scores", lambda *batch: 1.001 * scores(*batch))
    monkeypatch.setattr(judge_torch.lai, "lai_kernel", lambda *traces, positions: lai.lli_kernel(*traces))
    row = around.attempt(operation(torch.sin, torch.randn(2, 2)), "data")
    assert (row.ghost, row.exact, row.lai) == ("exact", "wrong", "wrong")


def test_a_backward_pass_that_is_no_gradient_is_never_called_exact_by_its_forward_mode():
    torch.manual_seed(0)
    row = around.attempt(operation(Doubled.apply, torch.randn(2, 2)), "data")
    assert row.ghost == "exact"
    assert row.exact in {"exact", "refused"}


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


def test_reasons_are_grouped_without_the_names_of_one_case():
    refusal = "ValueError: model: cannot explain 'own.0' (used by torch.cov); 'own.1' (used by torch.dist)"
    assert counts.grouped(refusal) == "no record of a parameter used by torch.cov"
    assert counts.grouped("ValueError: layer 'a.b': got shape (7, 16)") == "layer …: got shape …"


@dataclass
class Widths:
    """A configuration whose sizes have to agree, under names that nobody knows."""

    model_type: ClassVar = "widths"
    outer: int = 768
    heads: int = 12
    of_a_head: int = 64
    coordinates: tuple[int, ...] = (256, 512)
    odd: int = 1407
    num_hidden_layers: int = 24
    each_layers: list[str] = field(default_factory=lambda: ["local", "global"] * 12)
    byte_vocab: int = 500_002
    chosen: int | None = None
    derived: int | None = None

    def __post_init__(self):
        if self.outer != self.heads * self.of_a_head or self.outer != sum(self.coordinates):
            raise ValueError("sizes that do not agree")
        self.derived = self.outer // self.heads if self.derived is None else self.derived


def test_a_configuration_divided_in_proportion_still_agrees_whatever_its_fields_are_called():
    found = in_proportion(Widths, 16, 2, filled=False)
    assert (found.outer, found.heads, found.of_a_head, found.coordinates) == (48, 12, 4, [16, 32])
    assert (found.derived, found.odd, found.byte_vocab) == (4, 1407 // 16, VOCABULARY)
    assert (found.num_hidden_layers, found.each_layers) == (2, ["local", "global"])
    small = list(variants(Widths))
    assert any(each.outer == 12 for each in small)
    assert all(each.outer == each.heads * each.of_a_head for each in small if each.outer < 768)


def test_cases_are_run_by_name():
    module = SimpleNamespace(
        groups=lambda: ["sin", "sinh", "cos"],
        cases=lambda group: ((group, f"{group}#{number}", None) for number in range(2)),
    )

    def named(*patterns):
        return [name for _, name, _ in command.named_cases([module], patterns)]

    assert named("sin") == ["sin#0", "sin#1"]
    assert named("sin*#1", "cos#0") == ["sin#1", "sinh#1", "cos#0"]
    assert named("tan") == []


def sampled(folder: Path, suites: list[str], cases: int) -> dict:
    """Run a sample as a user does, and return what it wrote."""
    options = [option for suite in suites for option in ("--suite", suite)]
    command = [sys.executable, "-m", "benchmarks", "compatibility", *options, "--sample", str(cases)]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=paths)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "build" / "compatibility.json").read_text())


@pytest.mark.quick
def test_a_sample_finds_nothing_wrong_that_is_not_recorded(tmp_path):
    found = sampled(tmp_path, TORCH, 30)
    assert sum(row["ghost"] == "exact" for rows in found.values() for row in rows.values()) > 2


@pytest.mark.quick
def test_a_sample_of_the_jax_suites_finds_nothing_wrong(tmp_path):
    found = sampled(tmp_path, ["harnesses", "jax-libraries"], 6)
    assert any(row["ghost"] == "exact" for rows in found.values() for row in rows.values())


@pytest.mark.slow
def test_a_longer_sample_finds_nothing_wrong_that_is_not_recorded(tmp_path):
    found = sampled(tmp_path, TORCH, 240)
    assert sum(row["ghost"] == "exact" for rows in found.values() for row in rows.values()) > 8
