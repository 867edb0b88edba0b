"""No package takes what is private to another; who may import whom, `make lint` holds."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "lai_core", ROOT / "adapters")
FILES = {path.relative_to(ROOT): path for package in PACKAGES for path in package.rglob("*.py")}


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
