r"""How far n roundings of every term move a sum, in whichever order it is taken.

One rounding more. With :math:`\gamma_n = n u / (1 - n u)`, a factor within :math:`\gamma_n` of 1 and another
one within u give a product within :math:`\gamma_n (1 + u) + u` of 1, which is at most :math:`\gamma_{n+1}`.

The sum. Term t of the exact sum is :math:`t (1 + \theta)` in the computed one, with its own :math:`\theta`,
since each operation on the way multiplies it by :math:`1 + \delta`: multiplications and additions alike, and
whether another addition comes before or after is the same for the number of factors. What is shown for two
terms of either sign adds up over all.
"""

import sympy as sp

from proofs._harness import AtMost, Statement, settled, under, within
from proofs._rewrites import put, times
from proofs._symbols import dot, numbers, product, total

U = sp.Symbol("u", nonnegative=True)
NEAREST = "every operation is rounded to nearest, with unit roundoff $u$"


def names(depth: int) -> tuple:
    """Name two terms, and the relative errors of the operations that each of them meets."""
    return *numbers("t", 2), [*numbers("delta0_ delta1_", depth)]


def computed(errors: list) -> sp.Expr:
    """Multiply what the operations make of 1."""
    return product([1 + error for error in errors])


def gamma(n: sp.Expr) -> sp.Expr:
    """Give how far n roundings move a factor from 1 at most."""
    return n * U / (1 - n * U)


def statement(depth: int) -> tuple[AtMost, ...]:
    """State the bound for each term's factor, both ways, and for a sum of two terms."""
    terms, errors = names(depth)
    limit = gamma(sp.Integer(depth))
    moved = [computed(row) - 1 for row in errors]
    return *within(limit, *moved), *within(limit * total(map(abs, terms)), dot(terms, moved))


def nearest(depth: int) -> tuple[AtMost, ...]:
    """State that every operation is rounded to nearest, and that there are not too many."""
    rounded = within(U, *(e for row in names(depth)[1] for e in row))
    return under(NEAREST, rounded) + under("$n u < 1$", (AtMost(depth * U, 1, strict=True),))


STATEMENT = Statement(
    "rounding-error",
    "any depth of operations, in any order; any number of terms, of any sign",
    statement,
    given=nearest,
    depths=(1, 2),
    arguments=lambda depth: (*names(depth)[1], U),
)
MUTANTS = {
    "one rounding less": times(lambda depth: sp.Rational(depth - 1, depth)),
    "the unit roundoff squared": times(U),
    "a sum without absolute values": put(lambda depth: {abs(t): t for t in names(depth)[0]}),
}


@settled("rounding-error", STATEMENT, MUTANTS)
def prove_rounding_error() -> None:
    """Add one rounding to n; then take the positive and the negative parts of the terms apart."""
