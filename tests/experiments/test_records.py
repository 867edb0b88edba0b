"""Records and what is read off them: intervals and verdicts, and every page that quotes one."""

import hashlib
import math
import re
from pathlib import Path

import pytest
import torch

from experiments import __main__ as commands
from experiments.harness import record as records
from experiments.harness.cost import EVERY, Meter
from experiments.harness.statistics import bounds, compared, judged, summary

ROOT = Path(__file__).parents[2]
COMMITTED = {path.stem: records.read(path) for path in sorted(records.RESULTS.glob("*.json"))}
ADVICE = ROOT / "docs" / "guide" / "when-to-curate.md"


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_records_are_current_and_portable(name):
    record = COMMITTED[name]
    assert (record["study"], record["config"]["size"]) == (name, "full")
    assert len(record["config"]["seeds"]) >= 5
    assert "/" not in record["config"]["machine"]
    if name in commands.STUDIES:  # others are records alone
        assert record["claims"] == commands.STUDIES[name].claims(record["methods"])
    for metrics in record["methods"].values():
        for metric, of in metrics.items():
            assert of == summary(of["values"], metric)
            least, most = bounds(metric)
            assert all(least - 1e-12 <= value <= most for value in of["values"]), metric


def test_advice_cites_the_committed_records():
    marks = re.findall(r"([a-z-]+):([0-9a-f]{12})", ADVICE.read_text(encoding="utf-8").splitlines()[-1])
    assert len(marks) == 8
    for name, mark in marks:
        found = hashlib.sha256((records.RESULTS / f"{name}.json").read_bytes()).hexdigest()
        assert found.startswith(mark), f"{name} changed: read the page's numbers again"


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/index.md"])
def test_pages_say_what_the_record_says(page):
    text = ": LLI mixture + validation is above validation mixed in"
    claims = COMMITTED["mixtures"]["claims"].items()
    found = [claim["verdict"] for name, claim in claims if name.endswith(text)]
    up, level, down = (found.count(verdict) for verdict in ("holds", "undecided", "refuted"))
    said = f"won in {up} of {up + level + down} settings, tied in {level} and lost in {down}"
    assert said in " ".join((ROOT / page).read_text(encoding="utf-8").split())


HALF = 4.302652729911275 / 3**0.5
"""The tables' t of two degrees of freedom, times the standard error of 1, 2 and 3."""
CORRELATIONS = ("MLP, SGD, rate x1: Pearson", "rank correlation with the next epoch", "figure 1: true")


@pytest.mark.parametrize(
    ("metric", "values", "mean", "low", "high"),
    [
        (None, [1.0, 2.0, 3.0], 2.0, 2.0 - HALF, 2.0 + HALF),
        (None, [0.5], 0.5, None, None),
        (None, [0.5, 0.5], 0.5, 0.5, 0.5),
        *(  # averaged as Fisher's z
            (
                metric,
                [math.tanh(z) for z in (1, 2, 3)],
                math.tanh(2),
                math.tanh(2 - HALF),
                math.tanh(2 + HALF),
            )
            for metric in CORRELATIONS
        ),
        # no interval holds what its metric cannot be
        ("Spearman", [1.0, 0.5, 1.0], 5 / 6, 5 / 6 - HALF / 12**0.5, 1.0),
        ("Pearson", [1.0, -1.0, 1.0], 1 / 3, -1.0, 1.0),  # artanh(1) is no number
        ("here: accuracy", [1.0, 0.9, 1.0], 29 / 30, 29 / 30 - HALF / 300**0.5, 1.0),
        ("here: test loss", [0.1, 2.0, 0.1], 2.2 / 3, 0.0, 2.2 / 3 + 1.9 * HALF / 3**0.5),
        ("here: cost", [1.0, 1.0, 9.0], 11 / 3, 0.0, 11 / 3 + 8 * HALF / 3**0.5),
    ],
)
def test_student_intervals_respect_metric_ranges(metric, values, mean, low, high):
    found = summary(values, metric)
    assert found["mean"] == pytest.approx(mean, rel=1e-5)
    assert [found["low"], found["high"]] == (
        [None, None] if low is None else pytest.approx([low, high], rel=1e-5)
    )


def test_differences_are_taken_seed_by_seed():
    values = {"a": [0.5, 0.7, 0.9], "b": [0.4, 0.6, 0.79]}  # apart by far less than they spread
    methods = {name: {"accuracy": summary(of)} for name, of in values.items()}
    for pair, options, verdict in (
        (("a", "b"), {}, "holds"),
        (("b", "a"), {}, "refuted"),
        (("b", "a"), {"sign": -1}, "holds"),
    ):
        assert compared(methods, *pair, "accuracy", paper="", **options)["verdict"] == verdict
    for values, options, verdict in (
        ([1.0], {}, "undecided"),
        ([0.1, 0.1, 0.11], {"at_least": 0.1}, "undecided"),
        ([0.2, 0.21], {"at_most": 0.5}, "holds"),
        ([0.2, 0.21], {"at_most": 0.1}, "refuted"),
        ([math.tanh(z) for z in (1, 2, 3)], {"at_least": -0.5, "metric": "Pearson"}, "holds"),
    ):
        assert judged(values, paper="", **options)["verdict"] == verdict


def test_meters_extrapolate_from_sampled_steps():
    layer, meter = torch.nn.Linear(5, 3), Meter()
    for _ in range(2 * EVERY):
        with meter.step(), torch.no_grad():
            layer(torch.zeros(4, 5))
    assert meter.watched == 2
    assert meter.total == 2 * EVERY * 2 * 4 * 5 * 3
    with meter.all(), torch.no_grad():
        layer(torch.zeros(1, 5))
    assert meter.total == (2 * EVERY * 4 + 1) * 2 * 5 * 3
