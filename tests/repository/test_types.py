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


WRONG = """
import lai_torch
import torch
from torch import Tensor
import lai_core as lai
import lai_jax
from typing import Any

def wrong(model: Any, loss: Any, validation: Any, batch: Any) -> None:
    lai.ghost_scores(batch, batch, exclude_itself=False)
    lai_torch.Curator(model, loss, None, validation, policy="keep_positive")
    lai_torch.Curator(model, loss, None, validation, policy=lai_torch.KeepAbove)
    lai_torch.Curator(model, loss, None, validation, estimator="LAI")
    lai_torch.Curator(model, loss, None, validation, estimator=lai_torch.LAI)
    lai_torch.Curator(model, loss, None, validation, backward="both")
    lai_torch.Curator(model, loss, None, validation, positions="mean")
    lai_torch.top_samples(model, loss, batch, batch, estimator="exact")
    lai_torch.score_dataset(model, loss, batch, batch, "folder", estimator="gost")
    lai_torch.Curator(model, loss, None, validation).step(batch).scores.sum()
    lai_jax.curated_update(model, loss, None, policy=lai.keep_top)
    lai_jax.curated_update(model, loss, None, estimator="midpoint")
    lai_jax.summarize(model, batch, loss, batch, batch, estimator="gost")
    found: int = lai.keep_positive(torch.ones(2))
"""


def test_each_wrong_call_does_not(tmp_path):
    """Every line of the function is one mistake, and each is an error of its own."""
    wrong = tmp_path / "wrong_calls.py"
    wrong.write_text(WRONG)
    done = mypy(wrong)
    lines = WRONG.splitlines()
    first = next(number for number, line in enumerate(lines, start=1) if line.startswith("def wrong")) + 1
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if "wrong_calls.py" in line}
    passed = [lines[number - 1] for number in range(first, len(lines) + 1) if number not in found]
    assert not passed
