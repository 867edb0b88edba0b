"""The wheel holds the import names, the core needs no framework, names are what they say."""

import ast
import importlib
import json
import pkgutil
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import lai_core

ROOT = Path(__file__).parents[2]
IMPORT_NAMES = {"lai_core", "lai_storage", "lai_torch", "lai_jax"}
HEAVY = ("numpy", "torch", "jax", "scipy", "sympy", "sklearn", "matplotlib")


def build_wheel(project: Path, into: Path) -> set[str]:
    """Build a wheel and return the names at its top, metadata aside."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (wheel,) = into.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    return {name.split("/")[0] for name in names if ".dist-info/" not in name}


def copy_project(into: Path) -> Path:
    project = into / "project"
    project.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project / name)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("lai_core", "adapters", "tests"):
        shutil.copytree(ROOT / name, project / name, ignore=ignored)
    return project


def test_the_wheel_holds_exactly_the_import_names_and_their_types(tmp_path):
    project = copy_project(tmp_path)
    assert build_wheel(project, tmp_path / "wheel") == IMPORT_NAMES
    names = zipfile.ZipFile(next((tmp_path / "wheel").glob("*.whl"))).namelist()
    assert {f"{name}/py.typed" for name in IMPORT_NAMES} <= set(names)
    assert f"lai_core-{lai_core.__version__}.dist-info/METADATA" in names


def test_the_source_distribution_holds_the_tests(tmp_path):
    # Who packages the library for a distribution runs them: pytest needs the project's settings too.
    project = copy_project(tmp_path)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames()}
    assert {"pyproject.toml", "LICENSE", "tests/repository/test_packaging.py"} <= names
    assert {name.split("/")[0] for name in names} >= {"lai_core", "adapters", "tests"}


def test_another_name_in_the_wheel_would_be_seen(tmp_path):
    project = copy_project(tmp_path)
    settings = (project / "pyproject.toml").read_text()
    leaky = settings.replace('packages = ["lai_core",', 'packages = ["tests", "lai_core",')
    assert leaky != settings
    (project / "pyproject.toml").write_text(leaky)
    assert build_wheel(project, tmp_path / "wheel") == IMPORT_NAMES | {"tests"}


def test_there_is_no_package_called_adapters():
    assert not (ROOT / "adapters" / "__init__.py").exists()


def loaded_by(statement: str) -> set[str]:
    """Return the heavy packages that a fresh interpreter has loaded after `statement`."""
    code = f"import json, sys; {statement}; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(json.loads(done.stdout))


def test_importing_lai_core_imports_no_framework():
    # jaxtyping looks at numpy's types if numpy is there; it must not be the core that needs it.
    everything = "; ".join(f"import {name}" for name in sorted(core_modules()))
    assert loaded_by(everything) <= {"numpy"}
    importers = {path for path in (ROOT / "lai_core").rglob("*.py") if "numpy" in imported_by(path)}
    assert importers == set()


def test_an_import_of_a_framework_would_be_seen(tmp_path):
    assert "torch" in loaded_by("import lai_torch")
    (tmp_path / "leak.py").write_text("import numpy as np\n")
    assert "numpy" in imported_by(tmp_path / "leak.py")


def core_modules() -> set[str]:
    package = importlib.import_module("lai_core")
    return {"lai_core"} | {info.name for info in pkgutil.walk_packages(package.__path__, "lai_core.")}


def imported_by(path: Path) -> set[str]:
    """Return the top-level packages that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def undeclared_names(module) -> set[str]:
    """Return the public functions and classes that a module defines or re-exports outside its `__all__`."""
    declared = set(module.__all__)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").split(".")[0] in IMPORT_NAMES
    }
    return public ^ {name for name in declared if not isinstance(getattr(module, name), type(sys))}


@pytest.mark.parametrize("name", sorted(IMPORT_NAMES))
def test_public_names_match_all(name):
    module = importlib.import_module(name)
    order = sorted(module.__all__, key=lambda name: (not name.isupper(), name))  # as ruff sorts: LAI first
    assert order == list(module.__all__), "__all__ is sorted"
    assert undeclared_names(module) == set()


def test_a_name_missing_from_all_would_be_seen(monkeypatch):
    import lai_core

    monkeypatch.setattr(lai_core, "__all__", [name for name in lai_core.__all__ if name != "Trace"])
    assert undeclared_names(lai_core) == {"Trace"}


def test_the_package_itself_depends_on_two_small_packages_without_upper_pins():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(d.split(">=")[0] for d in project["dependencies"]) == ["array-api-compat", "jaxtyping"]
    extras = [d for group in project["optional-dependencies"].values() for d in group]
    for requirement in (*project["dependencies"], *extras):
        assert not set("<=!~") & set(requirement.replace(">=", "")), requirement
