"""The one argument checker of the theory: it reads the axes of arrays where they are written, in annotations.

`@checked` looks at a function's annotations once, when the function is defined. At every call it raises
unless the arrays come from one namespace and device, hold real floats, and have the axes that are written,
with equal lengths where the names are equal, and none of length zero. Then it calls the function with its
arrays in one type, at least float32. It reads these annotations, and passes on what has another one:

| annotation | the argument |
|---|---|
| `Float[Array, "n_train p"]` | an array with these axes; `...` is for any leading axes, `_` for any length |
| `Integer[Array, " n_train"]` | an array of integers, whose type is left alone |
| `Float[Array, " L"] | Float[Array, "L n_val"]` | an array with either axes |
| `Sequence[...]`, `Mapping[..., ...]` | at least one of these; each element has lengths of its own |
| `tuple[..., ...]` | a pair |
| `Constant` | a Python number, not negative, or an array without axes |
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import UnionType
from typing import Any, Protocol, TypeVar, get_args, get_origin

from jaxtyping import Integer

from lai_core._engine.checks import check_floating, check_not_empty, check_number
from lai_core._engine.namespace import (
    Array,
    DType,
    Namespace,
    accumulation_dtype,
    cast,
    is_array,
    namespace_of,
)

Constant = float | Array
"""A Python number, not negative, or an array without axes, whose value a compiler may not know yet."""

Function = TypeVar("Function", bound=Callable[..., Any])
Sizes = dict[str, tuple[int, str]]
"""For each axis whose length is known: the length, and the argument that had it first."""
Leaf = tuple[str, Array, "Axes", Sizes]
"""An array as it is called in messages, the axes that it should have, and what is known of their lengths."""


class Kind(Protocol):
    """What an annotation asks of an argument."""

    def leaves(self, name: str, value: Any, sizes: Sizes) -> list[Leaf]:
        """List the arrays in `value`, to be checked together with those of the other arguments."""

    def read(self, xp: Namespace, value: Any, dtype: DType) -> Any:
        """Return `value` with its arrays of floats as `dtype`."""


def checked(function: Function) -> Function:
    """Check a function's arguments against its annotations, and hand it its arrays in one type."""
    parameters = inspect.signature(function).parameters.items()
    kinds = {name: _kind(parameter.annotation) for name, parameter in parameters}
    names = tuple(kinds)

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        # Python itself says what is missing, too much or unknown, when the function is called.
        named = (*zip(names, arguments, strict=False), *options.items())
        given = [(kinds.get(name), name, value) for name, value in named]
        sizes: Sizes = {}
        leaves = [leaf for kind, name, value in given if kind for leaf in kind.leaves(name, value, sizes)]
        xp, dtype = _conform(leaves)
        read = [kind.read(xp, value, dtype) if kind else value for kind, _, value in given]
        count = min(len(names), len(arguments))
        return function(*read[:count], *arguments[count:], **dict(zip(options, read[count:], strict=True)))

    return call  # type: ignore[return-value]


def _conform(leaves: list[Leaf]) -> tuple[Namespace, DType]:
    """Check all arrays of a call; return their namespace and the type to compute in, where there are any."""
    if not leaves:
        return None, None
    xp = namespace_of({name: array for name, array, _, _ in leaves})
    for name, array, axes, sizes in leaves:
        axes.check(xp, name, array, sizes)
    floats = [(array, axes) for _, array, axes, _ in leaves if not axes.integers]
    # A constant is read in the type of the arrays beside it: 0.5 as float64 does not widen them.
    arrays = [array for array, axes in floats if axes is not NO_AXES] or [array for array, _ in floats]
    return xp, accumulation_dtype(xp, *(array.dtype for array in arrays))


class Axes:
    """An array whose axes have names: one list of names, or several that would do."""

    def __init__(self, *readings: str, integers: bool = False) -> None:
        self.readings = tuple(tuple(reading.split()) for reading in readings)
        self.integers = integers
        for word in (word for words in self.readings for word in words):
            if not word.isidentifier() and word != "...":
                msg = f"annotation: expected names of axes, `_` or `...`, got {word!r}"
                raise ValueError(msg)

    def leaves(self, name: str, value: Any, sizes: Sizes) -> list[Leaf]:
        """Return the array itself."""
        return [(name, value, self, sizes)]

    def read(self, xp: Namespace, value: Any, dtype: DType) -> Any:
        """Return the array as `dtype`, if it holds floats."""
        return value if self.integers else cast(xp, value, dtype)

    def check(self, xp: Namespace, name: str, array: Array, sizes: Sizes) -> None:
        """Raise unless `array` has the right kind of numbers and the axes; add what is new to `sizes`."""
        if not self.integers:
            check_floating(name, array, xp)
        elif not xp.isdtype(array.dtype, "integral"):
            msg = f"{name}: expected integers, got {array.dtype}"
            raise TypeError(msg)
        shape = tuple(array.shape)
        readings = [_fit(words, shape, sizes) for words in self.readings]
        fits = [lengths for lengths in readings if lengths is not None]
        if not fits:
            expected = " or ".join(_shape(words, sizes) for words in self.readings)
            known = {axis: sizes[axis] for words in self.readings for axis in words if axis in sizes}
            sources = ", ".join(f"{axis}={length} as in {source}" for axis, (length, source) in known.items())
            msg = f"{name}: expected shape {expected}, got {shape}{'; ' if sources else ''}{sources}"
            raise ValueError(msg)
        check_not_empty(name, array)
        for axis, length in fits[0]:
            sizes.setdefault(axis, (length, name))


