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
PARTS = ("lai_core", "proofs", "experiments", "benchmarks", "tests")

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
def test_contracts_fail_on_forbidden_imports(broken, name):
    section = re.split(r"\n-{3,}\n", broken.split(f"\n{name}\n-")[1])[0]
    for importer, imported in violations(CONTRACTS[name]):
        arrow = rf"{re.escape(importer)}\S* -> {re.escape(imported)}\b"
        circle = f"No cycles are allowed in {importer.partition('.')[0]}"
        assert re.search(circle if CONTRACTS[name]["type"] == "acyclic_siblings" else arrow, section), arrow


def private(path: Path, text: str) -> list[str]:
    """Name what a file takes that is private: of a sibling in the core, of the core in an adapter.

    Private modules may be taken inside the core; `lai_core._adapters` is there for adapters.
    """
    found, modules = [], set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        of = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        named = of or [name.name for name in node.names]
        for module in (each for each in named if each.split(".")[0] == "lai_core"):
            if path.parts[0] == "adapters":
                words = module.split(".")
                found += [module] * any(w.startswith("_") and w != "_adapters" for w in words)
                continue
            for name in node.names if of else ():
                inside = ROOT / module.replace(".", "/") / name.name
                if inside.is_dir() or inside.with_suffix(".py").exists():
                    modules.add(name.asname or name.name)
                elif name.name.startswith("_"):
                    found.append(f"{module}.{name.name}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found += [f"{node.value.id}.{node.attr}"] * node.attr.startswith("_")
    return [f"{path}: {name}" for name in found]


PACKAGES = (ROOT / "lai_core", ROOT / "adapters")
FILES = {path.relative_to(ROOT): path for package in PACKAGES for path in package.rglob("*.py")}


def test_no_private_names_cross_packages():
    assert not [line for path, file in FILES.items() for line in private(path, file.read_text())]


@pytest.mark.parametrize(
    ("path", "line", "count"),
    [
        ("lai_core", "from lai_core.estimators.sketches import _check_width", 1),
        ("lai_core", "from lai_core.estimators import _parameters as e\ne._summed([])", 1),
        ("lai_core", "from lai_core.estimators import _parameters as e\ne.scores", 0),
        ("adapters", "from lai_core._engine.outer import OuterGradient", 1),
        ("adapters", "import lai_core._engine.outer", 1),
        ("adapters", "from lai_core.estimators._sides import lai_sides", 1),
        ("adapters", "from lai_core import _adapters\nfrom lai_core._adapters import x", 0),
    ],
)
def test_injected_private_imports_are_named(path, line, count):
    assert len(private(Path(path, "leak.py"), line)) == count


def test_folders_hold_at_most_seventeen_entries():
    """Files and folders, `py.typed` and `__main__.py` aside: what one sees at a glance."""
    for folder in {path.parent for path in FILES.values()}:
        entries = {path.name for path in folder.iterdir()} - {"py.typed", "__main__.py", "__pycache__"}
        assert len(entries) <= 17, folder
