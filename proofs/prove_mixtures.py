r"""Mixture weights of sources: the derivative in a share, what errors do to contrasts, and Hedge's step.

Of Hedge's bound two inequalities are cited, ``exp(x) <= 1 + x + x^2`` for x at most 1 and
``log(1 + y) <= y``: together they say that the logarithm of the sum of the unnormalised weights grows
by at most ``eta m + eta^2 q`` an update, with m and q the weighted means of gains and squared gains.
That the bound follows is proved.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, under, width
from proofs._symbols import matrix, total, vector


def share(*, sign: int = -1, mean: bool = True, own: bool = True) -> Statement:
    """State the derivative of the next validation loss in a source's share, for n samples of that source."""
    rate, w, other = sp.symbols("eta w v", positive=True)

    def names(n: int) -> tuple:
        d = width(2)
        half = matrix("D", d, d)
        return matrix("g", n, d), vector("h", d), vector("p", d), half + half.T

    def mean_of(rows: sp.Matrix) -> sp.Matrix:
        return sp.Matrix([total(rows.col(k)) / rows.rows for k in range(rows.cols)])

    def claim(n: int) -> Equal:
        rows, rest, gradient, scaling = names(n)
        step = -rate * scaling * (w * mean_of(rows) + other * rest)
        direction = scaling * gradient if own else gradient
        scores = rows * direction
        return Equal(gradient.dot(step.diff(w)), sign * rate * total(scores) / (n if mean else 1))

    return Statement(
        slug="share-derivative",
        scope="any number of samples, any number of parameters; the chain rule is cited",
        claim=claim,
        depths=(1, 2, 3),
        parts={"sign": sign, "mean": mean, "own": own},
    )


def share_proof(statement: Statement, steps: Steps) -> None:
    """Compare one entry of the gradient at a time: the step is linear in the share, the scaling symmetric."""
    part, (rate, w, other) = statement.part, sp.symbols("eta w v", positive=True)
    p, q, a, b, g, h, r, s = sp.symbols("p q a b g h r s", real=True)
    # two parameters of the chain: the gradient (p, q), the row (a, b) of the scaling
    moved = -rate * (w * (a * g + b * h) + other * (a * r + b * s))
    steps.identity("an entry's derivative in the share", p * moved.diff(w), -rate * p * (a * g + b * h))
    n = sp.Symbol("n", positive=True)
    scaled = (p * a + q * b) if part.own else p
    steps.identity("one sample", part.sign * rate * scaled * g, -rate * (p * a + q * b) * g)
    steps.identity("the mean", g / (n if part.mean else 1), g / n)
    for depth in (1, 2, 3):
        relation = statement.relations(depth)[0]
        steps.identity(f"{depth} samples", relation.lhs, relation.rhs)


def expected(coefficients: Sequence[sp.Expr], variances: Sequence[sp.Expr]) -> sp.Expr:
    """Expect the square of a linear form of independent errors with mean 0."""
    return total(c**2 * v for c, v in zip(coefficients, variances, strict=True))


def contrast(*, own: int = 2, power: int = 2) -> Statement:
    """State the variance of one mean's difference from the mean over K sources."""

    def names(count: int) -> list:
        return list(sp.symbols(f"v:{count}", positive=True))

    def claim(count: int) -> Equal:
        variances = names(count)
        share = sp.Rational(1, count)
        coefficients = [int(k == 0) - share for k in range(count)]
        printed = variances[0] * (1 - sp.Rational(own, count)) + total(variances) / count**power
        return Equal(expected(coefficients, variances), printed)

    return Statement(
        slug="contrast-variance",
        scope="any number of sources, any laws with a variance",
        claim=claim,
        depths=(1, 2, 3),
        arguments=names,
        parts={"own": own, "power": power},
    )


def contrast_proof(statement: Statement, steps: Steps) -> None:
    """Expand the square: the source's own variance, twice its covariance with the mean, the mean's."""
    part, K = statement.part, sp.Symbol("K", positive=True)
    v, others = sp.Symbol("v", positive=True), sp.Symbol("o", nonnegative=True)
    spread = v - 2 * v / K + (v + others) / K**2
    shown = steps.identity(
        "own, cross and mean", spread, v * (1 - part.own / K) + (v + others) / K**part.power
    )

    def derived(count: int) -> object:
        variances = statement.arguments(count)
        return shown.at({K: sp.Integer(count), v: variances[0], others: total(variances[1:])})

    steps.conclude(statement, derived)


