r"""A layer's similarity: as a bilinear form, and as gain times signal plus remainder.

Every statement multiplies out products of symbolic size. The definition of the similarity is
well posed: it depends on lengths alone, ``4 <g, h> = |g + h|^2 - |g - h|^2``. For the last layer
the operator is an empty product, the identity, and nothing remains beside the signal.
"""

from collections.abc import Callable

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, plus, times
from proofs._symbols import matrix, symbolic, total, vector

WIDTH = 2
ANY = "any depth, any widths"


def explicit(names: str) -> list:
    """Name the entries of matrices and vectors of width 2; c is a number."""
    kinds = {True: lambda n: matrix(n, width(WIDTH), width(WIDTH)), False: lambda n: vector(n, width(WIDTH))}
    return [sp.Symbol(n, real=True) if n == "c" else kinds[n[0].isupper()](n) for n in names.split()]


def written(names: str, form) -> Callable[[int], sp.Matrix]:
    """Write an expression of the symbols that are named, for any depth."""
    return lambda depth: sp.Matrix(form(*explicit(names)))


def bare(slug: str, names: str, identity) -> Statement:
    """State ``identity(*symbols)``, once in explicit matrices of width 2, once in symbolic ones."""

    def claim(depth: int) -> Equal:
        left, right = identity(sp.eye(width(WIDTH)), *explicit(names))
        return Equal(sp.Matrix(left), sp.Matrix(right))

    symbols = [sp.Symbol(n, real=True) if n == "c" else symbolic(n)[0] for n in names.split()]
    one = sp.Identity(sp.Symbol("d", integer=True, positive=True))
    return Statement(
        slug,
        ANY,
        claim,
        arguments=lambda depth: explicit(names),
        parts={"sides": lambda: identity(one, *symbols), "symbols": symbols},
    )


def bilinear_sides(one, A, B, g, h):
    return (A * g).T * (B * h), g.T * (A.T * B) * h


BILINEAR = bare("app-M-def", "A B g h", bilinear_sides)
BILINEAR_MUTANTS = {
    "A B'": becomes(written("A B g h", lambda A, B, g, h: g.T * A * B.T * h)),
    "samples exchanged": becomes(written("A B g h", lambda A, B, g, h: g.T * B.T * A * h)),
    "nothing transposed": becomes(written("A B g h", lambda A, B, g, h: g.T * A * B * h)),
}


def decomposition_sides(one, M, c, g, h):
    return g.T * M * h, c * g.T * h + g.T * (M - c * one) * h


DECOMPOSITION = bare("app-beta-decomp", "M c g h", decomposition_sides)
DECOMPOSITION_MUTANTS = {
    "gain added to the operator": plus(written("c g h", lambda c, g, h: 2 * c * g.T * h)),
    "gain 1 in the remainder": plus(written("c g h", lambda c, g, h: (c - 1) * g.T * h)),
    "no signal": plus(written("c g h", lambda c, g, h: -c * g.T * h)),
}


def four_terms(one, A, D, E, c, g, h):
    """Give the remainder's four terms: A the mean operator, D and E the rests of z and j."""
    return g.T * (A.T * A - c * one + A.T * E + D.T * A + D.T * E) * h


def remainder_sides(one, A, D, E, c, g, h):
    return ((A + D) * g).T * ((A + E) * h) - c * g.T * h, four_terms(one, A, D, E, c, g, h)


REMAINDER = bare("remainder", "A D E c g h", remainder_sides)
REMAINDER_MUTANTS = {
    "mean operator not reduced by the gain": plus(written("c g h", lambda c, g, h: c * g.T * h)),
    "one cross term": plus(written("A D g h", lambda A, D, g, h: -g.T * D.T * A * h)),
    "one cross term subtracted": plus(written("A E g h", lambda A, E, g, h: -2 * g.T * A.T * E * h)),
}


