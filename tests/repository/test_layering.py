"""Who may import whom: the contracts hold, and each is seen to fail on an injected violation."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("lai_core", "proofs", "experiments", "benchmarks", "workloads", "tests")

VIOLATIONS = {
    "lai_core imports no framework, no adapter and no study": ("lai_core/leak.py", "import numpy"),
    "only one file of lai_core imports array_api_compat": ("lai_core/leak.py", "import array_api_compat"),
    "lai_torch imports lai_core and torch alone": ("lai_torch/leak.py", "import lai_jax"),
    "lai_jax imports lai_core and jax alone": ("lai_jax/leak.py", "import torch"),
    "a proof does not lean on what it judges": ("proofs/prove_leak.py", "import lai_core"),
    "lai_core's chapters stand on records, the theory's arrays and the engine": (
        "lai_core/_engine/leak.py",
        "import lai_core.records.base",
    ),
    "lai_torch's doors stand on its rooms": ("lai_torch/_model/leak.py", "import lai_torch.trace"),
    "lai_jax's doors stand on its rooms": ("lai_jax/_program/leak.py", "import lai_jax._recording.plan"),
    "what tests and benchmarks share stands on neither": ("workloads/leak.py", "import benchmarks.report"),
    "tests of the library do not stand on benchmarks": ("tests/support/leak.py", "import benchmarks.report"),
    "no room and no file imports in a circle": (
        "lai_torch/_model/batch.py",
        "import lai_torch._model.function",
    ),
}


def copied(into: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        shutil.copytree(ROOT / part, into / part, ignore=ignored)
    for adapter in ("lai_torch", "lai_jax"):
        shutil.copytree(ROOT / "adapters" / adapter, into / adapter, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", into)
    return into


def lint(folder: Path) -> str:
    """Return what import-linter prints about a copy of the project, imported from that copy."""
    code = (
        "import sys; sys.path.insert(0, '.'); "
        "from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_contracts_hold(tmp_path):
    printed = lint(copied(tmp_path))
    assert f"Contracts: {len(VIOLATIONS)} kept, 0 broken." in printed, printed


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_each_contract_fails_on_an_injected_violation(tmp_path, contract):
    path, line = VIOLATIONS[contract]
    (copied(tmp_path) / path).write_text(line + "\n")
    assert f"{contract} BROKEN" in " ".join(lint(tmp_path).split())