NO_AXES = Axes("")


class Number:
    """A constant: a Python number, or an array without axes."""

    def leaves(self, name: str, value: Any, sizes: Sizes) -> list[Leaf]:
        """Return the array, if it is one."""
        if is_array(value):
            return [(name, value, NO_AXES, sizes)]
        check_number(name, value, at_least=0.0)
        return []

    def read(self, xp: Namespace, value: Any, dtype: DType) -> Any:
        """Return the number, or the array as `dtype`."""
        return cast(xp, value, dtype) if is_array(value) else float(value)


class Many:
    """A sequence or a mapping, every element of one kind."""

    def __init__(self, element: Kind) -> None:
        self.element = element

    def leaves(self, name: str, value: Any, sizes: Sizes) -> list[Leaf]:
        """Return the arrays of all elements."""
        if is_array(value) or isinstance(value, str) or not isinstance(value, Sequence | Mapping):
            msg = f"{name}: expected a sequence of arrays, got {type(value).__name__}"
            raise TypeError(msg)
        if not value:
            msg = f"{name}: expected at least one array, got none"
            raise ValueError(msg)
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return [leaf for key, one in items for leaf in self.element.leaves(f"{name}[{key}]", one, {})]

    def read(self, xp: Namespace, value: Any, dtype: DType) -> Any:
        """Return a list or a dictionary of what the elements are read as."""
        if isinstance(value, Mapping):
            return {key: self.element.read(xp, one, dtype) for key, one in value.items()}
        return [self.element.read(xp, one, dtype) for one in value]


class Pair:
    """Two arguments that belong together, as a tuple."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def leaves(self, name: str, value: Any, sizes: Sizes) -> list[Leaf]:
        """Return the arrays of both."""
        if not isinstance(value, tuple) or len(value) != len(self.kinds):
            msg = f"{name}: expected a pair of arrays, got {type(value).__name__}"
            raise TypeError(msg)
        parts = enumerate(zip(self.kinds, value, strict=True))
        return [leaf for place, (kind, one) in parts for leaf in kind.leaves(f"{name}[{place}]", one, sizes)]

    def read(self, xp: Namespace, value: Any, dtype: DType) -> Any:
        """Return both as they are read."""
        return tuple(kind.read(xp, one, dtype) for kind, one in zip(self.kinds, value, strict=True))


def _kind(annotation: Any) -> Kind | None:
    """Return what an annotation asks for; None where it says nothing about arrays."""
    if annotation == Constant:
        return Number()
    if hasattr(annotation, "dim_str"):
        return Axes(annotation.dim_str, integers=annotation.dtype is Integer)
    origin, parts = get_origin(annotation), get_args(annotation)
    kinds = [kind for part in parts if (kind := _kind(part))]
    if not kinds:
        return None
    if origin is UnionType and all(hasattr(part, "dim_str") for part in parts):
        return Axes(*(part.dim_str for part in parts))
    if origin in (Sequence, Mapping):
        return Many(*kinds)
    if origin is tuple and len(kinds) == len(parts) == 2:
        return Pair(*kinds)
    msg = f"annotation: expected one of those that `lai_core._theory.arrays` reads, got {annotation}"
    raise ValueError(msg)


def _fit(words: tuple[str, ...], shape: tuple[int, ...], sizes: Sizes) -> list[tuple[str, int]] | None:
    """Return the length of each named axis, or None where the shape does not fit the names."""
    if "..." in words:
        head, more = words.index("..."), len(shape) - len(words) + 1
        if more < 0:
            return None
        words = words[:head] + ("_",) * more + words[head + 1 :]
    if len(words) != len(shape):
        return None
    lengths: dict[str, int] = {}
    for axis, length in zip(words, shape, strict=True):
        known = sizes[axis][0] if axis in sizes else lengths.setdefault(axis, length)
        if axis != "_" and known != length:
            return None
    return [(axis, length) for axis, length in lengths.items() if axis != "_"]


def _shape(words: tuple[str, ...], sizes: Sizes) -> str:
    axes = [f"{axis}={sizes[axis][0]}" if axis in sizes else axis for axis in words]
    return f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