def printed_sides(one, A, D, E, c, g, x, h, y):
    """Compare the printed remainder with the true one; x and y are the fluctuations of g and h."""
    M = (A + D).T * (A + E)
    involving = g.T * M * y + x.T * M * h + x.T * M * y
    printed = four_terms(one, A, D, E, c, g + x, h + y) + involving
    true = (g + x).T * M * (h + y) - c * (g + x).T * (h + y)
    return printed - true, g.T * M * y + x.T * M * h + x.T * M * y


PRINTED = bare("app-eps-explicit", "A D E c g x h y", printed_sides)
PRINTED_MUTANTS = {
    "no excess, as printed": times(0),
    "excess subtracted": times(-1),
    "both fluctuations together left out": plus(
        written("A D E x y", lambda A, D, E, x, y: -x.T * (A + D).T * (A + E) * y)
    ),
}


def last_layer(slug: str) -> Statement:
    """State that the empty product is the identity, of gain 1: similarity is signal, with no rest."""

    def arguments(depth: int) -> tuple:
        return vector("g", depth), vector("h", depth)

    def claim(depth: int) -> tuple[Equal, ...]:
        g, h = arguments(depth)
        operator = sp.eye(depth)  # the empty product
        gain = operator.trace() / depth
        signal = total(x * y for x, y in zip(g, h, strict=True))
        return Equal((g.T * operator * h)[0, 0], signal), Equal(gain, sp.Integer(1))

    return Statement(slug, "any width of the last layer", claim, depths=(1, 2, 3), arguments=arguments)


LAST, SIGNAL = last_layer("app-beta-L"), last_layer("shared-signal")
LAST_MUTANTS = {
    "a layer above the last": times(0, of="lhs"),
    "operator doubled": times(2, of="lhs"),
    "trace over one unit too many": times(lambda depth: sp.Rational(depth, depth + 1), only=1, of="lhs"),
}


@settled("app-beta-L", LAST, LAST_MUTANTS)
@settled("shared-signal", SIGNAL, LAST_MUTANTS)
def prove_the_last_layers_form(statement: Statement, steps: Steps) -> None:
    """Take the operator's form and trace in symbolic size."""
    g, h = symbolic("g h")
    size = g.rows
    operator = sp.Identity(size)
    similarity = steps.identity("similarity", g.T * operator * h, g.T * h)
    gain = steps.identity("gain", sp.Trace(operator).doit(), size)

    @steps.conclude(statement)
    def in_numbers(depth: int) -> list:
        values = dict(zip((g, h), statement.arguments(depth), strict=True))
        return [similarity.at(values), gain.at({size: depth}) / depth]


def lengths_sides(one, g, h):
    return ((g + h).T * (g + h) - (g - h).T * (g - h)) / 4, (g.T * h + h.T * g) / 2


LENGTHS = bare("layer-gradients", "g h", lengths_sides)
LENGTHS_MUTANTS = {
    "squared lengths added": plus(written("g h", lambda g, h: (g - h).T * (g - h) / 2), of="lhs"),
    "half of the difference": times(2, of="lhs"),
    "one length alone": plus(written("g h", lambda g, h: (g - h).T * (g - h) / 4), of="lhs"),
}


@settled("app-M-def", BILINEAR, BILINEAR_MUTANTS)
@settled("app-beta-decomp", DECOMPOSITION, DECOMPOSITION_MUTANTS)
@settled("remainder", REMAINDER, REMAINDER_MUTANTS)
@settled("app-eps-explicit", PRINTED, PRINTED_MUTANTS)
@settled("layer-gradients", LENGTHS, LENGTHS_MUTANTS)
def prove_forms_that_multiply_out(statement: Statement, steps: Steps) -> None:
    """Multiply out in symbolic size."""
    shown = steps.identity("multiplied out", *statement.part.sides())
    symbols = statement.part.symbols
    steps.conclude(
        statement,
        lambda depth: shown.at(dict(zip(symbols, statement.arguments(depth), strict=True))),
        depths=(1,),
    )
