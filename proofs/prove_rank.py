r"""What bounded quotients of exact and approximate scores say about ranking and selection.

Exact scores are ``G = b S`` with ``m <= b <= M``; ``b - m`` and ``M - b`` are non-negative symbols.
Sums over samples grow by one more sample, so that one sample and the sums so far are enough.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, under
from proofs._quotients import HIGH, LOW, between, draw_between, names
from proofs._symbols import total

SCOPE = "any number of samples, scores of any sign"


def cosine(*, factor: int = 4, power: int = 2, inside: bool = True) -> Statement:
    """State the squared bound on the cosine, and that the cosine is not negative."""

    def sums(n: int) -> tuple:
        S, b = names(n)
        scores = [x * s for x, s in zip(b, S, strict=True)]
        return (
            sum(g**2 for g in scores),
            sum(s**2 for s in S),
            sum(g * s for g, s in zip(scores, S, strict=True)),
        )

    def claim(n: int) -> tuple[AtMost, AtMost]:
        A, B, D = sums(n)
        return AtMost(factor * LOW * HIGH / (LOW + HIGH) ** power, D**2 / (A * B)), AtMost(0, D)

    def sample(draw: random.Random, n: int) -> dict:
        values = draw_between(draw, n)
        S, b = names(n)
        if not inside:
            values[b[0]] = 9 * values[HIGH]
        if n == 2 and draw.random() < 0.5:
            values |= {b[0]: values[HIGH] * (1 if inside else 9), b[1]: values[LOW]}
            values |= {S[0]: values[LOW], S[1]: values[HIGH]}
        return values

    s = sp.symbols("s", **{"nonnegative" if inside else "real": True})
    return Statement(
        slug="rank-cosine",
        scope=SCOPE,
        claim=claim,
        given=lambda n: between(n) if inside else (),
        depths=(1, 2, 3),
        arguments=lambda n: (LOW, HIGH, *names(n)),
        sample=sample,
        parts={"factor": factor, "power": power, "slack": s, "sums": sums},
    )


def cosine_proof(statement: Statement, steps: Steps) -> None:
    """Sum ``(M - b)(b - m) S^2 >= 0`` over samples; then complete a square."""
    part = statement.part
    (m, u, v), S = sp.symbols("m u v", nonnegative=True), sp.Symbol("S", real=True)
    b, M = m + u, m + u + v
    one = steps.nonnegative("one sample", (m + M) * b * S**2 - b**2 * S**2 - m * M * S**2, [u * v * S**2])
    A, B = sp.symbols("A B", nonnegative=True)
    s = part.slack
    low, high = sp.symbols("m M", positive=True)
    mixed = A + low * high * B + s
    sign = steps.nonnegative("the cosine's sign", mixed, [A, low * high * B, s])
    D = mixed / (low + high)
    left = (low + high) ** part.power * D**2 - part.factor * low * high * A * B
    squares = [(A - low * high * B) ** 2, 2 * s * (A + low * high * B), s**2]
    square = steps.nonnegative("a square", left, squares)

    def added_up(n: int) -> list:
        scores, ratios = names(n)
        rest = total(
            one.at({m: LOW, u: x - LOW, v: HIGH - x, S: y}) for x, y in zip(ratios, scores, strict=True)
        )
        exact, approximate, _ = part.sums(n)
        values = {A: exact, B: approximate, low: LOW, high: HIGH, s: rest}
        whole = (LOW + HIGH) ** 2 * exact * approximate
        return [square.at(values) / whole, sign.at(values) / (LOW + HIGH)]

    steps.conclude(statement, added_up)


def pearson(*, centred: bool = False, power: int = 2, inside: bool = True) -> Statement:
    """State the squared bound on the correlation, where it is one, and the correlation's sign."""

    def sums(n: int) -> tuple:
        S, b = names(n)
        G = [x * s for x, s in zip(b, S, strict=True)]
        means = sum(S) / n, sum(G) / n
        left, right = [s - means[0] for s in S], [g - means[1] for g in G]
        spread = sum(s**2 for s in left)
        whole = spread if centred else sum(s**2 for s in S)
        return spread, sum(g**2 for g in right), sum(x * y for x, y in zip(left, right, strict=True)), whole

    def tilt(n: int) -> sp.Expr:
        spread, _, _, whole = sums(n)
        return (HIGH - LOW) ** power / (HIGH + LOW) ** power * whole / spread

    def claim(n: int) -> tuple[AtMost, AtMost]:
        spread, exact, mixed, _ = sums(n)
        return AtMost((1 - tilt(n)) * exact * spread, mixed**2), AtMost(0, mixed)

    def given(n: int) -> tuple[AtMost, ...]:
        spread = under("scores are not all equal", (AtMost(0, sums(n)[0], strict=True),))
        radicand = under("the radicand is positive", (AtMost(tilt(n), 1),))
        return (*(between(n) if inside else ()), *spread, *radicand)

    def sample(draw: random.Random, n: int) -> dict:
        low = sp.Rational(draw.randint(6, 9), 9)
        high = low + sp.Rational(draw.randint(1, 4), 9)
        S, b = names(n)
        shift = draw.choice((0, 0, 3))
        values = {s: sp.Integer(draw.randint(-5, 5) + shift) for s in S} | {S[0]: sp.Integer(shift + 6)}
        ends = {x: draw.choice((low, high)) if inside else sp.Integer(draw.randint(-4, 4)) for x in b}
        return values | ends | {LOW: low, HIGH: high}

    q = sp.symbols("q", **{"nonnegative" if inside else "real": True})
    return Statement(
        slug="rank-pearson",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(2, 3),
        arguments=lambda n: (*names(n), LOW, HIGH),
        sample=sample,
        parts={"slack": q, "centred": centred, "power": power, "sums": sums, "tilt": tilt},
    )


