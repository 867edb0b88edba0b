"""Tell one run from another: fingerprints of arrays and plain values by content, of code by its name."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from inspect import getclosurevars
from types import FunctionType, MethodType
from typing import Any

from lai_core._adapters import is_array
from lai_storage._safetensors import to_numpy

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(value: Any) -> str:
    """Return what tells a value from others of another content, 32 hexadecimal digits."""
    # Seen is what arrays, numbers, text, containers, dataclasses and partial functions hold. A function or a
    # class counts by its qualified name, not by its code, anything else by its class.
    found = blake2b(digest_size=16)
    for part in _walk(value):
        found.update(part)
    return found.hexdigest()


def find_captured(function: Any) -> list[Any]:
    """Return the arrays and plain values that a pure function holds, on which its results depend."""
    # They are in its closure, among its defaults and in globals that it names; and in functions of the same
    # module that it holds.
    module: str | None = None
    seen: dict[int, Any] = {}  # held, so that none gives its number to another
    found, pending = [], [function]
    while pending:
        value = pending.pop()
        # equal numbers may be one object here and two in another process: each is counted
        if isinstance(value, _PLAIN) or is_array(value):
            found.append(value)
            continue
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, FunctionType) and module in {None, value.__module__}:
            module, held = value.__module__, getclosurevars(value)
            pending += [*held.nonlocals.values(), *held.globals.values()]
            pending += [value.__defaults__ or (), value.__kwdefaults__ or {}]
        elif hasattr(value, "__wrapped__"):  # as of jax.jit
            pending.append(value.__wrapped__)
        else:
            pending += _list_members(value)
    return found


def _walk(value: Any) -> Iterator[Any]:
    """Yield bytes: what each node is, with the number of its members, then the members' own."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    # spawned processes call the main module otherwise; methods of C have none
    module = str(getattr(kind, "__module__", None)).replace("__mp_main__", "__main__")
    yield f"{module}.{kind.__qualname__}".encode()
    members: list[Any] = []
    if isinstance(value, _PLAIN):
        yield repr(value).encode()
    elif is_array(value) and (array := _to_numpy(value)) is not None:
        members = array.tolist() if array.dtype.hasobject else []
        yield f"{value.dtype}{array.shape}".encode()
        yield b"" if array.dtype.hasobject else array.tobytes()
    else:
        members = _list_members(value)
    yield b"%d" % len(members)
    for member in members:
        yield from _walk(member)


def _list_members(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [*value.items()]
    if isinstance(value, list | tuple):
        return [*value]
    if isinstance(value, set | frozenset):
        return sorted(map(fingerprint, value))
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__self__]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in fields(value)]
    return []


def _to_numpy(array: Any) -> Any:
    try:
        return to_numpy(array)
    except (TypeError, RuntimeError):  # random keys of jax, say, are arrays of no numbers
        return None
