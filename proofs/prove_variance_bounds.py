r"""Bounds from below on the variance of signal plus noise.

Cauchy and Schwarz: with standard deviations s and t of X and Y, the variance n of ``t X + s Y``
is non-negative and equals ``2 s^2 t^2 + 2 s t Cov(X, Y)``. Hence ``Var(X + Y) = (s - t)^2 + n/(s t)``.
For the signal's scale of either sign the same holds with the sign in the correlation. The
other bounds drop a term that their assumption makes non-negative, and hold nowhere else:
the slack is ``2 (sum a c) Cov(b, Y)`` itself.
"""

from dataclasses import replace

import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, settled, under
from proofs._rewrites import each, every, given, plus, put, side, times
from proofs._symbols import parts_of, total

SCOPE = "any law with second moments"
R = sp.Symbol("r", real=True)  # a correlation


def least_and_exact(s, t, r) -> tuple:
    """Give the least variance of a sum, and its variance."""
    return (s - t) ** 2, s**2 + t**2 + 2 * r * s * t


def opposed_arguments(depth: int) -> tuple:
    """Name two standard deviations and a correlation."""
    return (*sp.symbols("s t", nonnegative=True), R)


def opposed(depth: int) -> AtMost:
    """State the least variance of a sum, from the standard deviations of its terms and their correlation."""
    return AtMost(*least_and_exact(*opposed_arguments(depth)))


OPPOSED = Statement(
    "minkowski-lower-bound",
    SCOPE,
    opposed,
    given=lambda depth: under(MEANING, (AtMost(-1, R),)),
    arguments=opposed_arguments,
)
OPPOSED_MUTANTS = {
    "deviations added": each("t", lambda t: -t, of="lhs"),
    "fourth power": side(lambda least, depth: least**2, of="lhs"),
    "twice as much": times(2, of="lhs"),
}


@settled("minkowski-lower-bound", OPPOSED, OPPOSED_MUTANTS)
def prove_minkowski_lower_bound(statement: Statement, steps: Steps) -> None:
    """Show that a correlation is at least -1, by the variance of ``t X + s Y``; the slack is linear in it."""
    X, Y, s, t = sp.symbols("X Y s t", real=True)  # X and Y are centred
    square = t**2 * X**2 + s**2 * Y**2 + 2 * s * t * X * Y
    steps.identity("the variance of t X + s Y", (t * X + s * Y) ** 2, square)
    s, t, above = sp.symbols("s t n", nonnegative=True)
    least, variance = least_and_exact(s, t, above - 1)
    slack = steps.nonnegative("slack", variance - least, [2 * s * t * above])
    correlation = statement.arguments(1)[2]
    steps.conclude(statement, lambda depth: slack.at({above: 1 + correlation}), depths=(1,))


def unconditional_arguments(depth: int) -> tuple:
    """Name the signal's scale, a correlation and two standard deviations."""
    return sp.Symbol("m", real=True), R, *sp.symbols("s t", nonnegative=True)


def unconditional(depth: int) -> AtMost:
    """State the bound with the signal's scale, of either sign, and any correlation."""
    scale, r, s, t = unconditional_arguments(depth)
    return AtMost((sp.Abs(scale) * s - t) ** 2, scale**2 * s**2 + t**2 + 2 * scale * r * s * t)


UNCONDITIONAL = Statement(
    "app-var-CS-lb",
    f"{SCOPE}, any alphas and gains, one validation sample, alpha a number",
    unconditional,
    given=lambda depth: under(MEANING, (AtMost(-1, R), AtMost(R, 1))),
    arguments=unconditional_arguments,
)
UNCONDITIONAL_MUTANTS = {
    "scale without absolute value": put(
        {abs(sp.Symbol("m", real=True)): sp.Symbol("m", real=True)}, of="lhs"
    ),
    "deviations added": each("t", lambda t: -t, of="lhs"),
    "variances for deviations": every(
        each("s", lambda s: s**2, of="lhs"), each("t", lambda t: t**2, of="lhs")
    ),
}


