"""A plain run leaves tests/peers alone: it needs packages that only `make peers` installs."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks import seconds
from benchmarks.models import Work

ROOT = Path(__file__).parents[2]
PEERS = {"backpack", "captum", "cleanlab", "dattri", "dattri_llm", "kronfluence", "opacus"}


def test_only_a_run_that_names_the_folder_collects_it(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "proofs").mkdir()
    (tmp_path / "tests" / "peers").mkdir(parents=True)
    (tmp_path / "tests" / "test_ours.py").write_text("def test_ours(): pass\n")
    (tmp_path / "tests" / "peers" / "test_theirs.py").write_text("def test_theirs(): pass\n")
    for paths, names in (([], {"test_ours"}), (["tests/peers"], {"test_theirs"})):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *paths]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        assert {line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line} == names


def importing_a_peer(root: Path) -> set[str]:
    """Return the files that import a peer."""
    found = set()
    for folder in ("lai_core", "adapters", "tests", "proofs", "benchmarks", "experiments", "workloads"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if PEERS & {name.split(".")[0] for name in names}:
                    found.add(path.relative_to(root).as_posix())
    return found


def test_nothing_else_imports_a_peer():
    found = importing_a_peer(ROOT)
    compared = {"benchmarks/peer_torch.py", "benchmarks/ways.py", "benchmarks/judge/libraries.py"}
    assert {Path(name).parent.name for name in found - compared} == {"peers"}
    assert len(found) == 2 + len(compared) + len(PEERS)  # two of kronfluence, two of opacus


def test_the_cost_benchmark_runs_without_a_peer_and_says_how_to_get_one(monkeypatch, capsys):
    def work() -> Work:
        sides = [(torch.ones(n, 3), torch.arange(n) % 2) for n in (4, 6)]
        return Work(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(reduction="none"), *sides)

    monkeypatch.setattr(seconds, "find_spec", lambda name: None)
    monkeypatch.setitem(seconds.COSTED, "tiny", work)
    ratios = seconds.measure_costs(["tiny"], {"ghost_fresh": seconds.COSTS["ghost_fresh"]})
    assert list(ratios["tiny"]) == ["half", "ghost_fresh", "scoring"]
    assert "`make peers`" in capsys.readouterr().out
