"""What an array may be, in words: the names of its axes, its kind of numbers."""

from dataclasses import dataclass
from typing import Any, Literal

from lai_core._engine.checks import check_floating, check_not_empty
from lai_core._engine.namespace import Array, Namespace, namespace_of

Sizes = dict[str, tuple[int, str]]
"""For each axis whose length is known: the length, and the argument that had it first."""


@dataclass(frozen=True)
class Axes:
    """What an array may be: its axes in words, its kind of numbers."""

    # each possible shape as the names of its axes: `"n d"`, `"n t d"`; `*space` is one axis or more,
    # `...` any number of axes, `_` an axis of any length, `3` one of this length. Of a record's array
    # the first is the samples', `d` the width that both sides share.
    shapes: tuple[str, ...] = ("n d", "n t d")
    # `real floating`, `integral` or `bool`
    dtype: Literal["real floating", "integral", "bool"] = "real floating"

    def check(self, name: str, array: Array, xp: Namespace, *, sizes: Sizes | None = None) -> None:
        """Raise unless an array has numbers of the kind, entries, and one of the shapes; add to `sizes`."""
        check_kind(name, array, xp, self.dtype)
        known, shape = {} if sizes is None else sizes, tuple(array.shape)
        readings = [reading.split() for reading in self.shapes]
        fits = (lengths for words in readings if (lengths := _fit(words, shape, known)) is not None)
        if (lengths := next(fits, None)) is None:
            written = (
                [f"{one}={known[one][0]}" if one in known else one for one in words] for words in readings
            )
            expected = " or ".join(f"({', '.join(one)}{',' * (len(one) == 1)})" for one in written)
            had = {axis: known[axis] for words in readings for axis in words if axis in known}
            sources = ", ".join(f"{axis}={length} as in {source}" for axis, (length, source) in had.items())
            msg = f"{name}: expected shape {expected}, got {shape}{'; ' if sources else ''}{sources}"
            raise ValueError(msg)
        check_not_empty(name, array)
        for axis, length in lengths.items():
            known.setdefault(axis, (length, name))

    def width(self, array: Array) -> int | None:
        """Return the length of the axis `d`; None where no shape has one."""
        readings = (reading.split() for reading in self.shapes)
        words = next(words for words in readings if _fit(words, tuple(array.shape), {}) is not None)
        return int(array.shape[words.index("d")]) if "d" in words else None


def check_array(name: str, array: Array, *shapes: str, kind: Any = "real floating") -> Namespace:
    """Raise unless an array is what `Axes` of these shapes and this kind say; return its namespace."""
    xp = namespace_of({name: array})
    Axes(shapes, kind).check(name, array, xp)
    return xp


def check_kind(name: str, array: Array, xp: Namespace, kind: str) -> None:
    if kind == "real floating":
        check_floating(name, array, xp)
    elif not xp.isdtype(array.dtype, kind):
        msg = f"{name}: expected {'integers' if kind == 'integral' else 'booleans'}, got {array.dtype}"
        raise TypeError(msg)


def _fit(words: list[str], shape: tuple[int, ...], sizes: Sizes) -> dict[str, int] | None:
    """Return the length of each named axis, or None where the shape does not fit the names."""
    for place, word in enumerate(words):
        if word == "..." or word.startswith("*"):
            more = len(shape) - len(words) + 1
            if more < word.startswith("*"):
                return None
            words = words[:place] + ["_"] * more + words[place + 1 :]
            break
    if len(words) != len(shape):
        return None
    lengths: dict[str, int] = {}
    for axis, length in zip(words, shape, strict=True):
        if axis.isdigit():
            known = int(axis)
        elif axis == "_":
            known = length
        else:
            known = sizes[axis][0] if axis in sizes else lengths.setdefault(axis, length)
        if known != length:
            return None
    return lengths
