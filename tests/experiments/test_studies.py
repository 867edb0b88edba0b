"""Every study from end to end at its smallest: what its command writes and shows."""

import json

import pytest
from click.testing import CliRunner

from experiments import __main__ as commands
from experiments.harness import record as records
from experiments.harness.page import claims_table, methods_table
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
