"""Tell one run from another: fingerprints of data by its content, of functions and classes by their code.

A fingerprint is a Merkle tree over what an object is made of, so that equal objects have one fingerprint in
every process. Seen are numbers, text, arrays, containers, the fields and attributes of objects, and of
functions and classes outside of installed packages their code, closures, defaults and the globals that they
read. Code of installed packages counts by its name: another version of a package is not seen.

A pickle would not do: `pickle` and `dill` write functions of imported modules by name, and what they write
depends on which equal objects are one.
"""

import dis
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copyreg import dispatch_table
from dataclasses import fields, is_dataclass
from functools import singledispatch
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from lai_core._adapters import is_array
from lai_storage._safetensors import to_numpy

__all__ = ["fingerprint"]

_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_LEAVES = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_OF_THE_INTERPRETER = {
    "__abstractmethods__", "__dict__", "__doc__", "__firstlineno__", "__module__", "__slotnames__",
    "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip
"""Entries of a class that say where it stands, or that come and go while a program runs."""


_ORIGIN = {
    "_commit_hash", "_name_or_path", "_original_object_hash", "architectures", "dtype", "name_or_path",
    "transformers_version",
}  # fmt: skip
"""Attributes of a package's objects that say where a model was loaded from or saved to."""


def fingerprint(value: Any) -> str:
    """Return what tells an object from others of another content or other code.

    Parameters
    ----------
    value
        Any object. What cannot be looked into (a lock, an open file) counts by its type.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    return _digest(value, {}).hex()


def _digest(value: Any, seen: dict[int, tuple[Any, bytes]]) -> bytes:
    """Return the digest of a node of the tree; one that holds itself is marked where it comes again."""
    if id(value) in seen:
        return seen[id(value)][1]
    found = blake2b(type(value).__qualname__.encode(), digest_size=16)
    if isinstance(value, memoryview):
        found.update(value)
    elif type(value) in _LEAVES:
        found.update(repr(value).encode())
    else:
        seen[id(value)] = value, b"again"  # the value is kept, so that no other gets its number
        for part in parts_of(value):
            found.update(_digest(part, seen))
        seen[id(value)] = value, found.digest()
    return found.digest()


@singledispatch
def parts_of(value: Any) -> Iterator[Any]:
    """Yield what an object is made of, in an order of its own; adapters register their kinds of objects."""
    yield type(value)
    if is_array(value):
        with suppress(TypeError):  # random keys of jax are arrays of no numbers
            yield from parts_of_array(to_numpy(value))
    elif not is_installed(type(value).__module__) and hasattr(value, "__dict__"):
        own = {field.name for field in fields(value)} if is_dataclass(value) else set()
        # private attributes of a dataclass may be a framework's: flax counts there
        named = vars(value).items()
        yield {name: one for name, one in named if name in own or not (own and name.startswith("_"))}
    elif hasattr(value, "__wrapped__"):  # a compiled function, a cache
        yield value.__wrapped__
        yield [getattr(value, name, None) for name in ("jvp", "fwd", "bwd")]  # rules of jax's
    elif is_dataclass(value):
        yield _drop_origin({field.name: getattr(value, field.name, None) for field in fields(value)})
    else:
        reduce = dispatch_table.get(type(value), lambda one: one.__reduce_ex__(4))
        with suppress(Exception):  # whatever an object's own method raises: it cannot be looked into
            for part in reduce(value):
                items = list(part) if isinstance(part, Iterator) else part
                yield _drop_origin(items) if is_installed(type(value).__module__) else items


def _drop_origin(part: Any) -> Any:
    """Return a part of a package's object, without attributes that say where it came from."""
    if isinstance(part, dict):
        return {name: one for name, one in part.items() if name not in _ORIGIN}
    return part


def parts_of_array(array: Any) -> Iterator[Any]:
    """Yield an array's type, shape and bytes."""
    yield f"{array.dtype}{array.shape}"
    yield list(array.flat) if array.dtype.hasobject else memoryview(array.tobytes())


def parts_of_set(values: Any) -> Iterator[Any]:
    """Yield a set's members in an order that does not depend on their hashes."""
    yield from sorted(map(fingerprint, values))


def parts_of_module(module: ModuleType) -> Iterator[Any]:
    """Yield a module's name and, of one's own, its file: what it is used for is not known."""
    yield module.__name__
    if not is_installed(module.__name__) and (path := getattr(module, "__file__", None)):
        yield Path(path).read_bytes()


def parts_of_function(function: FunctionType) -> Iterator[Any]:
    """Yield a function's defaults and closure and, of one's own, its code and the globals that it reads."""
    yield from (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # of a name that has no value yet
            yield "empty"
    if is_installed(function.__globals__.get("__name__"), function.__code__.co_filename):
        yield f"{function.__module__}.{function.__qualname__}"
        return
    yield function.__code__
    yield vars(function)
    yield from _globals_of(function.__code__, function.__globals__)


def _globals_of(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the globals that a function, or one inside it, reads; of a module what it reads there."""
    found: Any = None
    for one in dis.get_instructions(code):
        if one.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            found = names.get(one.argval)
        elif one.opname in {"LOAD_ATTR", "LOAD_METHOD"} and isinstance(found, ModuleType):
            found = None if is_installed(found.__name__) else getattr(found, one.argval, None)
        elif isinstance(found, ModuleType):  # as a value: whatever of it may be read
            yield found
            found = None
        if found is not None and not isinstance(found, ModuleType):
            yield from (one.argval, found)
            found = None
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _globals_of(one, names)


def parts_of_code(code: CodeType) -> Iterator[Any]:
    """Yield what code does: not where it stands, nor its docstring."""
    flag = getattr(inspect, "CO_HAS_DOCSTRING", None)  # from Python 3.13 on; before, a def's first constant
    documented = code.co_flags & flag if flag else not code.co_name.startswith("<")
    constants = code.co_consts
    if documented and isinstance(constants[0], str | None):
        constants = constants[1:]
    yield from (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants)


def parts_of_class(kind: type) -> Iterator[Any]:
    """Yield a class's name and, of one's own, its bases and what its body defines."""
    yield f"{kind.__module__}.{kind.__qualname__}"
    if not is_installed(kind.__module__):
        yield kind.__bases__
        yield {name: part for name, part in vars(kind).items() if name not in _OF_THE_INTERPRETER}


def is_installed(module: Any, path: str | None = None) -> bool:
    """Whether code is of the interpreter or an installed package, ours included: its name stands for it."""
    if str(module).partition(".")[0] in {"lai_core", "lai_storage", "lai_torch", "lai_jax"}:
        return True
    # in an engine's worker the main program is the engine's, but a class that came from one is its user's
    if path is None and module == "__main__":
        return False
    path = path or getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return module in sys.builtin_module_names
    return path.startswith((*_INSTALLED, "<frozen"))


_RULES: dict[Any, Callable[[Any], Iterator[Any]]] = {
    list: iter,
    tuple: iter,
    Mapping: lambda found: iter(found.items()),
    set: parts_of_set,
    frozenset: parts_of_set,
    MethodType: lambda found: iter((found.__func__, found.__self__)),
    classmethod: lambda found: iter([found.__func__]),
    staticmethod: lambda found: iter([found.__func__]),
    property: lambda found: iter((found.fget, found.fset, found.fdel)),
    ModuleType: parts_of_module,
    FunctionType: parts_of_function,
    CodeType: parts_of_code,
    type: parts_of_class,
}
for _kind, _rule in _RULES.items():
    parts_of.register(_kind, _rule)
