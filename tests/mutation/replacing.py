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

PLAIN = (bool, int, float, str, list, tuple, frozenset, dict)
"""What a constant of a module is."""
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
    """Change a function's code, or what its module makes at import; whether there was any to change."""
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
    return changed or _imported(tree, path, alive)


def _with_the_same_fields(kind: type) -> list[type]:
    """List a class and those derived from it that repeat the defaults of its fields."""
    same = [
        each
        for derived in kind.__subclasses__()
        for each in _with_the_same_fields(derived)
        if getattr(each, "__match_args__", None) == getattr(kind, "__match_args__", ())
    ]
    return [kind, *same]


def _codes(code: types.CodeType) -> dict[str, types.CodeType]:
    """List the functions of a module and of its classes by name."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= {constant.co_qualname: constant, **_codes(constant)}
    return found


def _imported(tree: types.CodeType, path: Path, alive: Functions) -> bool:
    """Run a module anew, and give its defaults and its constants to whoever has the old ones."""
    files = ((getattr(module, "__file__", None), module) for module in list(sys.modules.values()))
    old = next((module for file, module in files if file == str(path)), None)
    if old is None:  # no test imports it in this process
        return False
    fresh = types.ModuleType(old.__name__)
    fresh.__dict__.update({name: getattr(old, name) for name in ("__file__", "__package__")})
    known = {id(function) for each in alive.values() for function in each}
    exec(tree, fresh.__dict__)  # the project's own source
    pairs = [
        (before, after)
        for name, found in functions(str(path)).items()
        for after in found
        if id(after) not in known
        for before in alive.get(name, [])
    ]
    for name, value in vars(fresh).items():
        if isinstance(value, type) and value.__module__ == old.__name__:
            same = _with_the_same_fields(vars(old)[name])
            pairs += [(inspect.unwrap(kind.__init__), value.__init__) for kind in same]  # behind its checker
    changed = False
    for before, after in pairs:
        for name in ("__defaults__", "__kwdefaults__"):
            if repr(getattr(before, name, None)) != repr(getattr(after, name, None)):
                setattr(before, name, getattr(after, name))
                changed = True
    for name, value in vars(fresh).items():
        before = vars(old).get(name)
        if not isinstance(value, PLAIN) or " at 0x" in repr(value) or repr(before) == repr(value):
            continue
        for module in list(sys.modules.values()):
            if vars(module).get(name) is before:
                setattr(module, name, value)
                changed = True
    return changed
