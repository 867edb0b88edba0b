"""Objects as one JSON structure and a list of arrays, and back, by the names of their kinds."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from lai_core._adapters import is_array
from lai_core.estimators.gates import GateTrace
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records.base import Record, Trace

Kind = TypeVar("Kind", bound=type)

_KEPT = re.compile(r"bool|u?int(8|16|32|64)|b?float16|float(32|64)|complex64")
"""Types of arrays that the format of the file has."""
_STORABLE: list[type] = [Trace, ValidationSummary, GateTrace]


def storable(kind: Kind) -> Kind:
    """Let `save` keep a dataclass of one's own, field by field; kinds of record need it not.

    Parameters
    ----------
    kind
        A dataclass whose fields can be kept and whose constructor takes them all.

    Returns
    -------
    type
        The kind: usable as a decorator.
    """
    _STORABLE.append(kind)
    return kind


def _name_kind(kind: type) -> str:
    """Name a kind by its package, not by its file: files move."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def _kinds() -> dict[str, type]:
    return {_name_kind(kind): kind for kind in (*_STORABLE, *_subclasses(Record))}


def _subclasses(kind: type[Any]) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield from (each, *_subclasses(each))


def flatten_value(value: Any, where: str, arrays: list[Any]) -> Any:
    """Return `value` as what JSON holds, with each array's place in `arrays`, which is added to."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}  # JSON has no infinity
    if is_array(value):
        dtype = getattr(value.dtype, "name", str(value.dtype).rpartition(".")[2])  # torch's have no name
        if not _KEPT.fullmatch(dtype):
            msg = f"{where}: expected an array of flags, whole numbers or floats up to 64 bits, got {dtype}"
            raise TypeError(msg)
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, Mapping):
        pairs = [(key, flatten_value(item, f"{where}[{key!r}]", arrays)) for key, item in value.items()]
        return {"mapping": [[flatten_value(key, f"{where}, a key", arrays), item] for key, item in pairs]}
    if type(value) in (tuple, list):
        each = [flatten_value(part, f"{where}[{index}]", arrays) for index, part in enumerate(value)]
        return {type(value).__name__: each}
    if _kinds().get(_name_kind(type(value))) is type(value):
        names = [field.name for field in fields(value)]  # type: ignore[arg-type]  # kinds are dataclasses
        parts = {name: flatten_value(getattr(value, name), f"{where}.{name}", arrays) for name in names}
        return {"kind": _name_kind(type(value)), "fields": parts}
    msg = (
        f"{where}: expected an array, a number, text, a trace, a summary, or tuples, lists and mappings of "
        f"these, got {type(value).__name__}"
    )
    raise TypeError(msg)


def rebuilt(structure: Any, arrays: Sequence[Any], path: str) -> Any:
    """Return what was flattened, with `arrays` in their places."""
    if not isinstance(structure, dict):
        return structure
    if "float" in structure:
        return float(structure["float"])
    if "array" in structure:
        return arrays[structure["array"]]
    if "mapping" in structure:
        return {rebuilt(key, arrays, path): rebuilt(item, arrays, path) for key, item in structure["mapping"]}
    for sequence in (tuple, list):
        if sequence.__name__ in structure:
            return sequence(rebuilt(part, arrays, path) for part in structure[sequence.__name__])
    kind = _kinds().get(structure["kind"])
    if kind is None:
        package = structure["kind"].partition(".")[0]
        msg = f"{path}: expected kinds that are imported, got a {structure['kind']}: import {package!r} first"
        raise ValueError(msg)
    return kind(**{name: rebuilt(part, arrays, path) for name, part in structure["fields"].items()})
