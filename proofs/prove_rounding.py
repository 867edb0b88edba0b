r"""How far n roundings of every term move a sum, in whichever order it is taken.

One rounding more. With :math:`\gamma_n = n u / (1 - n u)`, a factor within :math:`\gamma_n` of 1 and another
one within u give a product within :math:`\gamma_n (1 + u) + u` of 1, which is at most :math:`\gamma_{n+1}`.

The sum. Term t of the exact sum is :math:`t (1 + \theta)` in the computed one, with its own :math:`\theta`,
since each operation on the way multiplies it by :math:`1 + \delta`: multiplications and additions alike, and
whether another addition comes before or after is the same for the number of factors. What is shown for two
terms of either sign adds up over all.
"""

import sympy as sp

from proofs._harness import AtMost, Statement, Steps, settled, under, within
from proofs._rewrites import put, times
from proofs._symbols import dot, numbers, parts_of, product, total

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
def prove_rounding_error(statement: Statement, steps: Steps) -> None:
    """Add one rounding to n; then take the positive and the negative parts of the terms apart."""
    size = sp.Symbol("s", nonnegative=True)
    rest = steps.nonnegative("what is not negative", size, [size])
    n = sp.Symbol("n", nonnegative=True)
    left = (1 - n * U) * (1 - (n + 1) * U)
    steps.identity("one rounding more", gamma(n + 1) - gamma(n) * (1 + U) - U, (n + 1) * U**2 / left)

    def one_more(depth: int, row: list, index: int, sign: int):
        before, more = gamma(sp.Integer(depth - 1)), sign * row[-1]
        excess = gamma(sp.Integer(depth)) - before * (1 + U) - U
        if depth == 1:
            return rest.at({size: U - more}) + rest.at({size: excess})
        so_far = steps.hypothesis(statement, depth - 1, index) * (1 + row[-1])
        slack = before * (U - row[-1]) + (U - more)
        return so_far + rest.at({size: slack}) + rest.at({size: excess})

    @steps.conclude(statement)
    def all_operations(depth: int) -> list:
        terms, errors = names(depth)
        each = [
            one_more(depth, row, 2 * i + k, sign)
            for i, row in enumerate(errors)
            for k, sign in enumerate((1, -1))
        ]
        parts = [parts_of(t) for t in terms]
        up = sum(each[2 * i] * plus + each[2 * i + 1] * minus for i, (plus, minus) in enumerate(parts))
        down = sum(each[2 * i + 1] * plus + each[2 * i] * minus for i, (plus, minus) in enumerate(parts))
        return [*each, up, down]
