"""Similarities of a chain's layers, numbered from the top, for each of several validation samples.

A bound on a sum over layers and samples is shown for one term: a product of numbers between their bounds.
"""

from typing import Any

import sympy as sp

from proofs._harness import AtMost, Steps, under, width, within
from proofs._symbols import dot, symbolic, total

SAMPLES = 2
LAST = r"$\alpha^{(L)} \ge \bar\alpha > 0$"


def grid(name: str, depth: int, **kind: bool) -> list[list[sp.Symbol]]:
    """Name a number for every validation sample and layer."""
    return [list(sp.symbols(f"{name}{z}_:{depth}", **kind)) for z in range(width(SAMPLES))]


def similarities(depth: int, *, aligned: bool = False) -> tuple[list, list]:
    """Name alpha and beta; beta is non-negative under A3."""
    return grid("alpha", depth, real=True), grid(
        "beta", depth, **{"nonnegative" if aligned else "real": True}
    )


def scores(alpha: list, beta: list) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Write Ghost, LAI and LLI."""
    samples = list(zip(alpha, beta, strict=True))
    lai, lli = (total(total(x[:layers]) * y[0] for x, y in samples) for layers in (None, 1))
    return total(dot(x, y) for x, y in samples), lai, lli


def a2(alpha: list, bound: sp.Expr) -> tuple[AtMost, ...]:
    """State A2 for every layer of every sample."""
    return under("A2", within(bound**2, *(a for row in alpha for a in row)))


def bounded_product(steps: Steps) -> tuple[tuple, Any]:
    """Show ``|x y| <= a b`` for ``|x| <= a`` and ``|y| <= b``, from above and from below.

    ``values(x, a, y, b)`` puts numbers in, by their slacks: p and q of x, e and f of y.
    """
    p, q, e, f = sp.symbols("p q e f", nonnegative=True)
    most, term = (p + q) / 2 * (e + f) / 2, (q - p) / 2 * (f - e) / 2
    lemmas = (
        steps.nonnegative("from above", most - term, [p * f / 2, q * e / 2]),
        steps.nonnegative("from below", most + term, [q * f / 2, p * e / 2]),
    )
    return lemmas, lambda x, a, y, b: {p: a - x, q: a + x, e: b - y, f: b + y}


def cauchy_schwarz(steps: Steps) -> None:
    """Show that one more coordinate adds a square to what ``<g, w>^2`` is below the squared lengths."""
    g, w = symbolic("g w")
    p, q = sp.symbols("p q", real=True)
    square = sp.Trace((q * g - p * w).T * (q * g - p * w))
    parts = q**2 * sp.Trace(g.T * g) + p**2 * sp.Trace(w.T * w) - 2 * p * q * sp.Trace(g.T * w)
    steps.identity("one more coordinate: the new part is a square", square, parts)


def gradient_of_one_matrix(steps: Steps) -> None:
    """Find the gradient of one matrix, and its inner products column by column."""
    g, h, a, moved = symbolic("g:o h:o a:i V:oi")
    steps.identity("the gradient is g a'", sp.Trace(g.T * (moved * a)), sp.Trace(moved.T * (g * a.T)))
    x, y, alpha = sp.symbols("x y alpha", real=True)
    column = (x * g).T * (y * h)
    steps.identity("one column", column, x * y * (g.T * h))
    steps.identity("one more column", alpha * g.T * h + column, (alpha + x * y) * (g.T * h))
