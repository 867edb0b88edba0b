"""The examples in the docstrings run, and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import lai_core

MODULES = [module.name for module in pkgutil.walk_packages(lai_core.__path__, "lai_core.")]
EXAMPLES = [
    example for name in MODULES for example in doctest.DocTestFinder().find(importlib.import_module(name))
]


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.examples], ids=lambda one: one.name)
def test_an_example_prints_what_it_says(example):
    assert doctest.DocTestRunner().run(example).failed == 0
