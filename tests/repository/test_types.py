"""The contract's call forms pass the type checker, and a wrong one does not."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
CALLS = ROOT / "tests" / "repository" / "contract_calls.py"


def mypy(path: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_contracts_call_forms_pass_the_type_checker():
    done = mypy(CALLS)
    assert done.returncode == 0, done.stdout


def test_a_wrong_call_does_not(tmp_path):
    wrong = tmp_path / "wrong_calls.py"
    wrong.write_text(CALLS.read_text().replace("exclude_self=False", "exclude_itself=False"))
    done = mypy(wrong)
    assert done.returncode == 1
    assert "exclude_itself" in done.stdout
