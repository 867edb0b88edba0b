"""Who may import whom: the contracts hold, and each is seen to fail on an injected violation."""

import ast
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


def borrowed(path: Path, text: str) -> list[str]:
    """Name what a file of `lai_core` takes from a sibling that is private to it, modules aside."""
    found, modules = [], set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lai_core"):
            folder = ROOT / str(node.module).replace(".", "/")
            for name in node.names:
                if (folder / name.name).is_dir() or (folder / f"{name.name}.py").exists():
                    modules.add(name.asname or name.name)
                elif name.name.startswith("_"):
                    found.append(f"{path}: {node.module}.{name.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found += [f"{path}: {node.value.id}.{node.attr}"] * node.attr.startswith("_")
    return found


def engine_of(path: Path, text: str) -> list[str]:
    """Name what a file of an adapter imports of the core's private packages; `_adapters` is for adapters."""
    named = [
        name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        )
    ]
    parts = [str(name).split(".") for name in named if str(name).startswith("lai_core.")]
    return [
        f"{path}: {'.'.join(words)}"
        for words in parts
        if any(word.startswith("_") and word != "_adapters" for word in words)
    ]


def files(folder: str) -> dict[Path, str]:
    return {path.relative_to(ROOT): path.read_text() for path in (ROOT / folder).rglob("*.py")}


def test_no_module_of_the_core_takes_a_private_name_of_a_sibling():
    assert not [line for path, text in files("lai_core").items() for line in borrowed(path, text)]


def test_no_adapter_imports_the_cores_engine():
    assert not [line for path, text in files("adapters").items() for line in engine_of(path, text)]


@pytest.mark.parametrize(
    ("check", "line"),
    [
        (borrowed, "from lai_core.estimators.sketches import _check_width"),
        (borrowed, "from lai_core.estimators import _parameters as e\ne._summed([])"),
        (engine_of, "from lai_core._engine.outer import OuterGradient"),
        (engine_of, "import lai_core._engine.outer"),
        (engine_of, "from lai_core.estimators._sides import lai_sides"),
    ],
)
def test_an_injected_import_of_something_private_is_named(check, line):
    assert len(check(Path("leak.py"), line)) == 1


def test_private_modules_and_public_names_may_be_imported():
    assert not borrowed(Path("fine.py"), "from lai_core.estimators import _parameters as e\ne.scores")
    assert not engine_of(Path("fine.py"), "from lai_core import _adapters\nfrom lai_core._adapters import x")


def test_no_folder_of_a_package_holds_more_than_fifteen_entries():
    """Files and folders, `py.typed` aside: what one sees at a glance."""
    folders = {path.parent for package in ("lai_core", "adapters") for path in files(package)}
    entries = {folder: {path.name for path in (ROOT / folder).iterdir()} for folder in folders}
    crowded = {str(folder): len(names - {"py.typed", "__pycache__"}) for folder, names in entries.items()}
    assert not {folder: count for folder, count in crowded.items() if count > 15}
