"""Checks that decide from layouts alone, made once for each layout."""

from collections.abc import Callable
from functools import cache, wraps
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import is_compiling, place_of
from lai_core.records.base import Record, Trace

KEPT = 256
"""Layouts of which a check remembers that they passed."""

_NEW = object()
_PLAIN = frozenset({bool, int, float, str, type(None)})
_SIGNED: WeakKeyDictionary[Trace, tuple[Any, ...]] = WeakKeyDictionary()

Check = TypeVar("Check", bound=Callable[..., Any])


def check_once(check: Check) -> Check:
    """Skip a check of arguments whose like has passed it, and return what came of it then.

    Like are arguments with the same plain values and traces with the same signature (see `_add`). Failures
    are not remembered, nor is what has no signature: a kind of record of one's own, whose checks may look at
    anything; a key that is neither number nor string; sizes that are symbols; what a compiler reads.
    """
    passed: dict[tuple[Any, ...], Any] = {}

    @wraps(check)
    def checked(*arguments: Any) -> Any:
        # A compiler writes down what is looked up as a condition on the whole table; it checks once anyway.
        if is_compiling():
            return check(*arguments)
        parts: list[Any] = []
        try:
            for argument in arguments:
                _add(argument, parts)
            signature = tuple(parts)
            outcome = passed.get(signature, _NEW)
        except (TypeError, AttributeError):  # no signature, or one with sizes that have no hash
            return check(*arguments)
        if outcome is _NEW:
            outcome = check(*arguments)
            # a symbol's outcome holds under the conditions on that symbol alone
            sizes = (size for part in signature if isinstance(part, tuple) for size in part)
            if all(type(size) is int for size in sizes):
                while len(passed) >= KEPT:
                    passed.pop(next(iter(passed)), None)
                passed[signature] = outcome
        return outcome

    return checked  # type: ignore[return-value]  # it takes what the check takes, by position


def _add(argument: Any, parts: list[Any]) -> None:
    """Append all that a check may depend on: types, shapes, places, static values; never an array.

    One list for all arguments, which no two different ones share: a class says how many parts follow. Where a
    check may depend on more, a `TypeError`.
    """
    kind = type(argument)
    if kind in _PLAIN:
        parts += (kind, argument)  # 1, 1.0 and True are equal, and one alone is a number of groups
    elif kind is Trace:
        parts += _sign(argument)
    elif kind is tuple:
        parts += (kind, len(argument))
        for value in argument:
            _add(value, parts)
    elif kind is Workspace:
        parts += (kind, argument)
    else:
        msg = f"no signature: {kind.__name__}"
        raise TypeError(msg)


def _sign(trace: Trace) -> tuple[Any, ...]:
    """Return a trace's part of a signature, made once: several checks look at one trace."""
    if trace not in _SIGNED:
        parts: list[Any] = [Trace, len(trace.layers)]
        for record in trace.layers:
            _add_record(record, parts)
        _SIGNED[trace] = tuple(parts)
    return _SIGNED[trace]


def _add_record(record: Record, parts: list[Any]) -> None:
    kind = type(record)
    read, arrays = _reader(kind)
    values = read(record)
    parts.append(kind)
    for array in values[:arrays]:
        if array is None:
            parts.append(None)
        else:
            parts += (type(array), array.shape, array.dtype, place_of(array))
    static = values[arrays:]
    if _PLAIN.issuperset(map(type, static)):  # as they mostly are: types before values tell them from others
        parts += (*map(type, static), *static)
        return
    for value in static:
        _add(value, parts)


@cache
def _reader(kind: type[Record]) -> tuple[Callable[[Record], tuple[Any, ...]], int]:
    """Return what reads all fields of a kind, arrays before static ones, and how many arrays there are."""
    if not kind.__module__.startswith("lai_core.records."):
        msg = f"no signature: {kind.__name__}"
        raise TypeError(msg)
    return attrgetter(*kind.array_fields, *kind.static_fields()), len(kind.array_fields)