def pearson_proof(statement: Statement, steps: Steps) -> None:
    """With E = G - lambda S: E is short, centring shortens it, and a short E turns little."""
    part = statement.part
    (m, u, v), S = sp.symbols("m u v", nonnegative=True), sp.Symbol("S", real=True)
    middle, half = m + (u + v) / 2, (u + v) / 2
    error = ((m + u) - middle) * S
    one = steps.nonnegative("one sample", half**2 * S**2 - error**2, [u * v * S**2])
    steps.identity("in units of lambda", (half / middle) ** part.power * middle**2, half**2)
    E2, n = sp.Symbol("E2", nonnegative=True), sp.Symbol("n", positive=True)
    E1 = sp.symbols("E1", real=True)
    centring = E2 - (E2 - E1**2 / n)
    centred = steps.nonnegative("centring", centring, [E1**2 / n])
    S2, S1 = sp.symbols("S2", positive=True), sp.symbols("S1", real=True)
    used = S2 - S1**2 / n if part.centred else S2
    steps.nonnegative("what bounds the error", used - S2, [0])
    a, e, s, g = sp.symbols("a e s g", nonnegative=True)
    x = (g - a - e) / 2
    taken = e + s + part.slack
    left = (a + x) ** 2 - (a - taken) * g
    square = steps.nonnegative("a square", left, [(x + e) ** 2, s * g, part.slack * g])
    d = sp.symbols("d", nonnegative=True)
    mixed = (e + d + x).subs(a, e + d)
    sign = steps.nonnegative("the correlation's sign, a = e + d", mixed, [g / 2, d / 2])
    small = steps.nonnegative("a tilt of at most 1", d, [d])

    def of_the_samples(count: int) -> list:
        scores, ratios = names(count)
        scale = (LOW + HIGH) / 2
        spread, exact, _, _ = part.sums(count)
        samples = list(zip(ratios, scores, strict=True))
        errors = [(b - scale) * y for b, y in samples]
        length, mean = total(x**2 for x in errors), total(errors)
        turned = length - mean**2 / count
        # what the error's bound is above the centred error's length
        rest = total(one.at({m: LOW, u: b - LOW, v: HIGH - b, S: y}) for b, y in samples)
        rest += centred.at({E2: length, E1: mean, n: count})
        left = rest + small.at({d: 1 - part.tilt(count)}) * (scale**2 * spread)
        centres = {e: total((x - mean / count) ** 2 for x in errors), g: exact}
        values = {a: scale**2 * spread, s: 0, part.slack: rest}
        return [square.at(values | centres | {e: turned}) / scale**2, sign.at({d: left, **centres}) / scale]

    steps.conclude(statement, of_the_samples, depths=statement.depths)


