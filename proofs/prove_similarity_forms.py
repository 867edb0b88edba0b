r"""A layer's similarity: as a bilinear form, and as gain times signal plus remainder.

Every statement multiplies out products of symbolic size. The definition of the similarity is
well posed: it depends on lengths alone, ``4 <g, h> = |g + h|^2 - |g - h|^2``. For the last layer
the operator is an empty product, the identity, and nothing remains beside the signal.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import Equal, Statement, Steps, width
from proofs._symbols import matrix, product, total, vector

WIDTH = 2
ANY = "any depth, any widths"


def symbolic(*names: str) -> list:
    """Name matrices of symbolic size by capitals, vectors by other letters."""
    size = sp.Symbol("d", integer=True, positive=True)
    return [sp.MatrixSymbol(name, size, size if name[0].isupper() else 1) for name in names]


def bare(slug: str, names: str, identity, **kwargs) -> tuple:
    """State ``identity(*symbols)``, once in explicit matrices of width 2, once in symbolic ones."""
    letters = names.split()

    def arguments(depth: int) -> list:
        return [
            sp.Symbol(n, real=True)
            if n == "c"
            else matrix(n, width(WIDTH), width(WIDTH))
            if n[0].isupper()
            else vector(n, width(WIDTH))
            for n in letters
        ]

    def claim(depth: int) -> Equal:
        left, right = identity(sp.eye(width(WIDTH)), *arguments(depth), **kwargs)
        return Equal(sp.Matrix(left), sp.Matrix(right))

    size = sp.Symbol("d", integer=True, positive=True)
    symbols = [sp.Symbol(n, real=True) if n == "c" else symbolic(n)[0] for n in letters]
    return Statement(
        slug=slug,
        scope=ANY,
        claim=claim,
        arguments=arguments,
        parts={"sides": lambda: identity(sp.Identity(size), *symbols, **kwargs), "symbols": symbols},
    )


def multiply_out(statement: Statement, steps: Steps) -> None:
    """Multiply out in symbolic size."""
    shown = steps.identity("multiplied out", *statement.part.sides())
    symbols = statement.part.symbols
    steps.conclude(
        statement,
        lambda depth: shown.at(dict(zip(symbols, statement.arguments(depth), strict=True))),
        depths=(1,),
    )


def bilinear_sides(one, A, B, g, h, *, form=lambda A, B: A.T * B):
    return (A * g).T * (B * h), g.T * form(A, B) * h


BILINEAR = bare("app-M-def", "A B g h", bilinear_sides)
BILINEAR_MUTANTS = {
    "A B'": bare("app-M-def", "A B g h", bilinear_sides, form=lambda A, B: A * B.T),
    "samples exchanged": bare("app-M-def", "A B g h", bilinear_sides, form=lambda A, B: B.T * A),
    "nothing transposed": bare("app-M-def", "A B g h", bilinear_sides, form=lambda A, B: A * B),
}


@pytest.mark.equation("app-M-def")
def prove_app_m_def(settle):
    """Show that a layer's similarity is a bilinear form of the last layer's gradients."""
    settle(BILINEAR, multiply_out, BILINEAR_MUTANTS)


def decomposition_sides(one, M, c, g, h, *, sign: int = -1, signal: int = 1, gain: int = 1):
    return g.T * M * h, signal * c * g.T * h + g.T * (M + sign * c**gain * one) * h


DECOMPOSITION = bare("app-beta-decomp", "M c g h", decomposition_sides)
DECOMPOSITION_MUTANTS = {
    "gain added to the operator": bare("app-beta-decomp", "M c g h", decomposition_sides, sign=1),
    "gain 1 in the remainder": bare("app-beta-decomp", "M c g h", decomposition_sides, gain=0),
    "no signal": bare("app-beta-decomp", "M c g h", decomposition_sides, signal=0),
}


@pytest.mark.equation("app-beta-decomp")
def prove_app_beta_decomp(settle):
    """Show that similarity is gain times signal plus remainder, for any number as gain."""
    settle(DECOMPOSITION, multiply_out, DECOMPOSITION_MUTANTS)


def four_terms(one, A, D, E, c, g, h, *, isotropic: int = 1, cross: int = 1, sign: int = 1):
    """Give the remainder's four terms: A the mean operator, D and E the rests of z and j."""
    anisotropy = A.T * A - isotropic * c * one
    return g.T * (anisotropy + sign * A.T * E + cross * D.T * A + D.T * E) * h


def remainder_sides(one, A, D, E, c, g, h, **kwargs):
    return (
        ((A + D) * g).T * ((A + E) * h) - c * g.T * h,
        four_terms(one, A, D, E, c, g, h, **kwargs),
    )


REMAINDER = bare("remainder", "A D E c g h", remainder_sides)
REMAINDER_MUTANTS = {
    "mean operator not reduced by the gain": bare("remainder", "A D E c g h", remainder_sides, isotropic=0),
    "one cross term": bare("remainder", "A D E c g h", remainder_sides, cross=0),
    "one cross term subtracted": bare("remainder", "A D E c g h", remainder_sides, sign=-1),
}


