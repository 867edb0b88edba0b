"""Small operations that several chapters of the theory share, and checks of matrices that are multiplied."""

from collections.abc import Sequence

from lai_core._engine.namespace import Array, Namespace, matmul


def apply(xp: Namespace, matrix: Array, vector: Array) -> Array:
    """Multiply `(..., m, n)` by `(..., n)`: `(..., m)`."""
    return matmul(xp, matrix, vector[..., None])[..., 0]


def dot(xp: Namespace, left: Array, right: Array) -> Array:
    return xp.sum(left * right, axis=-1)


def multiply_transposed(xp: Namespace, left: Array, right: Array) -> Array:
    return matmul(xp, xp.matrix_transpose(left), right)


def quotient(xp: Namespace, numerator: Array, denominator: Array, otherwise: float) -> Array:
    """Divide, with `otherwise` where the denominator is 0; differentiable on both branches."""
    zero = denominator == 0
    safe = xp.where(zero, xp.ones_like(denominator), denominator)
    return xp.where(zero, xp.full_like(numerator, otherwise), numerator / safe)


def solve(xp: Namespace, matrix: Array, right: Array, message: str) -> Array:
    """Solve a linear system; raise a `ValueError` with the message where a namespace calls it singular."""
    try:
        return xp.linalg.solve(matrix, right)
    except (ValueError, RuntimeError) as error:  # numpy's and torch's own kinds derive from these
        raise ValueError(message) from error


def check_chain(name: str, matrices: Sequence[Array]) -> None:
    """Raise unless each matrix has as many columns as the next has rows, so that they multiply."""
    for index in range(1, len(matrices)):
        before, columns = f"{name}[{index - 1}]", matrices[index - 1].shape[-1]
        shape = tuple(matrices[index].shape)
        if shape[-2] != columns:
            msg = f"{name}[{index}]: expected {columns} rows, as {before} has columns, got shape {shape}"
            raise ValueError(msg)


def check_width(name: str, vector: Array, like: Array, of: str) -> None:
    """Raise unless the last axis of `vector` is as long as that of `like`, which is called `of`."""
    width, shape = like.shape[-1], tuple(vector.shape)
    if shape[-1] != width:
        msg = f"{name}: expected a last axis of length {width} as {of} has, got shape {shape}"
        raise ValueError(msg)
