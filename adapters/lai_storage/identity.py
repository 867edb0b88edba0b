"""Tell one run from another: fingerprints of arrays and plain values by content, of code by its name."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from types import MethodType
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
    elif isinstance(value, Mapping):
        members = [*value.items()]
    elif isinstance(value, list | tuple):
        members = [*value]
    elif isinstance(value, set | frozenset):
        members = sorted(map(fingerprint, value))
    elif isinstance(value, partial):
        members = [value.func, value.args, value.keywords]
    elif isinstance(value, MethodType):
        members = [value.__self__]
    elif is_dataclass(value) and not isinstance(value, type):
        members = [getattr(value, field.name, None) for field in fields(value)]
    yield b"%d" % len(members)
    for member in members:
        yield from _walk(member)


def _to_numpy(array: Any) -> Any:
    try:
        return to_numpy(array)
    except (TypeError, RuntimeError):  # random keys of jax, say, are arrays of no numbers
        return None
