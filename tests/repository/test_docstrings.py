"""The examples in docstrings run as they stand, of all packages."""

import doctest
import importlib
import pkgutil

import lai_jax
import lai_storage
import lai_torch
import pytest

import lai_core

MODULES = [
    info.name
    for package in (lai_core, lai_storage, lai_torch, lai_jax)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
EXAMPLES = [
    example
    for name in MODULES
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name), name)
    if example.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_gives_what_it_says(example):
    assert doctest.DocTestRunner().run(example).failed == 0
