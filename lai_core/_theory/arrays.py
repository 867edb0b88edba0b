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
from typing import Any, TypeVar, get_args, get_origin

from jaxtyping import Float, Integer

from lai_core._engine.axes import Axes, Sizes
from lai_core._engine.checks import check_number
from lai_core._engine.namespace import (
    Array,
    DType,
    Namespace,
    accumulation_dtype,
    cast,
    is_array,
    is_floating,
    namespace_of,
)

Constant = float | Array
"""A Python number, not negative, or an array without axes, whose value a compiler may not know yet."""

Kernels = Float[Array, "L n_val n_train"]
"""Of each layer, a number for every validation and training sample."""
Kernel = Float[Array, "n_val n_train"]
Scores = Float[Array, " n_train"]
ValidationNorms = Float[Array, " n_val"]
TrainingNorms = Float[Array, " n_train"]
Layers = Float[Array, " L"]
Scalar = Float[Array, ""]
Outcomes = Float[Array, " outcomes"]
Numbers = Float[Array, "..."]
Vector = Float[Array, "... d_L"]
"""A last layer's output gradient."""
Flat = Float[Array, " p"]
"""All parameters of a model, or their gradient."""
PerSample = Float[Array, " n"]
SampleGradients = Float[Array, "n p"]
Operator = Float[Array, "... d_l d_L"]
"""A map of a last layer's output gradient to layer l's."""
Gains = Float[Array, "... n"]
"""A number for each of n layers."""

Function = TypeVar("Function", bound=Callable[..., Any])
Leaf = tuple[str, Array, Axes, Sizes]
"""An array as it is called in messages, the axes that it should have, and what is known of their lengths."""
Kind = Any
"""What an annotation asks for: `Axes`, `NO_AXES` of a constant, a list of one kind of element, or a pair."""

NO_AXES = Axes(("",))


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
        leaves = [leaf for kind, name, value in given if kind for leaf in _leaves(kind, name, value, sizes)]
        xp: Namespace = None
        dtype: DType = None
        if leaves:
            xp = namespace_of({name: array for name, array, _, _ in leaves})
            for name, array, axes, own in leaves:
                axes.check(name, array, xp, sizes=own)
            floats = [(array, axes) for _, array, axes, _ in leaves if axes.dtype == "real floating"]
            # A constant is read in the type of the arrays beside it: 0.5 as float64 does not widen them.
            arrays = [array for array, axes in floats if axes is not NO_AXES] or [one for one, _ in floats]
            dtype = accumulation_dtype(xp, *(array.dtype for array in arrays))
        read = [_read(xp, value, dtype) if kind else value for kind, _, value in given]
        count = min(len(names), len(arguments))
        return function(*read[:count], *arguments[count:], **dict(zip(options, read[count:], strict=True)))

    return call  # type: ignore[return-value]


def _leaves(kind: Kind, name: str, value: Any, sizes: Sizes) -> list[Leaf]:
    """List the arrays in an argument, to be checked together with those of the other arguments."""
    if kind is NO_AXES and not is_array(value):
        check_number(name, value, at_least=0.0)
        return []
    if isinstance(kind, Axes):
        return [(name, value, kind, sizes)]
    if isinstance(kind, tuple):
        if not isinstance(value, tuple) or len(value) != len(kind):
            msg = f"{name}: expected a pair of arrays, got {type(value).__name__}"
            raise TypeError(msg)
        parts = zip(kind, (f"{name}[0]", f"{name}[1]"), value, strict=True)
        return [leaf for part in parts for leaf in _leaves(*part, sizes)]
    if is_array(value) or isinstance(value, str) or not isinstance(value, Sequence | Mapping):
        msg = f"{name}: expected a sequence of arrays, got {type(value).__name__}"
        raise TypeError(msg)
    if not value:
        msg = f"{name}: expected at least one array, got none"
        raise ValueError(msg)
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    return [leaf for key, one in items for leaf in _leaves(kind[0], f"{name}[{key}]", one, {})]


def _read(xp: Namespace, value: Any, dtype: DType) -> Any:
    """Return an argument with its arrays of floats as `dtype`, integers as they are, constants as floats."""
    if is_array(value):
        return cast(xp, value, dtype) if is_floating(xp, value.dtype) else value
    if isinstance(value, Mapping):
        return {key: _read(xp, one, dtype) for key, one in value.items()}
    if isinstance(value, Sequence):
        return tuple(_read(xp, one, dtype) for one in value)
    return float(value)


def _kind(annotation: Any) -> Kind | None:
    """Return what an annotation asks for; None where it says nothing about arrays."""
    if annotation == Constant:
        return NO_AXES
    origin, parts = get_origin(annotation), get_args(annotation)
    arrays = parts if origin is UnionType else (annotation,)
    if all(hasattr(one, "dim_str") for one in arrays):
        shapes = tuple(one.dim_str for one in arrays)
        for word in (word for shape in shapes for word in shape.split()):
            if not word.isidentifier() and word != "...":
                msg = f"annotation: expected names of axes, `_` or `...`, got {word!r}"
                raise ValueError(msg)
        integers = getattr(annotation, "dtype", None) is Integer
        return Axes(shapes, "integral" if integers else "real floating")
    kinds = [kind for part in parts if (kind := _kind(part))]
    if not kinds:
        return None
    if origin in (Sequence, Mapping):
        return kinds
    if origin is tuple and len(kinds) == len(parts) == 2:
        return tuple(kinds)
    msg = f"annotation: expected one of those that `lai_core._theory.arrays` reads, got {annotation}"
    raise ValueError(msg)