def order(*, ends: tuple = (sp.Min, sp.Max), apart: bool = True, exchanged: bool = False) -> Statement:
    """State that intervals apart give a certain order."""

    def interval(S: sp.Expr, end: type) -> sp.Expr:
        return end(LOW * S, HIGH * S)

    def claim(n: int) -> AtMost:
        (j, k), (b, c) = names(2)
        sides = (c * k, b * j)
        return AtMost(*(reversed(sides) if exchanged else sides))

    def given(n: int) -> tuple[AtMost, ...]:
        (j, k), _ = names(2)
        gap = (AtMost(interval(k, ends[1]), interval(j, ends[0])),) if apart else (AtMost(k, j),)
        return (*between(2), *under(MEANING, gap))

    def sample(draw: random.Random, n: int) -> dict:
        values = draw_between(draw, 2)
        S, b = names(2)
        if apart:
            return values
        close = {S[0]: sp.Integer(5), S[1]: sp.Integer(4), HIGH: 2 * values[LOW]}
        return values | close | {b[0]: values[LOW], b[1]: 2 * values[LOW]}

    return Statement(
        slug="concordance",
        scope="any pair of scores, of any signs",
        claim=claim,
        given=given,
        arguments=lambda n: (LOW, HIGH, *names(2)),
        sample=sample,
        parts={"ends": ends, "exchanged": exchanged, "apart": apart},
    )


def order_proof(statement: Statement, steps: Steps) -> None:
    """Find a score in its interval, whatever its sign; intervals apart keep their order."""
    part = statement.part
    m, u, v, size = sp.symbols("m u v S", nonnegative=True)
    b, M = m + u, m + u + v
    for sign, (low, high) in ((1, (m, M)), (-1, (M, m))):
        S = sign * size
        least, most = (end(low * S, high * S) for end in part.ends)
        near, far = (u, v) if sign == 1 else (v, u)
        steps.nonnegative("above the least", b * S - least, [near * size])
        steps.nonnegative("below the most", most - b * S, [far * size])
    over, under, x = sp.symbols("o v x", nonnegative=True)
    gap = sp.symbols("d", **{"nonnegative" if part.apart else "real": True})
    difference = (x + gap + over) - (x - under)
    side = -1 if part.exchanged else 1
    kept = steps.nonnegative("apart", side * difference, [over, gap, under])
    (first, second), (ratio, other) = names(2)
    least, most = (end(LOW * x, HIGH * x) for end, x in zip(part.ends, (first, second), strict=True))
    values = {over: ratio * first - least, gap: least - most, under: most - other * second}
    steps.conclude(statement, lambda depth: kept.at(values), depths=(1,))


STATEMENT = cosine()

MUTANTS = {
    "five for four": cosine(factor=5),
    "the sum not squared": cosine(power=1),
    "quotients outside their bounds": cosine(inside=False),
}

PEARSON = pearson()

PEARSON_MUTANTS = {
    "scores of any mean": pearson(centred=True),
    "the tilt to the fourth": pearson(power=4),
    "quotients outside their bounds": pearson(inside=False),
}

ORDER = order()

ORDER_MUTANTS = {
    "the wrong ends": order(ends=(sp.Max, sp.Min)),
    "scores apart, intervals not": order(apart=False),
    "the other way round": order(exchanged=True),
}


@pytest.mark.equation("rank-cosine")
def prove_cosine_guarantee(settle):
    settle(STATEMENT, cosine_proof, MUTANTS)


@pytest.mark.equation("rank-pearson")
def prove_pearson_guarantee(settle):
    settle(PEARSON, pearson_proof, PEARSON_MUTANTS)


@pytest.mark.equation("concordance")
def prove_certain_order(settle):
    settle(ORDER, order_proof, ORDER_MUTANTS)
