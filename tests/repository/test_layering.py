"""Who may import whom: the contracts hold, and each is seen to fail on each import it forbids."""

import ast
import itertools
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("lai_core", "proofs", "experiments", "benchmarks", "workloads", "tests")

CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


def violations(contract: dict[str, Any]) -> list[tuple[str, str]]:
    """Name the imports that a contract forbids: a module, and what it may not import.

    Each source by each module forbidden to it; each room by those of the layer above and by its
    neighbours on the floor; in each ancestor, two files in a circle.
    """
    leak = f"leak_{contract['id'].replace('-', '_')}"
    if contract["type"] == "forbidden":
        names = contract["forbidden_modules"]
        return [(f"{source}.{leak}", name) for source in contract["source_modules"] for name in names]
    if contract["type"] == "acyclic_siblings":
        pairs = [(f"{folder}.{leak}", f"{folder}.{leak}_too") for folder in contract["ancestors"]]
        return [both for pair in pairs for both in (pair, pair[::-1])]
    (container,) = contract["containers"]
    floors = [[f"{container}.{room.strip()}" for room in layer.split("|")] for layer in contract["layers"]]
    pairs = [pair for upper, lower in itertools.pairwise(floors) for pair in itertools.product(lower, upper)]
    return pairs + [pair for floor in floors for pair in itertools.permutations(floor, 2)]


def copied(into: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        shutil.copytree(ROOT / part, into / part, ignore=ignored)
    for adapter in ("lai_storage", "lai_torch", "lai_jax"):
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


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what is printed about a copy in which every contract is broken in every way."""
    folder = copied(tmp_path_factory.mktemp("broken"))
    for importer, imported in (pair for contract in CONTRACTS.values() for pair in violations(contract)):
        place = folder.joinpath(*importer.split("."))
        path = place / "leak.py" if place.is_dir() else place.with_suffix(".py")
        with path.open("a") as file:
            file.write(f"\nimport {imported}\n")
    return lint(folder)


def test_the_contracts_hold(tmp_path):
    printed = lint(copied(tmp_path))
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in printed, printed


@pytest.mark.parametrize("name", CONTRACTS)
def test_each_contract_fails_on_each_import_it_forbids(broken, name):
    section = re.split(r"\n-{3,}\n", broken.split(f"\n{name}\n-")[1])[0]
    for importer, imported in violations(CONTRACTS[name]):
        arrow = rf"{re.escape(importer)}\S* -> {re.escape(imported)}\b"
        circle = f"No cycles are allowed in {importer.partition('.')[0]}"
        assert re.search(circle if CONTRACTS[name]["type"] == "acyclic_siblings" else arrow, section), arrow


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


def test_no_folder_of_a_package_holds_more_than_sixteen_entries():
    """Files and folders, `py.typed` and `__main__.py` aside: what one sees at a glance.

    `lai_core` has an entry for each chapter, one more.
    """
    folders = {path.parent for package in ("lai_core", "adapters") for path in files(package)}
    entries = {folder: {path.name for path in (ROOT / folder).iterdir()} for folder in folders}
    crowded = {
        str(folder): len(names - {"py.typed", "__main__.py", "__pycache__"})
        for folder, names in entries.items()
    }
    assert not {folder: count for folder, count in crowded.items() if count > 16 + (folder == "lai_core")}
