r"""What an inner product with the validation gradient says of a step.

First order. Along ``t - e g`` the loss is ``L - e <v, g> + e^2 <g, S g> / 2`` up to terms of third order
in ``e``, for matrices ``S`` of symbolic size: its slope in ``e`` is ``-<v, g>``, and a central difference
of step h has no other term for quadratics.

Remainder. The slope of the loss along a step of rate ``eta`` differs at time ``t`` from its start by
``c t u(t)`` with ``c = lam eta^2 |g|^2`` and ``|u| <= 1``: that is the Lipschitz condition. The integral
over [0, 1] of the non-negative ``c t (1 - u)`` is non-negative. In numbers u is a constant, written
``(1 - k^2) / (1 + k^2)``, which runs through (-1, 1].
"""

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, settled, within
from proofs._rewrites import becomes, side, times
from proofs._symbols import dot, symbolic, symmetric, vector

eta, rate, lam, size = sp.symbols("eta rate lambda n", positive=True)


def _loss(displacement: sp.Matrix, slope: sp.Matrix, third: int = 1) -> sp.Expr:
    """Expand a loss about a point: any slope, any curvature, some third derivatives."""
    curvature = symmetric("s", len(displacement))
    cubic = dot(vector("t", len(displacement)), displacement, displacement, displacement)
    return slope.dot(displacement) + (displacement.T * curvature * displacement)[0] / 2 + third * cubic


def gradients(p: int) -> tuple[sp.Matrix, sp.Matrix]:
    """Name the validation gradient and the sample's."""
    return vector("v", p), vector("g", p)


def along(p: int) -> sp.Expr:
    """Give the validation loss along a step on sample j."""
    v, g = gradients(p)
    return _loss(-rate * g, v)


# Eq. 2 is the slope of the validation loss along a step on sample j.
SLOPE = Statement(
    "IP",
    "any number of parameters, any loss with two derivatives",
    lambda p: Equal(along(p).diff(rate).subs(rate, 0), -dot(*gradients(p))),
    depths=(1, 2, 3),
    arguments=gradients,
)
SLOPE_MUTANTS = {
    "positive printed": times(-1),
    "squared": side(lambda slope, p: -(slope**2)),
    "the second derivative": becomes(lambda p: along(p).diff(rate, 2).subs(rate, 0), of="lhs"),
}


@settled("IP", SLOPE, SLOPE_MUTANTS)
def prove_first_order_change(statement: Statement, steps: Steps) -> None:
    """Show that only the linear part has a slope, and that it adds up over coordinates."""
    v, g, curvature = symbolic("v g S")
    moved = sp.Trace((-rate * g).T * curvature * (-rate * g))
    steps.identity("the curvature's part", moved, rate**2 * sp.Trace(g.T * curvature * g))
    steps.identity("the linear part", sp.Trace(v.T * (-rate * g)), -rate * sp.Trace(v.T * g))
    x, y, a, b, so_far = sp.symbols("x y a b s", real=True)
    change = -rate * (so_far + x * y) + a * rate**2 + b * rate**3
    slope = change.diff(rate).subs(rate, 0)
    more = steps.identity("one more coordinate", slope, -(so_far + x * y))

    @steps.conclude(statement)
    def all_coordinates(p: int):
        v, g = statement.arguments(p)
        return more.at({so_far: dot(v[:-1], g[:-1]), x: v[p - 1], y: g[p - 1]})


k = sp.Symbol("k", real=True)
excess = (1 - k**2) / (1 + k**2)
share, score = sp.Symbol("q", nonnegative=True), sp.Symbol("v", positive=True)
rest = sp.integrate(lam * eta**2 * size * excess * sp.Symbol("t"), (sp.Symbol("t"), 0, 1))
chosen = 2 * score / (lam * size) / (1 + share)


def remainder_statement(depth: int) -> tuple[AtMost, ...]:
    """State the bound on the rest, and the rates at which it cannot change the sign."""
    decided = rest.subs(eta, chosen)
    falls = AtMost(-chosen * score + decided, sp.S.Zero)
    return *within(lam * eta**2 * size / 2, rest), falls, AtMost(sp.S.Zero, chosen * score + decided)


REMAINDER = Statement(
    "descent-meaning",
    "any number of parameters, any loss with a Lipschitz gradient; integrals keep inequalities",
    remainder_statement,
    arguments=lambda depth: (eta, lam, size),
)
REMAINDER_MUTANTS = {
    "half the bound": times(sp.Rational(1, 2), only=0),
    "twice the certified rate": becomes(-2 * chosen * score + rest.subs(eta, 2 * chosen), only=2, of="lhs"),
    "no Lipschitz constant": times((1 + k**2) ** 2 / (1 - k**2), only=0, of="lhs"),
}


@settled("descent-meaning", REMAINDER, REMAINDER_MUTANTS)
def prove_descent_meaning() -> None:
    """Certify the integrand, then the four inequalities, as sums of non-negative terms."""


h = sp.Symbol("h", positive=True)


def difference_statement(p: int) -> tuple[Equal, Equal]:
    """State that two forward passes along the validation gradient give the inner product."""
    v, g = gradients(p)
    passes = (_loss(h * v, g, third=0) - _loss(-h * v, g, third=0)) / (2 * h)
    return Equal(passes, v.dot(g)), Equal(_loss(rate * v, g).diff(rate).subs(rate, 0), v.dot(g))


DIFFERENCE = Statement(
    "directional-derivative",
    "any number of parameters, any quadratic loss; for others to second order in the step",
    difference_statement,
    depths=(1, 2, 3),
    arguments=gradients,
)
DIFFERENCE_MUTANTS = {
    "one pass at the point itself": becomes(
        lambda p: _loss(h * vector("v", p), vector("g", p), third=0) / h, only=0, of="lhs"
    ),
    "not divided by two": times(2, only=0, of="lhs"),
    "the other sign": times(-1),
}


@settled("directional-derivative", DIFFERENCE, DIFFERENCE_MUTANTS)
def prove_directional_derivative(statement: Statement, steps: Steps) -> None:
    """Cancel the even part for matrices of any size."""
    v, g, curvature = symbolic("v g S")

    def at(step: sp.Expr) -> sp.Expr:
        return sp.Trace(g.T * (step * v)) + sp.Trace((step * v).T * curvature * (step * v)) / 2

    both = steps.identity("two passes", at(h) - at(-h), 2 * h * sp.Trace(g.T * v))

    def divided(p: int) -> list:
        ahead, slope = statement.arguments(p)
        return [both.at({v: ahead, g: slope, curvature: symmetric("s", p)}) / (2 * h), None]

    steps.conclude(statement, divided)
    steps.base(statement, (1, 2), relations=(1,))