def shrinkage(*, signal: int = 1, square: int = 2, attained: bool = True) -> Statement:
    """State that t / (t + v) has the smallest mean squared error of all factors."""
    t, v = sp.symbols("t v", positive=True)
    factor = sp.Symbol("x", real=True)

    def error(x: sp.Expr) -> sp.Expr:
        return (1 - x) ** square * t + x**2 * v

    def claim(depth: int) -> tuple:
        best = signal * t / (t + v)
        least = error(best)
        return AtMost(least, error(factor)), Equal(least, t * v / (t + v) if attained else t * v)

    return Statement(
        slug="contrast-shrinkage",
        scope="any factor, any signal and error variance",
        claim=claim,
        arguments=lambda depth: (t, v, factor),
        parts={"signal": signal, "error": error, "attained": attained},
    )


def shrinkage_proof(statement: Statement, steps: Steps) -> None:
    """Complete the square in the factor."""
    part, (t, v, x) = statement.part, statement.arguments(1)
    best = part.signal * t / (t + v)
    rest = (t + v) * (x - t / (t + v)) ** 2
    square = steps.nonnegative("a square", part.error(x) - part.error(best), [rest])
    least = steps.identity("its least value", part.error(best), t * v / (t + v) if part.attained else t * v)
    steps.conclude(statement, lambda depth: [square, least], depths=(1,))


def cochran(*, freedom: int = 1, weighted: bool = True, power: int = 1) -> Statement:
    """State the expectation of Cochran's Q for sources of one true mean."""

    def names(count: int) -> list:
        return list(sp.symbols(f"p:{count}", positive=True))

    def claim(count: int) -> Equal:
        precisions = names(count)
        weights = precisions if weighted else [sp.Integer(1)] * count
        variances = [1 / p for p in precisions]
        squares = total(
            p**power * expected([int(i == k) - w / total(weights) for i, w in enumerate(weights)], variances)
            for k, p in enumerate(precisions)
        )
        return Equal(squares, count - freedom)

    return Statement(
        slug="cochran-q",
        scope="any number of sources, any laws with a variance",
        claim=claim,
        depths=(2, 3),
        parts={"freedom": freedom, "weighted": weighted, "power": power},
    )


def cochran_proof(statement: Statement, steps: Steps) -> None:
    """Each source gives p (1/p) = 1; the weighted mean takes back total / total = 1."""
    part = statement.part
    p, rest = sp.symbols("p P", positive=True)
    e, sum_of = sp.symbols("e T", real=True)
    whole = p + rest
    spread = p**part.power * (e - sum_of / whole) ** 2
    steps.identity("one source", spread, p * e**2 - 2 * p * e * sum_of / whole + p * sum_of**2 / whole**2)
    K, total_precision = sp.symbols("K P", positive=True)
    mean = K - 2 * total_precision / total_precision + total_precision**2 / total_precision**2
    shown = steps.identity("means: e^2 is 1/p, e T too, T^2 the total", mean, K - part.freedom)
    steps.implied("the mean is weighted by precisions", sp.true if part.weighted else sp.false)
    steps.conclude(statement, lambda count: shown.at({K: sp.Integer(count)}))


def step_size(*, factor: int = 2, inverse: bool = False) -> Statement:
    """State Hedge's best step; l is log K, and all are squares: l = a^2, H = h^2, eta = e^2."""
    a, h, e = sp.symbols("a h e", positive=True)

    def bound(root: sp.Expr) -> sp.Expr:
        return a**2 / root**2 + root**2 * h**2

    def claim(depth: int) -> tuple:
        best = sp.sqrt(h / a if inverse else a / h)
        return AtMost(factor * a * h, bound(e)), Equal(bound(best), factor * a * h)

    return Statement(
        slug="hedge-step",
        scope="any number of sources, any horizon",
        claim=claim,
        arguments=lambda depth: (a, h, e),
        parts={"factor": factor, "bound": bound, "best": sp.sqrt(h / a if inverse else a / h)},
    )


def step_size_proof(statement: Statement, steps: Steps) -> None:
    """Take the difference of the two terms' roots, squared."""
    part, (a, h, e) = statement.part, statement.arguments(1)
    square = steps.nonnegative("a square", part.bound(e) - part.factor * a * h, [(a / e - e * h) ** 2])
    least = steps.identity("its least value", part.bound(part.best), part.factor * a * h)
    steps.conclude(statement, lambda depth: [square, least], depths=(1,))


