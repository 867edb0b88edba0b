"""Reading the arrays of one theory function: one namespace, real floats, one accumulation type."""

from collections.abc import Mapping, Sequence
from typing import Any

from lai_core._engine.checks import check_floating, check_not_empty
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, is_array, namespace_of


def prepared(named: Mapping[str, Array]) -> tuple[Namespace, list[Array]]:
    """Return the namespace of the arrays in `named`, and the arrays in one type, at least float32.

    Raises
    ------
    TypeError
        If a value is no array of real floats, or the arrays are of different namespaces.
    ValueError
        If an axis has length zero, or the arrays lie on different devices.
    """
    xp = namespace_of(named)
    for name, array in named.items():
        check_floating(name, array, xp)
        check_not_empty(name, array)
    dtype = accumulation_dtype(xp, *(array.dtype for array in named.values()))
    return xp, [cast(xp, array, dtype) for array in named.values()]


def numbered(name: str, arrays: Any) -> dict[str, Array]:
    """Name the arrays of a sequence in messages, `name[0]` and on.

    Raises
    ------
    TypeError
        If `arrays` is not a sequence.
    ValueError
        If it is empty.
    """
    if is_array(arrays) or isinstance(arrays, str) or not isinstance(arrays, Sequence):
        msg = f"{name}: expected a sequence of arrays, got {type(arrays).__name__}"
        raise TypeError(msg)
    if not arrays:
        msg = f"{name}: expected at least one array, got none"
        raise ValueError(msg)
    return {f"{name}[{index}]": array for index, array in enumerate(arrays)}


def check_width(name: str, array: Array, expected: int, of: str) -> None:
    """Raise unless the last axis of `array` has the length `expected`, that of `of`.

    Raises
    ------
    ValueError
        If it has not.
    """
    if array.ndim < 1 or array.shape[-1] != expected:
        msg = f"{name}: expected a last axis of length {expected} as {of} has, got shape {tuple(array.shape)}"
        raise ValueError(msg)


def check_shape(name: str, array: Array, expected: tuple[int, ...]) -> None:
    """Raise unless `array` has the shape `expected`.

    Raises
    ------
    ValueError
        If it has not.
    """
    if tuple(array.shape) != expected:
        msg = f"{name}: expected shape {expected}, got {tuple(array.shape)}"
        raise ValueError(msg)


def check_chain(name: str, matrices: Sequence[Array]) -> None:
    """Raise unless each matrix has as many columns as the next has rows, so that they multiply.

    Raises
    ------
    ValueError
        If they do not.
    """
    for index, matrix in enumerate(matrices):
        if matrix.ndim < 2:
            msg = f"{name}[{index}]: expected shape (..., d_out, d_in), got {tuple(matrix.shape)}"
            raise ValueError(msg)
        if index and matrices[index - 1].shape[-1] != matrix.shape[-2]:
            msg = (
                f"{name}[{index}]: expected {matrices[index - 1].shape[-1]} rows, as {name}[{index - 1}] "
                f"has columns, got shape {tuple(matrix.shape)}"
            )
            raise ValueError(msg)


def apply(xp: Namespace, matrix: Array, vector: Array) -> Array:
    """Multiply `(..., m, n)` by `(..., n)`: `(..., m)`."""
    return xp.matmul(matrix, vector[..., None])[..., 0]


def dot(xp: Namespace, left: Array, right: Array) -> Array:
    """Inner product over the last axis."""
    return xp.sum(left * right, axis=-1)


def transposed_product(xp: Namespace, left: Array, right: Array) -> Array:
    """Return `left^T right` of matrices."""
    return xp.matmul(xp.matrix_transpose(left), right)
