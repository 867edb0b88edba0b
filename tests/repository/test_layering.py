"""What is private stays private; which package may import which, `make lint` says."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


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


def test_nothing_private_is_taken_of_a_sibling_nor_by_an_adapter_of_the_core():
    assert not [line for path, file in FILES.items() for line in private(path, file.read_text())]
