"""The wheel holds the import names, the core needs no framework, names are what they say."""

import json
import pkgutil
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from lai_torch._graph.probe import OLDEST

import lai_core

ROOT = Path(__file__).parents[2]
IMPORT_NAMES = {"lai_core", "lai_storage", "lai_torch", "lai_jax"}
HEAVY = ("numpy", "torch", "jax", "scipy", "sympy", "sklearn", "matplotlib")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the source distribution of a copy, which holds what both are made of."""
    into = tmp_path_factory.mktemp("built")
    project = into / "project"
    for name in ("lai_core", "adapters", "tests"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(into)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return into


def test_wheel_holds_import_names_and_types(built):
    names = zipfile.ZipFile(next(built.glob("*.whl"))).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == IMPORT_NAMES
    assert {f"{name}/py.typed" for name in IMPORT_NAMES} <= set(names)
    assert f"lai_core-{lai_core.__version__}.dist-info/METADATA" in names


def test_the_source_distribution_holds_the_tests(built):
    # Who packages the library for a distribution runs them: pytest needs the project's settings too.
    with tarfile.open(next(built.glob("*.tar.gz"))) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames()}
    assert {"pyproject.toml", "LICENSE", "tests/repository/test_packaging.py"} <= names
    assert {name.split("/")[0] for name in names} >= {"lai_core", "adapters", "tests"}


def test_oldest_torch_is_required_and_documented():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["torch"] == [f"torch>={OLDEST}"]
    assert f"on torch {OLDEST} and" in (ROOT / "CONTRIBUTING.md").read_text()
    assert f"torch {OLDEST} or later" in (ROOT / "README.md").read_text()


def test_importing_lai_core_imports_no_framework():
    # jaxtyping looks at numpy's types if numpy is there; that the core does not need it, a contract says.
    modules = [info.name for info in pkgutil.walk_packages(lai_core.__path__, "lai_core.")]
    everything = "; ".join(f"import {name}" for name in modules)
    code = f"import json, sys; {everything}; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert set(json.loads(done.stdout)) <= {"numpy"}


def test_core_dependencies_are_two_and_uncapped():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(d.split(">=")[0] for d in project["dependencies"]) == ["array-api-compat", "jaxtyping"]
    extras = [d for group in project["optional-dependencies"].values() for d in group]
    for requirement in (*project["dependencies"], *extras):
        assert not set("<=!~") & set(requirement.replace(">=", "")), requirement
