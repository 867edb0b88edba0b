"""The arrays of one formula, checked against the shapes that the names of their axes prescribe."""

from collections.abc import Mapping

from lai_core._engine.checks import check_floating, check_not_empty
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, namespace_of


def conformed(named: Mapping[str, tuple[Array, str]]) -> tuple[Namespace, tuple[Array, ...]]:
    """Return the arrays' namespace and the arrays in one accumulation type, once their axes agree.

    Parameters
    ----------
    named
        Of each argument its array and the names of its axes, `"n_train p"`: axes of one name have one
        length.

    Returns
    -------
    tuple
        The namespace, and the arrays in order.

    Raises
    ------
    ValueError
        If a shape does not fit, or an axis is empty.
    TypeError
        If an array is not one, is of another namespace, or holds no real floating-point numbers.
    """
    xp = namespace_of({name: array for name, (array, _) in named.items()})
    sizes: dict[str, int] = {}
    for name, (array, axes) in named.items():
        words = axes.split()
        check_axes(name, array, words, sizes)
        check_not_empty(name, array)
        check_floating(name, array, xp)
        sizes |= zip(words, array.shape, strict=True)
    dtype = accumulation_dtype(xp, *(array.dtype for array, _ in named.values()))
    return xp, tuple(cast(xp, array, dtype) for array, _ in named.values())


def check_axes(name: str, array: Array, axes: list[str], sizes: Mapping[str, int]) -> None:
    """Raise unless `array` has these axes, of the lengths that are known.

    Raises
    ------
    ValueError
        If it has not.
    """
    lengths = dict(sizes)
    fits = array.ndim == len(axes) and all(
        lengths.setdefault(axis, got) == got for axis, got in zip(axes, array.shape, strict=True)
    )
    if not fits:
        words = [f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in axes]
        expected = f"({', '.join(words)}{',' if len(words) == 1 else ''})"
        msg = f"{name}: expected shape {expected}, got {tuple(array.shape)}"
        raise ValueError(msg)