@settled("app-var-CS-lb", UNCONDITIONAL, UNCONDITIONAL_MUTANTS)
def prove_app_var_cs_lb(statement: Statement, steps: Steps) -> None:
    """Take a positive and a negative scale apart; the correlation is at least -1, at most 1."""
    m, s, t, x = sp.symbols("m s t x", nonnegative=True)
    lemmas = []
    for name, scale, r in (("positive scale", m, x - 1), ("negative scale", -m, 1 - x)):
        variance = scale**2 * s**2 + t**2 + 2 * scale * r * s * t
        lemmas.append(steps.nonnegative(name, variance - (m * s - t) ** 2, [2 * m * s * t * x]))
    scale, r, *_ = statement.arguments(1)
    ends = zip(lemmas, parts_of(scale), (r + 1, 1 - r), strict=True)
    either = total(lemma.at({m: size, x: rest}) for lemma, size, rest in ends)
    steps.conclude(statement, lambda depth: either, depths=(1,))


def moments(depth: int) -> tuple:
    """Name the signal's scale, its covariance with the noise, and both variances."""
    return sp.symbols("m q", real=True) + sp.symbols("V n", nonnegative=True)


def conditional(depth: int) -> tuple:
    """State the printed bound under the sign it needs."""
    scale, q, V, n = moments(depth)
    exact, printed = scale**2 * V + n + 2 * scale * q, scale**2 * V + n
    return AtMost(printed, exact), Equal(exact - printed, 2 * scale * q)


def one_sign(depth: int) -> tuple[AtMost, ...]:
    """State that the scale and the covariance have one sign."""
    scale, q, *_ = moments(depth)
    signs = r"$\Cov(\beta^\star, Y) \ge 0$; $\sum_l \alpha^{(l)} c_l \ge 0$"
    return under(signs, (AtMost(sp.Integer(0), scale * q),))


CONDITIONAL = Statement(
    "app-var-corr-lb",
    f"{SCOPE}, (sum alpha c) Cov(beta*, Y) >= 0, one validation sample, alpha a number",
    conditional,
    given=one_sign,
    arguments=moments,
)
CONDITIONAL_MUTANTS = {
    "covariance non-negative, as printed": given(lambda r, depth: replace(r, rhs=moments(depth)[1])),
    "signal counted twice": plus(lambda depth: moments(depth)[0] ** 2 * moments(depth)[2], only=0, of="lhs"),
    "slack once": times(sp.Rational(1, 2), only=1),
}


@settled("app-var-corr-lb", CONDITIONAL, CONDITIONAL_MUTANTS)
def prove_app_var_corr_lb(statement: Statement, steps: Steps) -> None:
    """Name what is assumed to be non-negative; the slack is twice that."""
    scale, q = sp.symbols("m q", real=True)
    k, V, n = sp.symbols("k V n", nonnegative=True)
    steps.identity("what is assumed", statement.given(1)[0].rhs, scale * q)
    exact, printed = scale**2 * V + n + 2 * scale * q, scale**2 * V + n
    slack = steps.identity("slack", exact - printed, 2 * scale * q)
    sign = steps.nonnegative("sign", 2 * k, [2 * k])
    steps.conclude(statement, lambda depth: [sign.at({k: scale * q}), slack], depths=(1,))


def bounds(signal, n, cross):
    """Give both bounds by the negative part of the covariance."""
    return signal + n + sp.Min(0, cross), n + sp.Min(0, cross)


def signed(depth: int) -> tuple[AtMost, ...]:
    """State both bounds with the negative part of the covariance, without assumptions."""
    scale, q, V, n = moments(depth)
    cross = 2 * scale * q
    exact = scale**2 * V + n + cross
    return tuple(AtMost(bound, exact) for bound in bounds(scale**2 * V, n, cross))


SIGNED = Statement(
    "signed-covariance-bound", f"{SCOPE}, one validation sample, alpha a number", signed, arguments=moments
)
SIGNED_MUTANTS = {
    "the positive part": side(lambda bound, depth: bound.replace(sp.Min, sp.Max), of="lhs"),
    "half of the negative part": side(
        lambda bound, depth: bound.replace(sp.Min, lambda *ends: sp.Min(*ends) / 2), of="lhs"
    ),
    "signal counted twice": plus(lambda depth: moments(depth)[0] ** 2 * moments(depth)[2], only=0, of="lhs"),
}


@settled("signed-covariance-bound", SIGNED, SIGNED_MUTANTS)
def prove_signed_covariance_bound() -> None:
    """Take a non-negative and a non-positive covariance apart."""
