r"""What an inner product with the validation gradient says of a step, and what the Hessian would change.

First order. Along ``t - e g`` the loss is ``L - e <v, g> + e^2 <g, S g> / 2`` up to terms of third order
in ``e``, for matrices ``S`` of symbolic size: its slope in ``e`` is ``-<v, g>``, and a central difference
of step h has no other term for quadratics.

Remainder. The slope of the loss along a step of rate ``eta`` differs at time ``t`` from its start by
``c t u(t)`` with ``c = lam eta^2 |g|^2`` and ``|u| <= 1``: that is the Lipschitz condition. The integral
over [0, 1] of the non-negative ``c t (1 - u)`` is non-negative. In numbers u is a constant, written
``(1 - k^2) / (1 + k^2)``, which runs through (-1, 1].

Kantorovich. With eigenvalues ``h_i`` in [m, M] and coordinates ``u_i`` of ``inv(H) g``, every
``(h_i - m) (M - h_i) u_i^2`` is non-negative, so that ``(m + M) A >= B + m M C`` for the sums ``A, B, C`` of
``h u^2, h^2 u^2, u^2``; squares then give ``(m + M)^2 A^2 >= 4 m M B C``. One more eigenvalue adds one
more term to each sum.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps
from proofs._symbols import total, vector

SCOPE = "any number of parameters, any loss with two derivatives"
REMAINDER_SCOPE = "any number of parameters, any loss with a Lipschitz gradient; integrals keep inequalities"
DIFFERENCE_SCOPE = "any number of parameters, any quadratic loss; for others to second order in the step"
KANTOROVICH_SCOPE = "any number of parameters, any positive definite Hessian"
eta, rate, lam, size = sp.symbols("eta rate lambda n", positive=True)


def _loss(displacement: sp.Matrix, slope: sp.Matrix, third: int = 1) -> sp.Expr:
    """Expand a loss about a point: any slope, any curvature, some third derivatives."""
    curvature = _curvature(len(displacement))
    cubic = sum((sp.Symbol(f"t_{i}", real=True) * x**3 for i, x in enumerate(displacement)), sp.S.Zero)
    return slope.dot(displacement) + (displacement.T * curvature * displacement)[0] / 2 + third * cubic


def _curvature(p: int) -> sp.Matrix:
    return sp.Matrix(p, p, lambda i, j: sp.Symbol(f"s_{min(i, j)}{max(i, j)}", real=True))


def slope_statement(*, sign: int = -1, power: int = 1, order: int = 1) -> Statement:
    """State that Eq. 2 is the slope of the validation loss along a step on sample j."""

    def claim(p: int) -> Equal:
        v, g = vector("v", p), vector("g", p)
        change = _loss(-rate * g, v)
        return Equal(change.diff(rate, order).subs(rate, 0), sign * v.dot(g) ** power)

    return Statement(
        slug="IP",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda p: (vector("v", p), vector("g", p)),
        parts={"sign": sign, "power": power, "order": order},
    )


def slope_proof(statement: Statement, steps: Steps) -> None:
    """Show that only the linear part has a slope, and that it adds up over coordinates."""
    part, p = statement.part, sp.Symbol("p", integer=True, positive=True)
    v, g = (sp.MatrixSymbol(name, p, 1) for name in "vg")
    curvature = sp.MatrixSymbol("S", p, p)
    moved = sp.Trace((-rate * g).T * curvature * (-rate * g))
    steps.identity("the curvature's part", moved, rate**2 * sp.Trace(g.T * curvature * g))
    steps.identity("the linear part", sp.Trace(v.T * (-rate * g)), -rate * sp.Trace(v.T * g))
    x, y, a, b, so_far = sp.symbols("x y a b s", real=True)
    change = -rate * (so_far + x * y) + a * rate**2 + b * rate**3
    slope = change.diff(rate, part.order).subs(rate, 0)
    more = steps.identity("one more coordinate", slope, part.sign * (so_far + x * y) ** part.power)

    def all_coordinates(p: int):
        v, g = statement.arguments(p)
        before = total(v[i] * g[i] for i in range(p - 1))
        return more.at({so_far: before, x: v[p - 1], y: g[p - 1]})

    steps.conclude(statement, all_coordinates)


SLOPE = slope_statement()
SLOPE_MUTANTS = {
    "positive printed": slope_statement(sign=1),
    "squared": slope_statement(power=2),
    "the second derivative": slope_statement(order=2),
}


@pytest.mark.equation("IP")
def prove_first_order_change(settle):
    """Show that the printed inner product is the slope of the loss along the step."""
    settle(SLOPE, slope_proof, SLOPE_MUTANTS)


def remainder_statement(*, constant: int = 2, certified: int = 2, lipschitz: bool = True) -> Statement:
    """State the bound on the rest, and the rates at which it cannot change the sign."""
    k = sp.Symbol("k", real=True)
    excess = (1 - k**2) / (1 + k**2) if lipschitz else 1 + k**2
    share, score = sp.Symbol("q", nonnegative=True), sp.Symbol("v", positive=True)

    def claim(depth: int) -> tuple[AtMost, ...]:
        bound = lam * eta**2 * size / constant
        rest = sp.integrate(lam * eta**2 * size * excess * sp.Symbol("t"), (sp.Symbol("t"), 0, 1))
        chosen = certified * score / (lam * size) / (1 + share)
        decided = rest.subs(eta, chosen)
        return (
            AtMost(rest, bound),
            AtMost(-rest, bound),
            AtMost(-chosen * score + decided, sp.S.Zero),
            AtMost(sp.S.Zero, chosen * score + decided),
        )

    return Statement(
        slug="descent-meaning",
        scope=REMAINDER_SCOPE,
        claim=claim,
        arguments=lambda depth: (eta, lam, size),
        parts={"k": k, "q": share, "v": score},
    )


def remainder_proof(statement: Statement, steps: Steps) -> None:
    """Certify the integrand, then the four inequalities, as sums of non-negative terms."""
    part, t = statement.part, sp.Symbol("t", nonnegative=True)
    u = (1 - part.k**2) / (1 + part.k**2)
    steps.nonnegative("integrand above", t * (1 - u), [2 * t * part.k**2 / (1 + part.k**2)])
    steps.nonnegative("integrand below", t * (1 + u), [2 * t / (1 + part.k**2)])
    above, below, falls, rises = statement.relations(1)
    scale = lam * eta**2 * size / (1 + part.k**2)
    steps.nonnegative("bound above", above.rhs - above.lhs, [scale * part.k**2])
    steps.nonnegative("bound below", below.rhs - below.lhs, [scale])
    scale = 2 * part.v**2 / (lam * size) / (1 + part.q) ** 2
    fair = 1 + part.k**2
    steps.nonnegative("falls", falls.rhs - falls.lhs, [scale * part.q, 2 * scale * part.k**2 / fair])
    steps.nonnegative("rises", rises.rhs - rises.lhs, [scale * part.q, 2 * scale / fair])


REMAINDER = remainder_statement()
REMAINDER_MUTANTS = {
    "half the bound": remainder_statement(constant=4),
    "twice the certified rate": remainder_statement(certified=4),
    "no Lipschitz constant": remainder_statement(lipschitz=False),
}


@pytest.mark.equation("descent-meaning")
def prove_descent_meaning(settle):
    """Show the bound on the rest and what it decides."""
    settle(REMAINDER, remainder_proof, REMAINDER_MUTANTS)


def cosine_statement(*, factor: int = 4, low: str = "kept") -> Statement:
    """State the least squared cosine between a vector and its product with an inverse."""
    smallest = sp.Symbol("m", positive=True)
    spread = sp.Symbol("d", nonnegative=True)
    largest = smallest + spread

    def sums(p: int) -> tuple[sp.Expr, ...]:
        found = [sp.S.Zero] * 3
        for u, s in zip(vector("u", p), shares(p), strict=True):
            h = (smallest + largest * s) / (1 + s)
            found = [x + h**power * u**2 for x, power in zip(found, (1, 2, 0), strict=True)]
        return tuple(found)

    def claim(p: int) -> AtMost:
        a, b, c = sums(p)
        bottom = smallest if low == "kept" else largest
        return AtMost(factor * bottom * largest * b * c / (smallest + largest) ** 2, a**2)

    return Statement(
        slug="hessian-cosine",
        scope=KANTOROVICH_SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda p: (smallest, spread, vector("u", p), sp.Matrix(shares(p))),
        parts={"m": smallest, "M": largest, "factor": factor, "low": low},
    )


def shares(p: int) -> tuple:
    """Name where each eigenvalue lies between the extremes."""
    return sp.symbols(f"s_:{p}", nonnegative=True)


def cosine_proof(statement: Statement, steps: Steps) -> None:
    """Certify one eigenvalue's term, then the squares of the sums."""
    part = statement.part
    m, (x, y) = sp.Symbol("m", positive=True), sp.symbols("x y", nonnegative=True)
    u = sp.Symbol("u", real=True)
    h, top = m + x, m + x + y
    term = u**2 * ((m + top) * h - h**2 - m * top)
    one = steps.nonnegative("one eigenvalue", term, [u**2 * x * y])
    b, c, excess, d = sp.symbols("B C E d", nonnegative=True)
    top = m + d
    bottom = m if part.low == "kept" else top
    a = (b + m * top * c + excess) / (m + top)
    slack = (m + top) ** 2 * a**2 - part.factor * bottom * top * b * c
    sum_so_far = b + m * top * c
    shown = [(b - m * top * c) ** 2, 2 * excess * sum_so_far, excess**2]
    whole = steps.nonnegative("the sums", slack, shown)

    def added_up(p: int):
        _, spread, entries, found = statement.arguments(p)
        between = [(v, spread * s / (1 + s), spread / (1 + s)) for v, s in zip(entries, found, strict=True)]
        eigenvalues = [(m + below, v) for v, below, _ in between]
        sums = {b: total(h**2 * v**2 for h, v in eigenvalues), c: total(v**2 for _, v in eigenvalues)}
        left = total(one.at({u: v, x: below, y: above}) for v, below, above in between)
        return whole.at({d: spread, excess: left, **sums}) / (2 * m + spread) ** 2

    steps.conclude(statement, added_up)


