r"""What bounded quotients of exact and approximate scores say about ranking and selection.

Exact scores are ``G = b S`` with ``m <= b <= M``; ``b - m`` and ``M - b`` are non-negative symbols.
Sums over samples grow by one more sample, so that one sample and the sums so far are enough.
"""

from collections.abc import Callable
from dataclasses import replace

import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, settled, under
from proofs._quotients import HIGH, LOW, RATIOS, between, names
from proofs._rewrites import Rewrite, becomes, exchanged, given, times, without
from proofs._symbols import dot, total

SCOPE = "any number of samples, scores of any sign"


def sums(n: int) -> tuple:
    """Add up the squares of exact and of approximate scores, and their products."""
    S, b = names(n)
    return dot(b, b, S, S), dot(S, S), dot(b, S, S)


def cosine(n: int) -> tuple[AtMost, AtMost]:
    """State the squared bound on the cosine, and that the cosine is not negative."""
    A, B, D = sums(n)
    return AtMost(4 * LOW * HIGH / (LOW + HIGH) ** 2, D**2 / (A * B)), AtMost(0, D)


def centred_sums(n: int) -> tuple:
    """Add up the squares of centred approximate and exact scores, and their products."""
    S, b = names(n)
    G = [x * s for x, s in zip(b, S, strict=True)]
    left, right = ([x - total(side) / n for x in side] for side in (S, G))
    return dot(left, left), dot(right, right), dot(left, right)


TURN = ((HIGH - LOW) / (HIGH + LOW)) ** 2


def tilt(n: int) -> sp.Expr:
    """Give how far exact scores may turn, squared."""
    return TURN * sums(n)[1] / centred_sums(n)[0]


def pearson(n: int) -> tuple[AtMost, AtMost]:
    """State the squared bound on the correlation, where it is one, and the correlation's sign."""
    mixed = centred_sums(n)[2]
    return AtMost(with_tilt(n, tilt(n)), mixed**2), AtMost(0, mixed)


def with_tilt(n: int, other: sp.Expr) -> sp.Expr:
    """Write the bound with a tilt."""
    spread, exact, _ = centred_sums(n)
    return (1 - other) * exact * spread


def small_tilt(n: int) -> tuple[AtMost, ...]:
    """State that quotients lie between their bounds, and that the tilt is below one."""
    spread = under("scores are not all equal", (AtMost(0, centred_sums(n)[0], strict=True),))
    return (*between(n), *spread, *under("the radicand is positive", (AtMost(tilt(n), 1),)))


def order(n: int) -> AtMost:
    """State that intervals apart give a certain order."""
    (j, k), (b, c) = names(2)
    return AtMost(c * k, b * j)


