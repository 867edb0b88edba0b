r"""What Ghost and LAI add up are inner products of gradients, layer by layer.

The gradient of a sample's loss in the weight ``W_l`` is ``g_l a_l'``, so that two samples'
gradients have the inner product ``<a_l, b_l> <g_l, h_l>`` there: Ghost. With the last layer's
gradients in every layer it is the inner product over virtual readouts: LAI. The printed scores
are the negatives.

Why the proof is for every depth and width. A column of the gradient is ``a_m g``; one more column
adds ``a_m b_m <g, h>`` for gradients of symbolic size, and one more layer adds one more term.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, width

SCOPE = f"{STEP}; any widths"
WIDTH = 2


def statement(*, sign: int = -1, power: int = 1, start: int = 0, last: int = -1) -> Statement:
    """State both definitions as gradient inner products; the arguments make mutants."""

    def claim(depth: int) -> tuple[Equal, Equal]:
        a, b, g, h = arguments(depth)
        layers = range(start, depth)
        ghost = sum((_term(a[k].dot(b[k]), g[k].dot(h[k])) for k in layers), sp.Integer(0))
        lai = sum((_term(a[k].dot(b[k]), g[last].dot(h[last])) for k in layers), sp.Integer(0))
        exact = -sum(_inner(a[k], b[k], g[k], h[k]) for k in range(depth))
        readouts = -sum(_inner(a[k], b[k], g[-1], h[-1]) for k in range(depth))
        return Equal(ghost, exact), Equal(lai, readouts)

    def _term(alpha: sp.Expr, beta: sp.Expr) -> sp.Expr:
        return sign * alpha * beta**power

    return Statement(
        slug="app-lai-defs",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"term": _term, "last": last},
    )


def arguments(depth: int) -> tuple:
    """Name the activations and gradients of both samples, layer by layer."""
    return tuple([_vector(f"{name}{k}_") for k in range(depth)] for name in "abgh")


def _vector(name: str) -> sp.Matrix:
    return sp.Matrix(sp.symbols(f"{name}:{width(WIDTH)}", real=True))


def _inner(a: sp.Matrix, b: sp.Matrix, g: sp.Matrix, h: sp.Matrix) -> sp.Expr:
    """Multiply two weight gradients entry by entry."""
    return sum(x * y for x, y in zip(g * a.T, h * b.T, strict=True))


def proof(statement: Statement, steps: Steps) -> None:
    """Show one column, one more column, and that the signal of LAI is the last layer's."""
    term = statement.part.term
    width = sp.symbols("d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, width, 1) for name in "gh")
    x, y, alpha, beta = sp.symbols("x y alpha beta", real=True)
    steps.identity("one column", (x * g).T * (y * h), x * y * (g.T * h))
    steps.identity("one more column", term(alpha, beta) - x * y * beta, term(alpha + x * y, beta))
    for relation in statement.relations(1) + statement.relations(2):
        steps.identity("one and two layers", relation.lhs, relation.rhs)


def product(*, sign: int = -1, factor: int = 4, left: int = 1) -> Statement:
    """State that a similarity is given by lengths alone, whatever the basis."""

    def form(g: sp.MatrixSymbol, h: sp.MatrixSymbol) -> sp.Expr:
        plus, minus = left * g + h, g + sign * h
        return sp.Trace(plus.T * plus) - sp.Trace(minus.T * minus), factor * sp.Trace(g.T * h)

    def claim(depth: int) -> Equal:
        g, h = (sp.Matrix(sp.symbols(f"{name}:{depth}", real=True)) for name in "gh")
        plus, minus = left * g + h, g + sign * h
        return Equal(factor * g.dot(h), plus.dot(plus) - minus.dot(minus))

    return Statement(
        slug="similarities",
        scope="any width",
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda depth: tuple(sp.Matrix(sp.symbols(f"{n}:{depth}", real=True)) for n in "gh"),
        parts={"form": form},
    )


def polarisation(statement: Statement, steps: Steps) -> None:
    """Expand both lengths for vectors of symbolic size."""
    width = sp.symbols("d", integer=True, positive=True)
    vectors = [sp.MatrixSymbol(name, width, 1) for name in "gh"]
    lengths, product = statement.part.form(*vectors)
    polarised = steps.identity("polarisation", product, lengths)
    steps.conclude(
        statement, lambda depth: polarised.at(dict(zip(vectors, statement.arguments(depth), strict=True)))
    )


STATEMENT = statement()
MUTANTS = {
    "a score's sign": statement(sign=1),
    "feedback squared": statement(power=2),
    "first layer left out": statement(start=1),
    "the first layer's feedback": statement(last=0),
}
PRODUCT = product()
PRODUCT_MUTANTS = {
    "lengths added": product(sign=1),
    "half of it": product(factor=2),
    "one side twice": product(left=2),
}


@pytest.mark.equation("app-lai-defs")
def prove_definitions(settle):
    """Settle that Ghost and LAI are the printed sums with the printed sign."""
    settle(STATEMENT, proof, MUTANTS)


@pytest.mark.equation("similarities")
def prove_similarities(settle):
    """Settle that a similarity depends on lengths alone."""
    settle(PRODUCT, polarisation, PRODUCT_MUTANTS)
