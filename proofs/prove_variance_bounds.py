r"""Bounds from below on the variance of signal plus noise.

Cauchy and Schwarz: with standard deviations s and t of X and Y, the variance n of ``t X + s Y``
is non-negative and equals ``2 s^2 t^2 + 2 s t Cov(X, Y)``. Hence ``Var(X + Y) = (s - t)^2 + n/(s t)``.
For the signal's scale of either sign the same holds with the sign in the correlation. The
other bounds drop a term that their assumption makes non-negative, and hold nowhere else:
the slack is ``2 (sum a c) Cov(b, Y)`` itself.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, under
from proofs._symbols import monomials, parts_of, total

SCOPE = "any law with second moments"


def opposed(*, inner: int = -1, power: int = 2, factor: int = 1) -> Statement:
    """State the least variance of a sum, from the standard deviations of its terms and their correlation."""

    def arguments(depth: int) -> tuple:
        return (*sp.symbols("s t", nonnegative=True), sp.Symbol("r", real=True))

    def sides(s, t, r):
        return factor * (s + inner * t) ** power, s**2 + t**2 + 2 * r * s * t

    def given(depth: int) -> tuple[AtMost, ...]:
        return under(MEANING, (AtMost(sp.Integer(-1), arguments(depth)[2]),))

    return Statement(
        slug="minkowski-lower-bound",
        scope=SCOPE,
        claim=lambda depth: AtMost(*sides(*arguments(depth))),
        given=given,
        arguments=arguments,
        parts={"sides": sides},
    )


def opposed_proof(statement: Statement, steps: Steps) -> None:
    """Show that a correlation is at least -1, by the variance of ``t X + s Y``; the slack is linear in it."""
    X, Y, s, t = sp.symbols("X Y s t", real=True)  # X and Y are centred
    square = t**2 * X**2 + s**2 * Y**2 + 2 * s * t * X * Y
    steps.identity("the variance of t X + s Y", (t * X + s * Y) ** 2, square)
    s, t, above = sp.symbols("s t n", nonnegative=True)
    least, variance = statement.part.sides(s, t, above - 1)
    slack = steps.nonnegative("slack", variance - least, [2 * s * t * above])
    correlation = statement.arguments(1)[2]
    steps.conclude(statement, lambda depth: slack.at({above: 1 + correlation}), depths=(1,))


OPPOSED = opposed()
OPPOSED_MUTANTS = {
    "deviations added": opposed(inner=1),
    "fourth power": opposed(power=4),
    "twice as much": opposed(factor=2),
}


@pytest.mark.equation("minkowski-lower-bound")
def prove_minkowski_lower_bound(settle):
    """Show that Var(X + Y) is at least the square of the deviations' difference."""
    settle(OPPOSED, opposed_proof, OPPOSED_MUTANTS)


def unconditional(*, absolute: bool = True, inner: int = -1, power: int = 1) -> Statement:
    """State the bound with the signal's scale, of either sign, and any correlation."""

    def arguments(depth: int) -> tuple:
        signs = sp.Symbol("m", real=True), sp.Symbol("r", real=True)
        return (*signs, *sp.symbols("s t", nonnegative=True))

    def bound(scale, s, t):
        return ((sp.Abs(scale) if absolute else scale) * s**power + inner * t**power) ** 2

    def claim(depth: int) -> AtMost:
        scale, r, s, t = arguments(depth)
        return AtMost(bound(scale, s, t), scale**2 * s**2 + t**2 + 2 * scale * r * s * t)

    def given(depth: int) -> tuple[AtMost, ...]:
        _, r, _, _ = arguments(depth)
        return under(MEANING, (AtMost(sp.Integer(-1), r), AtMost(r, sp.Integer(1))))

    return Statement(
        slug="app-var-CS-lb",
        scope=f"{SCOPE}, any alphas and gains, one validation sample, alpha a number",
        claim=claim,
        given=given,
        arguments=arguments,
        sample=lambda draw, depth: {sp.Symbol("r", real=True): sp.Rational(draw.randint(-4, 4), 4)},
        parts={"bound": bound},
    )


def unconditional_proof(statement: Statement, steps: Steps) -> None:
    """Take a positive and a negative scale apart; the correlation is at least -1, at most 1."""
    m, s, t, x = sp.symbols("m s t x", nonnegative=True)
    lemmas = []
    for name, scale, r in (("positive scale", m, x - 1), ("negative scale", -m, 1 - x)):
        variance = scale**2 * s**2 + t**2 + 2 * scale * r * s * t
        bound = statement.part.bound(scale, s, t)
        lemmas.append(steps.nonnegative(name, variance - bound, [2 * m * s * t * x]))
    scale, r, *_ = statement.arguments(1)
    ends = zip(lemmas, parts_of(scale), (r + 1, 1 - r), strict=True)
    either = total(lemma.at({m: size, x: rest}) for lemma, size, rest in ends)
    steps.conclude(statement, lambda depth: either, depths=(1,))


UNCONDITIONAL = unconditional()
UNCONDITIONAL_MUTANTS = {
    "scale without absolute value": unconditional(absolute=False),
    "deviations added": unconditional(inner=1),
    "variances for deviations": unconditional(power=2),
}