@pytest.mark.equation("remainder")
def prove_remainder(settle):
    """Show that the four terms are the whole remainder, fluctuations included."""
    settle(REMAINDER, multiply_out, REMAINDER_MUTANTS)


def printed_sides(one, A, D, E, c, g, x, h, y, *, excess: int = 1, square: int = 1):
    """Compare the printed remainder with the true one; x and y are the fluctuations of g and h."""
    M = (A + D).T * (A + E)
    involving = g.T * M * y + x.T * M * h + x.T * M * y
    printed = four_terms(one, A, D, E, c, g + x, h + y) + involving
    true = (g + x).T * M * (h + y) - c * (g + x).T * (h + y)
    return printed - true, excess * (g.T * M * y + x.T * M * h + square * x.T * M * y)


PRINTED = bare("app-eps-explicit", "A D E c g x h y", printed_sides)
PRINTED_MUTANTS = {
    "no excess, as printed": bare("app-eps-explicit", "A D E c g x h y", printed_sides, excess=0),
    "excess subtracted": bare("app-eps-explicit", "A D E c g x h y", printed_sides, excess=-1),
    "both fluctuations together left out": bare(
        "app-eps-explicit", "A D E c g x h y", printed_sides, square=0
    ),
}


@pytest.mark.equation("app-eps-explicit")
def prove_app_eps_explicit(settle):
    """Show that the printed remainder is too large by every term with a fluctuation."""
    settle(PRINTED, multiply_out, PRINTED_MUTANTS)


def last_layer(slug: str, *, factors: int = 0, scale: int = 1, count: int = 0) -> Statement:
    """State that the empty product is the identity, of gain 1: similarity is signal, with no rest."""

    def arguments(depth: int) -> tuple:
        return vector("g", depth), vector("h", depth)

    def claim(depth: int) -> tuple[Equal, ...]:
        g, h = arguments(depth)
        operator = scale * product([sp.eye(depth), *[sp.zeros(depth, depth)] * factors])
        gain = operator.trace() / (depth + count)
        signal = total(x * y for x, y in zip(g, h, strict=True))
        return Equal((g.T * operator * h)[0, 0], signal), Equal(gain, sp.Integer(1))

    return Statement(
        slug=slug,
        scope="any width of the last layer",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"factors": factors, "scale": scale, "count": count},
    )


def last_layer_proof(statement: Statement, steps: Steps) -> None:
    """Take the operator's form and trace in symbolic size."""
    part = statement.part
    size = sp.Symbol("d", integer=True, positive=True)
    g, h = symbolic("g", "h")
    operator = part.scale * sp.Identity(size)
    if part.factors:
        operator = part.scale * sp.ZeroMatrix(size, size)
    similarity = steps.identity("similarity", g.T * operator * h, g.T * h)
    gain = steps.identity("gain", sp.Trace(operator).doit(), size + part.count)

    def in_numbers(depth: int) -> list:
        values = dict(zip((g, h), statement.arguments(depth), strict=True))
        return [similarity.at(values), gain.at({size: depth}) / (depth + part.count)]

    steps.conclude(statement, in_numbers)


def last_layer_mutants(slug: str) -> dict[str, Statement]:
    """Change the operator, its scale, or what its trace is divided by."""
    return {
        "a layer above the last": last_layer(slug, factors=1),
        "operator doubled": last_layer(slug, scale=2),
        "trace over one unit too many": last_layer(slug, count=1),
    }


@pytest.mark.equation("app-beta-L")
def prove_app_beta_l(settle):
    """Show that the last layer has the identity as operator, gain 1 and no remainder."""
    settle(LAST, last_layer_proof, last_layer_mutants("app-beta-L"))


@pytest.mark.equation("shared-signal")
def prove_shared_signal(settle):
    """Show that the last layer's similarity is the shared signal."""
    settle(SIGNAL, last_layer_proof, last_layer_mutants("shared-signal"))


LAST, SIGNAL = last_layer("app-beta-L"), last_layer("shared-signal")


def lengths_sides(one, g, h, *, parts: int = 4, sign: int = -1):
    return sp.Rational(1, parts) * ((g + h).T * (g + h) + sign * (g - h).T * (g - h)), (g.T * h + h.T * g) / 2


LENGTHS = bare("layer-gradients", "g h", lengths_sides)
LENGTHS_MUTANTS = {
    "squared lengths added": bare("layer-gradients", "g h", lengths_sides, sign=1),
    "half of the difference": bare("layer-gradients", "g h", lengths_sides, parts=2),
    "one length alone": bare("layer-gradients", "g h", lengths_sides, sign=0),
}


@pytest.mark.equation("layer-gradients")
def prove_layer_gradients(settle):
    """Show that the similarity is symmetric and a matter of lengths: no coordinates enter."""
    settle(LENGTHS, multiply_out, LENGTHS_MUTANTS)
