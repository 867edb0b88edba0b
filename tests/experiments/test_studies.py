"""Every study from end to end at its smallest: what its command writes, shows and refuses."""

import json

import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from experiments import __main__ as commands
from experiments.harness import record as records
from experiments.harness.page import claims_table, methods_table
from experiments.harness.statistics import compared
from experiments.harness.study import Study, merged
from experiments.studies import STUDIES


def invoke(*options):
    return CliRunner().invoke(commands.studies, [str(option) for option in options])


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_at_its_smallest(name, tmp_path):
    result = invoke(name, "--out", tmp_path, "--quick", "--seeds", 1)
    assert result.exit_code == 0, result.output
    study, record = STUDIES[name], records.read(tmp_path / f"{name}.json")
    assert record["methods"].keys() >= {study.null, study.oracle}
    assert record["claims"]
    assert all(text in result.output and text in claims_table(record) for text in record["claims"])
    assert str(tmp_path.parent) not in json.dumps(record)
    table = methods_table(study, record)
    assert f"{study.null} (null)" in table
    assert f"{study.oracle} (oracle)" in table
    drawn = list(tmp_path.glob(f"{name}-*.svg"))
    assert drawn
    assert all(path.stat().st_size > 5000 for path in drawn)
    assert record["config"]["command"].endswith(f"{name} --quick --seeds 1")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["noisy-labels", "--seeds", "0"], 2, "0 is not in the range"),
        (["noisy-labels", "--epochs", "0"], 2, "0 is not in the range"),
    ],
)
def test_impossible_commands_are_named(tmp_path, options, code, message):
    result = invoke(*options, "--out", tmp_path)
    assert result.exit_code == code
    assert message in " ".join(result.output.split())


def made_up():
    """Make a study of one unit a method and seed."""
    return Study(
        name="made-up",
        title="Made up",
        about="nothing",
        config=lambda size: {"seeds": [0, 1]},
        units=lambda config: [
            (seed, lambda name=name, seed=seed: {name: {"x": seed + len(name)}})
            for seed in config["seeds"]
            for name in ("plain", "oracle")
        ],
        claims=lambda methods: {"more": compared(methods, "oracle", "plain", "x", paper="none")},
        pictures=lambda record: {"empty": Figure()},
        null="plain",
        oracle="oracle",
        columns={"x": "x"},
    )


def test_incomplete_results_are_refused():
    with pytest.raises(ValueError, match=r"plain, x: expected values of the seeds \[0, 1\], got .* \[0\]"):
        merged([(0, {"plain": {"x": 1.0}}), (1, {"plain": {"y": 1.0}})], [0, 1])


def test_command_runs_and_shows_all_studies(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "STUDIES", {"noisy-labels": made_up()})
    for name in ("noisy-labels", "all"):
        result = invoke(name, "--quick", "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert "holds  more: +1 (+1 to +1); paper: none" in result.output
        record = json.loads((tmp_path / name / "made-up.json").read_text())
        assert record["methods"]["oracle"]["x"]["values"] == [6.0, 7.0]