@pytest.mark.equation("app-var-CS-lb")
def prove_app_var_cs_lb(settle):
    """Show the lower bound on Ghost's variance that needs no sign."""
    settle(UNCONDITIONAL, unconditional_proof, UNCONDITIONAL_MUTANTS)


def conditional(*, product: bool = True, signal: int = 1, slack: int = 2) -> Statement:
    """State the printed bound under the sign it needs; ``product=False`` is its printed assumption."""

    def arguments(depth: int) -> tuple:
        return sp.symbols("m q", real=True) + sp.symbols("V n", nonnegative=True)

    def claim(depth: int) -> tuple:
        scale, q, V, n = arguments(depth)
        exact = scale**2 * V + n + 2 * scale * q
        printed = signal * scale**2 * V + n
        return AtMost(printed, exact), Equal(exact - printed, slack * scale * q)

    def given(depth: int) -> tuple[AtMost, ...]:
        scale, q, *_ = arguments(depth)
        signs = r"$\Cov(\beta^\star, Y) \ge 0$; $\sum_l \alpha^{(l)} c_l \ge 0$"
        return under(signs, (AtMost(sp.Integer(0), scale * q if product else q),))

    return Statement(
        slug="app-var-corr-lb",
        scope=f"{SCOPE}, (sum alpha c) Cov(beta*, Y) >= 0, one validation sample, alpha a number",
        claim=claim,
        given=given,
        arguments=arguments,
        parts={"product": product, "signal": signal, "slack": slack},
    )


def conditional_proof(statement: Statement, steps: Steps) -> None:
    """Name what is assumed to be non-negative; the slack is twice that."""
    part = statement.part
    scale, q = sp.symbols("m q", real=True)
    k, V, n = sp.symbols("k V n", nonnegative=True)
    exact, printed = scale**2 * V + n + 2 * scale * q, part.signal * scale**2 * V + n
    slack = steps.identity("slack", exact - printed, part.slack * scale * q)
    term = 2 * k if part.product else 2 * scale * k  # k: the product, or the covariance alone
    sign = steps.nonnegative("sign", term, [term])
    steps.conclude(statement, lambda depth: [sign.at({k: scale * q}), slack], depths=(1,))


CONDITIONAL = conditional()
CONDITIONAL_MUTANTS = {
    "covariance non-negative, as printed": conditional(product=False),
    "signal counted twice": conditional(signal=2),
    "slack once": conditional(slack=1),
}


@pytest.mark.equation("app-var-corr-lb")
def prove_app_var_corr_lb(settle):
    """Show that the printed bound holds where (sum alpha c) Cov(beta*, Y) >= 0, by just that much."""
    settle(CONDITIONAL, conditional_proof, CONDITIONAL_MUTANTS)


def signed(*, extreme=sp.Min, share: int = 2, floor: int = 1) -> Statement:
    """State both bounds with the negative part of the covariance, without assumptions."""

    def arguments(depth: int) -> tuple:
        return sp.symbols("m q", real=True) + sp.symbols("V n", nonnegative=True)

    def bounds(signal, n, cross):
        opposed = extreme(0, sp.Rational(share, 2) * cross)
        return floor * signal + n + opposed, n + opposed

    def claim(depth: int) -> tuple[AtMost, ...]:
        scale, q, V, n = arguments(depth)
        cross = 2 * scale * q
        exact = scale**2 * V + n + cross
        return tuple(AtMost(bound, exact) for bound in bounds(scale**2 * V, n, cross))

    return Statement(
        slug="signed-covariance-bound",
        scope=f"{SCOPE}, one validation sample, alpha a number",
        claim=claim,
        arguments=arguments,
        parts={"bounds": bounds},
    )


def signed_proof(statement: Statement, steps: Steps) -> None:
    """Take a non-negative and a non-positive covariance apart."""
    signal, n, k = sp.symbols("S n k", nonnegative=True)
    lemmas = []
    for name, cross in (("aligned", k), ("opposed", -k)):
        for which, bound in zip(
            ("with signal", "noise alone"), statement.part.bounds(signal, n, cross), strict=True
        ):
            slack = signal + n + cross - bound
            lemmas.append(steps.nonnegative(f"{name}, {which}", slack, monomials(slack)))
    scale, q, varied, noise = statement.arguments(1)
    up, down = parts_of(2 * scale * q)
    here, nothing = {signal: scale**2 * varied, n: noise, k: up}, {signal: 0, n: 0, k: down}
    both = [lemmas[i].at(here) + lemmas[i + 2].at(nothing) for i in range(2)]
    steps.conclude(statement, lambda depth: both, depths=(1,))


SIGNED = signed()
SIGNED_MUTANTS = {
    "the positive part": signed(extreme=sp.Max),
    "half of the negative part": signed(share=1),
    "signal counted twice": signed(floor=2),
}


@pytest.mark.equation("signed-covariance-bound")
def prove_signed_covariance_bound(settle):
    """Show both lower bounds with the negative part of the covariance."""
    settle(SIGNED, signed_proof, SIGNED_MUTANTS)
