"""How functions are called: arrays by position, options by keyword, shapes as the signatures have them."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import lai_jax
import lai_storage
import lai_torch
import numpy as np
import pytest
from jaxtyping import TypeCheckError

import lai_core
from lai_core._engine import factors
from lai_core._engine.gradients import Workspace

CHAPTERS = (
    "assumptions",
    "bounds",
    "calibration",
    "influence",
    "mixtures",
    "optimizers",
    "propagation",
    "shapley",
    "variance",
)
DATA = {"targets", "ids"}
"""What may be left out of a batch and is no option: targets that a mapping holds itself, the rows' names."""


def public(package: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name the functions of a package, its public modules and classes; a dataclass's fields are its own."""
    names = [info.name for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    shown = [name for name in names if "._" not in name]
    for module in (package, *map(importlib.import_module, shown)):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value):
                fields = dataclasses.is_dataclass(value)
                for key, member in vars(value).items():
                    method = getattr(member, "__func__", member)
                    called = not key.startswith("_") or (key == "__init__" and not fields)
                    if called and inspect.isfunction(method):
                        yield f"{module.__name__}.{name}.{key}", method
            elif inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


PACKAGES = lai_core, lai_storage, lai_torch, lai_jax
FUNCTIONS = {name: function for package in PACKAGES for name, function in public(package)}


def misplaced(name: str, function: Callable[..., Any]) -> list[str]:
    """Name the options that go by position and, in the theory, the arrays that go by keyword."""
    theory = name.split(".")[:2] in [["lai_core", chapter] for chapter in CHAPTERS]
    found = []
    for parameter in inspect.signature(function).parameters.values():
        by_keyword = parameter.kind is parameter.KEYWORD_ONLY
        option = parameter.default is not parameter.empty and parameter.name not in DATA
        if option and not by_keyword:
            found.append(f"{name}: option {parameter.name} by position")
        if theory and by_keyword and not option and "Float[" in str(parameter.annotation):
            found.append(f"{name}: array {parameter.name} by keyword")
        bound = parameter.name in {"self", "cls"}
        if theory and parameter.kind is parameter.POSITIONAL_OR_KEYWORD and not bound:
            found.append(f"{name}: {parameter.name} by position and by keyword")
    return found


def test_arrays_are_positional_options_are_keywords():
    assert len(FUNCTIONS) > 200
    assert not [line for name, function in FUNCTIONS.items() for line in misplaced(name, function)]


@pytest.mark.parametrize("package", [lai_torch, lai_jax])
def test_adapters_list_only_public_names(package):
    assert dir(package) == sorted(package.__all__)


def test_wrong_result_shapes_or_types_fail():
    work = Workspace(np, np.float64, 2**20)
    array = np.ones((3, 2, 4))
    assert factors.lay_by_group(array, slice(0, 3), 1, work).shape == (1, 6, 4)
    integers = Workspace(np, np.int64, 2**20)
    with pytest.raises(TypeCheckError):
        factors.lay_by_group(array.astype(int), slice(0, 3), 1, integers)