def regret(*, second: int = 1, start: int = 1, growth: bool = True) -> Statement:
    """State Hedge's bound times eta, from the growth of the potential's logarithm.

    Update t has the weighted mean gain m and the weighted mean squared gain q; L is the logarithm of the
    mean unnormalised weight, and G what one source gained in all.
    """
    eta = sp.Symbol("eta", positive=True)
    count, gained = sp.Symbol("l", nonnegative=True), sp.Symbol("G", real=True)

    def names(rounds: int) -> tuple:
        gains, levels = (list(sp.symbols(f"{name}:{rounds}", real=True)) for name in "mL")
        return gains, list(sp.symbols(f"q:{rounds}", nonnegative=True)), levels

    def claim(rounds: int) -> AtMost:
        gains, squares, _ = names(rounds)
        return AtMost(eta * gained - eta * total(gains), start * count + second * eta**2 * total(squares))

    def given(rounds: int) -> tuple:
        gains, squares, levels = names(rounds)
        before = [sp.Integer(0), *levels]
        triples = zip(gains, squares, before, levels, strict=False)
        grown = tuple(AtMost(b - a, eta * m + eta**2 * q) for m, q, a, b in triples)
        last = AtMost(eta * gained - count, levels[-1])
        return under(r"$\eta g_{tk} \le 1$", grown if growth else ()) + under(MEANING, (last,))

    def sample(draw: random.Random, rounds: int) -> dict:
        gains, squares, levels = names(rounds)
        values = {m: sp.Rational(draw.randint(-4, 4), 4) for m in gains}
        values |= {q: sp.Rational(draw.randint(0, 4), 4) for q in squares}
        values |= {eta: sp.Rational(draw.randint(1, 4), 4), count: sp.Rational(draw.randint(0, 4), 2)}
        level = sp.Integer(0) if growth else sp.Integer(9)
        for m, q, one in zip(gains, squares, levels, strict=True):
            level += values[eta] * values[m] + values[eta] ** 2 * values[q]
            values[one] = level
        return values | {gained: (level + values[count]) / values[eta]}

    return Statement(
        slug="hedge-regret",
        scope="any number of updates and sources; two elementary inequalities are cited",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        sample=sample,
        parts={"second": second, "start": start, "growth": growth, "names": names},
    )


def regret_proof(statement: Statement, steps: Steps) -> None:
    """Add up what the logarithm falls short of at each update, and at the end."""
    part = statement.part
    eta, count = sp.Symbol("eta", positive=True), sp.Symbol("l", nonnegative=True)
    gained = sp.Symbol("G", real=True)
    q, before, last = sp.symbols("q B s", nonnegative=True)
    first = sp.Symbol("r", **{"nonnegative" if part.growth else "real": True})
    # one update: what is missing before it, the slack of its growth, and what is added to the bound
    added = before + first + (part.second - 1) * eta**2 * q
    one = steps.nonnegative("one more update", added, [before, first])
    end = steps.nonnegative("the best source", added + last + (part.start - 1) * count, [before, first, last])

    def added_up(rounds: int) -> object:
        gains, squares, levels = part.names(rounds)
        heights = [sp.Integer(0), *levels]
        slacks = [eta * gains[t] + eta**2 * squares[t] - (heights[t + 1] - heights[t]) for t in range(rounds)]
        short = sp.Integer(0)
        for slack in slacks[:-1]:
            short = short + one.at({before: 0, first: slack, q: 0})
        rest = heights[-1] - eta * gained + count
        return short + end.at({before: 0, first: slacks[-1], last: rest, q: 0, count: 0})

    steps.conclude(statement, added_up)


SHARE = share()
SHARE_MUTANTS = {
    "sign": share(sign=1),
    "sum of the scores": share(mean=False),
    "without the preconditioner": share(own=False),
}
CONTRAST = contrast()
CONTRAST_MUTANTS = {"once": contrast(own=1), "thrice": contrast(own=3), "power": contrast(power=1)}
SHRINKAGE = shrinkage()
SHRINKAGE_MUTANTS = {
    "signal": shrinkage(signal=2),
    "power": shrinkage(square=4),
    "least": shrinkage(attained=False),
}
COCHRAN = cochran()
COCHRAN_MUTANTS = {
    "freedom": cochran(freedom=0),
    "plain mean": cochran(weighted=False),
    "power": cochran(power=2),
}
STEP = step_size()
STEP_MUTANTS = {
    "factor": step_size(factor=3),
    "smaller": step_size(factor=1),
    "inverse": step_size(inverse=True),
}
REGRET = regret()
REGRET_MUTANTS = {
    "no growth": regret(growth=False),
    "no second order": regret(second=0),
    "no start": regret(start=0),
}


@pytest.mark.equation("share-derivative")
def prove_share_derivative(settle):
    settle(SHARE, share_proof, SHARE_MUTANTS)


@pytest.mark.equation("contrast-variance")
def prove_contrast_variance(settle):
    settle(CONTRAST, contrast_proof, CONTRAST_MUTANTS)


@pytest.mark.equation("contrast-shrinkage")
def prove_contrast_shrinkage(settle):
    settle(SHRINKAGE, shrinkage_proof, SHRINKAGE_MUTANTS)


@pytest.mark.equation("cochran-q")
def prove_cochran_q(settle):
    settle(COCHRAN, cochran_proof, COCHRAN_MUTANTS)


@pytest.mark.equation("hedge-step")
def prove_hedge_step(settle):
    settle(STEP, step_size_proof, STEP_MUTANTS)


@pytest.mark.equation("hedge-regret")
def prove_hedge_regret(settle):
    settle(REGRET, regret_proof, REGRET_MUTANTS)
