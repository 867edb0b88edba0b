"""What is said about bad input: the argument, what was expected, what came."""

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from lai_core._engine.namespace import Array, Namespace, is_floating

DEFAULT_MEMORY_BUDGET = 2**30
"""Bytes that the temporaries of one call may take where the caller names no `memory_budget`: 1 GiB."""


def quote_words(words: Iterable[object]) -> str:
    return ", ".join(repr(word) for word in words)


def check_floating(name: str, array: Array, xp: Namespace) -> None:
    if not is_floating(xp, array.dtype):
        msg = f"{name}: expected a real floating dtype, got {array.dtype}"
        raise TypeError(msg)


def check_not_empty(name: str, array: Array) -> None:
    if 0 in array.shape:
        msg = f"{name}: expected every axis to have at least one entry, got shape {tuple(array.shape)}"
        raise ValueError(msg)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless `value` is one of `choices`, naming the nearest one."""
    if isinstance(value, str) and value in choices:
        return
    written = value.lower().replace("-", "_") if isinstance(value, str) else ""
    near = get_close_matches(written, choices)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    msg = f"{name}: expected one of {quote_words(choices)}, got {value!r}{meant}"
    raise ValueError(msg)


def check_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Raise unless `value` is a finite Python number within the bounds that are given."""
    if isinstance(value, bool) or not isinstance(value, Real):
        msg = f"{name}: expected a Python number, got {type(value).__name__}"
        raise TypeError(msg)
    value = float(value)
    if math.isfinite(value) and above < value < below and at_least <= value <= at_most:
        return
    bounds = [
        f"{sign} {bound}"
        for sign, bound in ((">", above), (">=", at_least), ("<=", at_most), ("<", below))
        if math.isfinite(bound)
    ]
    msg = f"{name}: expected a finite number{' ' if bounds else ''}{' and '.join(bounds)}, got {value!r}"
    raise ValueError(msg)


def check_count(name: str, value: Any, at_least: int = 1) -> int:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < at_least:
        msg = f"{name}: expected a whole number >= {at_least}, got {value!r}"
        raise ValueError(msg) if whole else TypeError(msg)
    return int(value)


def make_budget_error(what: str, needed: int, memory_budget: int, way_out: str) -> ValueError:
    msg = f"memory_budget: expected at least {needed} bytes for {what}, got {memory_budget}; {way_out}"
    return ValueError(msg)
