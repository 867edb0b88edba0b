"""Put a mutant's code in place of what was imported."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path

from tests.mutation.places import Place

Functions = dict[tuple[str, str], list[types.FunctionType]]


def unchanged(place: Place, root: Path) -> Place:
    """Return the mutant that is none."""
    start, end = place.span
    return dataclasses.replace(place, new=(root / place.file).read_bytes()[start:end].decode())


def functions(folders: str | tuple[str, ...]) -> Functions:
    """Find every function of the folders that is alive, behind whatever decorates it."""
    found: Functions = {}
    gc.unfreeze()  # the tests' set-up hides what it froze
    for each in gc.get_objects():
        if type(each) is types.FunctionType and each.__code__.co_filename.startswith(folders):
            found.setdefault((each.__code__.co_filename, each.__code__.co_qualname), []).append(each)
    gc.freeze()  # what no collection visits stays shared with every fork
    return found


def caches(packages: tuple[str, ...]) -> list[Callable[[], None]]:
    """List what empties each cache of the packages: a full one hides from a test what the test reaches."""
    inside = [module for name, module in sys.modules.items() if name.startswith(packages)]
    found = {id(each): each for module in inside for each in vars(module).values() if callable(each)}
    passed = [
        inspect.getclosurevars(each).nonlocals.get("passed")  # of `check_once`
        for each in found.values()
        if type(each) is types.FunctionType
    ]
    return [each.cache_clear for each in found.values() if hasattr(each, "cache_clear")] + [
        each.clear for each in passed if isinstance(each, dict)
    ]


def replace(place: Place, root: Path, alive: Functions) -> bool:
    """Change a function's code; whether there was any to change."""
    path = root / place.file
    source = path.read_bytes()
    start, end = place.span
    tree = compile(source[:start] + place.new.encode() + source[end:], str(path), "exec")
    inner = f"{place.scope}.<locals>."  # what a decorator made before lives on
    changed = False
    for name, code in _codes(tree).items():
        if name != place.scope and (not name.startswith(inner) or name.endswith(">")):
            continue
        for function in alive.get((str(path), name), []):
            changed = True
            if function.__code__.co_freevars == code.co_freevars:
                function.__code__ = code
    return changed


def _codes(code: types.CodeType) -> dict[str, types.CodeType]:
    """List the functions of a module and of its classes by name."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= {constant.co_qualname: constant, **_codes(constant)}
    return found
