"""The frame of the studies: the schema, intervals and verdicts, operations, and runs that resume."""

import copy
import dataclasses
import json
import math

import pytest
import torch
from click.testing import CliRunner
from matplotlib.figure import Figure

from experiments import __main__ as commands
from experiments import advice
from experiments.harness import record as records
from experiments.harness.cost import EVERY, Meter
from experiments.harness.page import document
from experiments.harness.statistics import bounds, compared, judged, summary
from experiments.harness.study import Study, Unit, merged

GOOD = {
    "study": "made-up",
    "config": {"seeds": [0, 1, 2]},
    "methods": {"plain": {"accuracy": {"mean": 2.0, "low": 1.0, "high": 3.0, "values": [1.0, 2.0, 3.0]}}},
    "claims": {"it wins": {"paper": "yes", "found": 0.1, "interval": [None, None], "verdict": "undecided"}},
}


def broken(path, value):
    found = copy.deepcopy(GOOD)
    place = found
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return found


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["claims"], None, "record: expected an object with"),
        (["config", "seeds"], [], "config.seeds: expected a list of seeds"),
        (["methods"], {}, "methods: expected at least one method"),
        (["methods", "plain", "accuracy", "values"], [1.0], "expected 3 values, one a seed, got"),
        (["methods", "plain", "accuracy", "mean"], float("nan"), "mean: expected a finite number, got nan"),
        (["methods", "plain", "accuracy", "low"], 2.5, "expected low <= mean <= high"),
        (["methods", "plain", "accuracy", "high"], None, "expected an object with"),
        (["claims", "it wins", "verdict"], "sure", "verdict: expected one of"),
        (["claims", "it wins", "interval"], [1.0], "interval: expected two ends"),
        (["claims", "it wins", "found"], "much", "found: expected a finite number, got 'much'"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(path, value, message):
    records.check(GOOD)
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        records.check(broken(path, value))


def test_committed_records_fit_the_schema_and_hold_no_path_of_a_machine():
    for name, record in records.committed().items():
        assert record["study"] == name
        assert record["config"]["size"] == "full"
        assert len(record["config"]["seeds"]) >= 5
        assert "/" not in record["config"]["machine"]
        assert record["claims"] == commands.STUDIES[name].claims(record["methods"])
        for metrics in record["methods"].values():
            for metric, of in metrics.items():
                assert of == summary(of["values"], metric), "run `python -m experiments page`"
                least, most = bounds(metric)
                assert all(least - 1e-12 <= value <= most for value in of["values"]), metric


def test_intervals_are_students():
    found = summary([1.0, 2.0, 3.0])
    half = 4.302652729911275 / 3**0.5  # the tables' t of two degrees of freedom, times the standard error
    assert (found["mean"], found["values"]) == (2.0, [1.0, 2.0, 3.0])
    assert (found["low"], found["high"]) == pytest.approx((2.0 - half, 2.0 + half), rel=1e-6)
    assert summary([0.5])["low"] is None
    assert summary([0.5, 0.5])["high"] == 0.5


def test_correlations_are_averaged_as_fishers_z():
    values = [math.tanh(z) for z in (1.0, 2.0, 3.0)]
    half = 4.302652729911275 / 3**0.5
    for metric in ("MLP, SGD, rate x1: Pearson", "rank correlation with the next epoch", "figure 1: true"):
        found = summary(values, metric)
        assert found["mean"] == pytest.approx(math.tanh(2.0), rel=1e-5)
        ends = [math.tanh(2.0 - half), math.tanh(2.0 + half)]
        assert [found["low"], found["high"]] == pytest.approx(ends, rel=1e-5)
    assert summary(values)["high"] > 1.0
    assert judged(values, paper="", at_least=-0.5, metric="Pearson")["verdict"] == "holds"


@pytest.mark.parametrize(
    ("metric", "values", "low", "high"),
    [
        ("Spearman", [1.0, 0.5, 1.0], None, 1.0),
        ("Pearson", [1.0, -1.0, 1.0], -1.0, 1.0),  # artanh(1) is no number
        ("here: accuracy", [1.0, 0.9, 1.0], None, 1.0),
        ("here: test loss", [0.1, 2.0, 0.1], 0.0, None),
        ("here: cost", [1.0, 1.0, 9.0], 0.0, None),
    ],
)
def test_no_interval_holds_what_its_metric_cannot_be(metric, values, low, high):
    plain, found = summary(values), summary(values, metric)
    assert found["mean"] == plain["mean"]
    assert found["low"] == (plain["low"] if low is None else low)
    assert found["high"] == (plain["high"] if high is None else high)
    assert (plain["low"], plain["high"]) != (found["low"], found["high"])


def test_a_mean_is_that_of_the_numbers_as_they_are_written():
    values = [0.71670191, 0.65116279, 0.71035941, 0.70824524, 0.66596195]
    found = summary(values)
    assert summary(found["values"]) == found


def test_differences_are_taken_seed_by_seed():
    values = {"a": [0.5, 0.7, 0.9], "b": [0.4, 0.6, 0.79]}  # apart by far less than they spread
    methods = {name: {"accuracy": summary(of)} for name, of in values.items()}
    assert compared(methods, "a", "b", "accuracy", paper="")["verdict"] == "holds"
    assert compared(methods, "b", "a", "accuracy", paper="")["verdict"] == "refuted"
    assert compared(methods, "b", "a", "accuracy", paper="", sign=-1)["verdict"] == "holds"
    assert compared(methods, "a", "b", "accuracy", paper="", at_least=0.1)["verdict"] == "undecided"
    assert judged([1.0], paper="")["verdict"] == "undecided"
    assert judged([0.2, 0.21], paper="", at_most=0.5)["verdict"] == "holds"
    assert judged([0.2, 0.21], paper="", at_most=0.1)["verdict"] == "refuted"


def test_a_meter_counts_some_steps_for_all():
    layer, meter = torch.nn.Linear(5, 3), Meter()
    for _ in range(2 * EVERY):
        with meter.step(), torch.no_grad():
            layer(torch.zeros(4, 5))
    assert meter.watched == 2
    assert meter.total == 2 * EVERY * 2 * 4 * 5 * 3
    with meter.all(), torch.no_grad():
        layer(torch.zeros(1, 5))
    assert meter.total == (2 * EVERY * 4 + 1) * 2 * 5 * 3


def study(calls, fails=False):
    def unit(seed):
        calls.append(seed)
        if fails and seed == 1:
            raise RuntimeError("interrupted")
        return {"plain": {"x": seed}, "oracle": {"x": seed + 1}}

    return Study(
        name="made-up",
        title="Made up",
        about="nothing",
        setting="What is compared.",
        picture="Nothing.",
        config=lambda size: {"seeds": [0, 1]},
        units=lambda config: [Unit("all", s, lambda s=s: unit(s)) for s in config["seeds"]],
        claims=lambda methods: {"more": compared(methods, "oracle", "plain", "x", paper="none")},
        pictures=lambda record: {"empty": Figure()},
        null="plain",
        oracle="oracle",
        columns={"x": "x"},
    )


def test_a_run_that_was_interrupted_goes_on_where_it_stopped(tmp_path):
    calls = []
    with pytest.raises(RuntimeError):
        study(calls, fails=True).run("quick", out=tmp_path)
    record = study(calls).run("quick", out=tmp_path)
    assert calls == [0, 1, 1]
    assert record == json.loads((tmp_path / "made-up.json").read_text())
    assert record["methods"]["oracle"]["x"]["values"] == [1.0, 2.0]
    assert record["claims"]["more"]["verdict"] == "holds"
    assert (tmp_path / "made-up-empty.svg").exists()
    study(calls).run("full", out=tmp_path)  # other settings, other runs
    assert calls == [0, 1, 1, 0, 1]


def training(calls, names):
    """Make a study of whole trainings, one method a unit."""

    def unit(name, seed):
        calls.append((name, seed))
        return {name: {"here: x": seed + len(name)}}

    return dataclasses.replace(
        study([]),
        units=lambda config: [
            Unit(f"here-{name}", seed, lambda name=name, seed=seed: unit(name, seed), (name,), "here: ")
            for seed in config["seeds"]
            for name in names
        ],
        claims=lambda methods: {"more": compared(methods, "oracle", "plain", "here: x", paper="none")},
    )


def test_a_method_is_added_to_a_record_without_running_the_others_again(tmp_path):
    calls = []
    old = training([], ["plain", "oracle"]).run("quick", out=tmp_path / "old")
    new = training(calls, ["plain", "oracle", "new"]).run("quick", out=tmp_path / "new", onto=old)
    assert calls == [("new", 0), ("new", 1)]
    assert new == training([], ["plain", "oracle", "new"]).run("quick", out=tmp_path / "all")
    three = training(calls, ["plain", "oracle"]).run("quick", out=tmp_path / "three")
    assert calls[2:] == [("plain", 0), ("oracle", 0), ("plain", 1), ("oracle", 1)]
    other = three | {"config": three["config"] | {"machine": "an abacus"}}
    with pytest.raises(ValueError, match=r"machine: expected .* in the record to add to, got 'an abacus'"):
        training([], ["plain", "oracle"]).run("quick", out=tmp_path, onto=other)


def test_a_setting_of_the_record_whose_data_are_not_here_is_kept(tmp_path):
    def of(config):
        return [
            Unit(
                f"{where}-{name}",
                0,
                lambda name=name, where=where: {name: {f"{where}: x": 1.0}},
                (name,),
                f"{where}: ",
            )
            for where in config["settings"]
            for name in ("plain", "oracle")
        ]

    made = dataclasses.replace(study([]), units=of, claims=lambda methods: {})
    both = dataclasses.replace(made, config=lambda size: {"seeds": [0], "settings": ["here", "there"]})
    here = dataclasses.replace(made, config=lambda size: {"seeds": [0], "settings": ["here"]})
    record = both.run("quick", out=tmp_path)
    assert here.run("quick", out=tmp_path, onto=record) == record
    alone = both.run("quick", out=tmp_path, settings=["there"])
    assert list(alone["methods"]["plain"]) == ["there: x"]
    with pytest.raises(ValueError, match=r"settings: made-up has \['here'\], got \['there'\]"):
        here.run("quick", out=tmp_path, settings=["there"])


def test_a_unit_of_another_setting_or_of_unknown_methods_is_run():
    record = {"config": {"seeds": [3, 4]}, "methods": {"plain": {"here: x": {"values": [1.0, 2.0]}}}}

    def unit(seed, methods, prefix):
        return Unit("one", seed, dict, methods, prefix).held(record)

    assert unit(4, ("plain",), "here: ") == {"plain": {"here: x": 2.0}}
    assert unit(4, ("plain",), "there: ") is None
    assert unit(4, ("plain", "more"), "here: ") is None
    assert unit(5, ("plain",), "here: ") is None
    assert unit(4, (), "") is None


def test_a_seed_that_lacks_a_metric_is_named():
    with pytest.raises(ValueError, match=r"plain, x: expected values of the seeds \[0, 1\], got .* \[0\]"):
        merged([(0, {"plain": {"x": 1.0}}), (1, {"plain": {"y": 1.0}})], [0, 1])


def test_a_study_without_its_oracle_and_one_of_another_backend_are_refused(tmp_path):
    missing = dataclasses.replace(study([]), oracle="nobody")
    with pytest.raises(ValueError, match="expected results of its oracle 'nobody'"):
        missing.run("quick", out=tmp_path)
    with pytest.raises(ValueError, match="backend: made-up runs on torch, got 'jax'"):
        study([]).run("quick", "jax", out=tmp_path)


def test_the_command_runs_a_study_and_shows_its_claims(tmp_path, monkeypatch):
    monkeypatch.setitem(commands.STUDIES, "noisy-labels", study([]))
    for name in ("noisy-labels", "all"):
        monkeypatch.setattr(commands, "STUDIES", {"noisy-labels": study([])})
        result = CliRunner().invoke(commands.studies, [name, "--quick", "--out", str(tmp_path / name)])
        assert result.exit_code == 0, result.output
        assert "holds  more: +1 (+1 to +1); paper: none" in result.output
        assert (tmp_path / name / "made-up.json").exists()


def test_the_page_is_that_of_the_committed_records():
    text = commands.PAGE.read_text(encoding="utf-8")
    assert text == document(commands.STUDIES.values()), "run `python -m experiments page`"
    assert commands.ADVICE.read_text(encoding="utf-8") == advice.page(), "run `python -m experiments page`"
    for name, record in records.committed().items():
        assert f"results/{name}.json" in text
        assert all(claim in text for claim in record["claims"])


@pytest.mark.slow
def test_every_study_runs_quickly_and_judges_every_claim(tmp_path):
    result = CliRunner().invoke(commands.studies, ["all", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for name in commands.STUDIES:
        record = records.read(tmp_path / f"{name}.json")
        assert record["claims"]