def ends(score: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Give the ends of a score's interval."""
    return sp.Min(LOW * score, HIGH * score), sp.Max(LOW * score, HIGH * score)


def apart(n: int) -> tuple[AtMost, ...]:
    """State that quotients lie between their bounds, and that the intervals are apart."""
    (j, k), _ = names(2)
    return (*between(2), *under(MEANING, (AtMost(ends(k)[1], ends(j)[0]),)))


def apart_by(least: Callable, most: Callable) -> Rewrite:
    """Compare other functions of the scores than the ends of their intervals."""
    (j, k), _ = names(2)
    return given(lambda r, n: replace(r, lhs=most(k), rhs=least(j)) if r.of == MEANING else r)


STATEMENT = Statement(
    "rank-cosine",
    SCOPE,
    cosine,
    given=between,
    depths=(1, 2, 3),
    arguments=lambda n: (LOW, HIGH, *names(n)),
)
MUTANTS = {
    "five for four": times(sp.Rational(5, 4), only=0, of="lhs"),
    "the sum not squared": times(LOW + HIGH, only=0, of="lhs"),
    "quotients outside their bounds": without(RATIOS),
}
PEARSON = Statement(
    "rank-pearson",
    SCOPE,
    pearson,
    given=small_tilt,
    depths=(2, 3),
    arguments=lambda n: (*names(n), LOW, HIGH),
)
PEARSON_MUTANTS = {
    "scores of any mean": becomes(lambda n: with_tilt(n, TURN), only=0, of="lhs"),
    "the tilt to the fourth": becomes(lambda n: with_tilt(n, tilt(n) * TURN), only=0, of="lhs"),
    "quotients outside their bounds": without(RATIOS),
}
ORDER = Statement(
    "concordance",
    "any pair of scores, of any signs",
    order,
    given=apart,
    arguments=lambda n: (LOW, HIGH, *names(2)),
)
ORDER_MUTANTS = {
    "the wrong ends": apart_by(lambda j: ends(j)[1], lambda k: ends(k)[0]),
    "scores apart, intervals not": apart_by(lambda j: j, lambda k: k),
    "the other way round": exchanged(),
}


@settled("rank-cosine", STATEMENT, MUTANTS)
def prove_cosine_guarantee(statement: Statement, steps: Steps) -> None:
    """Sum ``(M - b)(b - m) S^2 >= 0`` over samples; then complete a square."""
    (m, u, v), S = sp.symbols("m u v", nonnegative=True), sp.Symbol("S", real=True)
    b, M = m + u, m + u + v
    one = steps.nonnegative("one sample", (m + M) * b * S**2 - b**2 * S**2 - m * M * S**2, [u * v * S**2])
    A, B, s = sp.symbols("A B s", nonnegative=True)
    low, high = sp.symbols("m M", positive=True)
    mixed = A + low * high * B + s
    sign = steps.nonnegative("the cosine's sign", mixed, [A, low * high * B, s])
    D = mixed / (low + high)
    left = (low + high) ** 2 * D**2 - 4 * low * high * A * B
    squares = [(A - low * high * B) ** 2, 2 * s * (A + low * high * B), s**2]
    square = steps.nonnegative("a square", left, squares)

    @steps.conclude(statement)
    def added_up(n: int) -> list:
        samples = zip(*names(n), strict=True)
        rest = total(one.at({m: LOW, u: b - LOW, v: HIGH - b, S: y}) for y, b in samples)
        exact, approximate, _ = sums(n)
        values = {A: exact, B: approximate, low: LOW, high: HIGH, s: rest}
        whole = (LOW + HIGH) ** 2 * exact * approximate
        return [square.at(values) / whole, sign.at(values) / (LOW + HIGH)]


@settled("rank-pearson", PEARSON, PEARSON_MUTANTS)
def prove_pearson_guarantee(statement: Statement, steps: Steps) -> None:
    """With E = G - lambda S: E is short, centring shortens it, and a short E turns little."""
    (m, u, v), S = sp.symbols("m u v", nonnegative=True), sp.Symbol("S", real=True)
    middle, half = m + (u + v) / 2, (u + v) / 2
    error = ((m + u) - middle) * S
    one = steps.nonnegative("one sample", half**2 * S**2 - error**2, [u * v * S**2])
    steps.identity("in units of lambda", (half / middle) ** 2 * middle**2, half**2)
    E2, n = sp.Symbol("E2", nonnegative=True), sp.Symbol("n", positive=True)
    E1 = sp.symbols("E1", real=True)
    centring = E2 - (E2 - E1**2 / n)
    centred = steps.nonnegative("centring", centring, [E1**2 / n])
    a, e, g, q, d = sp.symbols("a e g q d", nonnegative=True)
    x = (g - a - e) / 2
    square = steps.nonnegative("a square", (a + x) ** 2 - (a - e - q) * g, [(x + e) ** 2, q * g])
    mixed = (e + d + x).subs(a, e + d)
    sign = steps.nonnegative("the correlation's sign, a = e + d", mixed, [g / 2, d / 2])
    small = steps.nonnegative("a tilt of at most 1", d, [d])

    @steps.conclude(statement, depths=statement.depths)
    def of_the_samples(count: int) -> list:
        scale = (LOW + HIGH) / 2
        spread, exact, _ = centred_sums(count)
        samples = list(zip(*names(count), strict=True))
        errors = [(b - scale) * y for y, b in samples]
        length, mean = dot(errors, errors), total(errors)
        turned = length - mean**2 / count
        # what the error's bound is above the centred error's length
        rest = total(one.at({m: LOW, u: b - LOW, v: HIGH - b, S: y}) for y, b in samples)
        rest += centred.at({E2: length, E1: mean, n: count})
        left = rest + small.at({d: 1 - tilt(count)}) * (scale**2 * spread)
        centres = {e: total((x - mean / count) ** 2 for x in errors), g: exact}
        values = {a: scale**2 * spread, q: rest}
        return [square.at(values | centres | {e: turned}) / scale**2, sign.at({d: left, **centres}) / scale]


@settled("concordance", ORDER, ORDER_MUTANTS)
def prove_certain_order(statement: Statement, steps: Steps) -> None:
    """Find a score in its interval, whatever its sign; intervals apart keep their order."""
    m, u, v, size = sp.symbols("m u v S", nonnegative=True)
    b, M = m + u, m + u + v
    for sign, (low, high) in ((1, (m, M)), (-1, (M, m))):
        S = sign * size
        least, most = (end(low * S, high * S) for end in (sp.Min, sp.Max))
        near, far = (u, v) if sign == 1 else (v, u)
        steps.nonnegative("above the least", b * S - least, [near * size])
        steps.nonnegative("below the most", most - b * S, [far * size])
    over, under, x, gap = sp.symbols("o v x d", nonnegative=True)
    kept = steps.nonnegative("apart", (x + gap + over) - (x - under), [over, gap, under])
    (first, second), (ratio, other) = names(2)
    least, most = ends(first)[0], ends(second)[1]
    values = {over: ratio * first - least, gap: least - most, under: most - other * second}
    steps.conclude(statement, lambda depth: kept.at(values), depths=(1,))
