r"""Validation sums that stay factors: :math:`G_V = \sum_z g_z c_z^\top` is not built where it is the larger.

A matrix of `d_out` rows and `d_in` columns summed over m samples and positions holds `d_out d_in` numbers,
its factors `m (d_out + d_in)`. A training position's product with the one takes `d_out d_in` multiply-adds,
with the others `m (d_out + d_in)`. So one comparison of shapes decides both: factors are the smaller and the
cheaper while `1/m > 1/d_out + 1/d_in`. A language model's last layer has `d_out` of 50,000 and more, and a
validation set of hundreds of samples stays factors; a classifier's sum is a matrix after a few.
"""

from collections.abc import Sequence

from lai_core._engine.gradients import ParameterGradient, Workspace
from lai_core._engine.namespace import Array, Namespace, cast, matmul
from lai_core._engine.outer import OuterGradient

LEAST = 2**16
"""Numbers of a matrix that is worth its factors: of a smaller one, all products take next to nothing, and a
sum of one size for every validation set is one program for a compiler."""

Factors = tuple[Array, ...]
"""Rows `(m, d_out)`, blocks of columns `(m, d_in_b)` and, for a constant column, ones `(m,)`."""


def are_cheaper(positions: int, height: int, width: int) -> bool:
    """Whether the factors of so many positions are less than the matrix of their sum."""
    return height * width >= LEAST and positions * (height + width) < height * width


def factorize(gradient: ParameterGradient, work: Workspace) -> Factors | None:
    """Return the factors of a validation gradient's sum; None where the sum is the smaller."""
    if type(gradient) is not OuterGradient or gradient.groups > 1:
        return None
    positions = gradient.samples * gradient.positions
    if not are_cheaper(positions, gradient.height, gradient.width):
        return None
    xp = work.xp
    parts = [gradient.rows, *gradient.columns]
    flat = [cast(xp, xp.reshape(part, (positions, part.shape[-1])), work.dtype) for part in parts]
    if gradient.constant is not None:
        flat.append(xp.ones_like(flat[0][:, 0]) * gradient.constant)
    return tuple(flat)


def join_factors(parts: Sequence[Factors], xp: Namespace) -> Factors | None:
    """Return the factors of a sum of sums; None where its matrix is the smaller by now."""
    positions = sum(int(rows.shape[0]) for rows, *_ in parts)
    if not are_cheaper(positions, int(parts[0][0].shape[1]), width_of(parts[0])):
        return None
    return tuple(xp.concat(list(same), axis=0) for same in zip(*parts, strict=True))


def fold(factors: Factors, xp: Namespace) -> tuple[Array, ...]:
    """Return the matrix of the sum, as `OuterGradient.total` does: `(d_out, d_in_b)` a block."""
    rows, *columns = factors
    turned = xp.matrix_transpose(rows)
    return tuple(matmul(xp, turned, block) for block in columns)


def count_entries(factors: Factors) -> int:
    return int(factors[0].shape[1]) * width_of(factors)


def gradient_of(factors: Factors, xp: Namespace) -> OuterGradient:
    """Return the validation gradient that has these factors, each position a sample of its own."""
    rows, *columns = (part if part.ndim == 1 else xp.expand_dims(part, axis=1) for part in factors)
    constant = 1.0 if columns[-1].ndim == 1 else None
    blocks = tuple(block for block in columns if block.ndim == 3)
    return OuterGradient(rows, blocks, constant=constant)


def width_of(factors: Factors) -> int:
    """Return how many columns the matrix has, a constant one included."""
    return sum(1 if block.ndim == 1 else int(block.shape[1]) for block in factors[1:])