COSINE = cosine_statement()
COSINE_MUTANTS = {
    "a larger factor": cosine_statement(factor=5),
    "the largest eigenvalue twice": cosine_statement(low="largest"),
}


@pytest.mark.equation("hessian-cosine")
def prove_hessian_cosine(settle):
    """Show Kantorovich's inequality for the gradient and its product with the inverse."""
    settle(COSINE, cosine_proof, COSINE_MUTANTS)


def difference_statement(*, behind: int = -1, divisor: int = 2, sign: int = 1) -> Statement:
    """State that two forward passes along the validation gradient give the inner product."""
    h = sp.Symbol("h", positive=True)

    def claim(p: int) -> tuple[Equal, Equal]:
        v, g = vector("v", p), vector("g", p)
        passes = (_loss(h * v, g, third=0) - _loss(behind * h * v, g, third=0)) / (divisor * h)
        return (
            Equal(passes, sign * v.dot(g)),
            Equal(_loss(rate * v, g).diff(rate).subs(rate, 0), sign * v.dot(g)),
        )

    return Statement(
        slug="directional-derivative",
        scope=DIFFERENCE_SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda p: (vector("v", p), vector("g", p)),
        parts={"behind": behind, "divisor": divisor, "sign": sign, "h": h},
    )


def difference_proof(statement: Statement, steps: Steps) -> None:
    """Cancel the even part for matrices of any size."""
    part, p = statement.part, sp.Symbol("p", integer=True, positive=True)
    v, g = (sp.MatrixSymbol(name, p, 1) for name in "vg")
    curvature = sp.MatrixSymbol("S", p, p)

    def at(step: sp.Expr) -> sp.Expr:
        return sp.Trace(g.T * (step * v)) + sp.Trace((step * v).T * curvature * (step * v)) / 2

    passes = at(part.h) - at(part.behind * part.h)
    both = steps.identity("two passes", passes, part.sign * part.divisor * part.h * sp.Trace(g.T * v))

    def divided(p: int) -> list:
        ahead, slope = statement.arguments(p)
        return [both.at({v: ahead, g: slope, curvature: _curvature(p)}) / (part.divisor * part.h), None]

    steps.conclude(statement, divided)
    steps.base(statement, (1, 2), relations=(1,))


DIFFERENCE = difference_statement()
DIFFERENCE_MUTANTS = {
    "one pass at the point itself": difference_statement(behind=0, divisor=1),
    "not divided by two": difference_statement(divisor=1),
    "the other sign": difference_statement(sign=-1),
}


@pytest.mark.equation("directional-derivative")
def prove_directional_derivative(settle):
    """Show that a directional derivative is the score, and two passes give it."""
    settle(DIFFERENCE, difference_proof, DIFFERENCE_MUTANTS)
