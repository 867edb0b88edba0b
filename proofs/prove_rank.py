r"""What bounded quotients of exact and approximate scores say about ranking and selection.

Exact scores are ``G = b S`` with ``m <= b <= M``; ``b - m`` and ``M - b`` are non-negative symbols.
Sums over samples grow by one more sample, so that one sample and the sums so far are enough.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps

SCOPE = "any number of samples, scores of any sign"
LOW, HIGH = sp.symbols("m M", positive=True)


def names(n: int) -> tuple[list, list]:
    """Name the approximate scores and the quotients."""
    return tuple(list(sp.symbols(f"{name}:{n}", real=True)) for name in ("S", "b"))


def between(n: int) -> tuple[AtMost, ...]:
    """State that every quotient lies between m and M."""
    return tuple(relation for b in names(n)[1] for relation in (AtMost(LOW, b), AtMost(b, HIGH)))


def draw_between(draw: random.Random, n: int) -> dict:
    """Draw bounds, quotients between them (often at an end) and scores of any sign."""
    S, b = names(n)
    low, high = sorted(sp.Rational(draw.randint(1, 12), 6) for _ in range(2))
    shares = [draw.choice((0, 1, sp.Rational(draw.randint(0, 4), 4))) for _ in b]
    scores = {s: sp.Rational(draw.choice((-1, 1)) * draw.randint(1, 9), draw.choice((1, 2, 5))) for s in S}
    quotients = {x: low + t * (high - low) for x, t in zip(b, shares, strict=True)}
    return {LOW: low, HIGH: high} | scores | quotients


def flip(*, rate: int = 2, inputs: tuple = (9, 1, -2, 2), below: bool = True) -> Statement:
    """State the scores of one network of each estimator, and that LAI has the pair the wrong way round."""
    rho = sp.symbols("rho", positive=True)

    def claim(depth: int) -> tuple:
        alphas = [(x[0] + x[1], x[1]) for x in (inputs[:2], inputs[2:])]
        ghost = [a * rho**rate + b for a, b in alphas]
        lai, lli = [a + b for a, b in alphas], [b for _, b in alphas]
        return (
            Equal(ghost[1] - ghost[0], 1 - 10 * rho**2),
            AtMost(ghost[0], ghost[1], strict=True),
            AtMost(lai[1], lai[0], strict=True),
            AtMost(lli[0], lli[1], strict=True),
        )

    def sample(draw: random.Random, depth: int) -> dict:
        return {rho: sp.Rational(draw.randint(1, 9), 30 if below else 10)}

    return Statement(
        slug="rank-flip",
        scope="one network, every rho with 10 rho^2 < 1",
        claim=claim,
        given=lambda depth: (AtMost(10 * rho**2, 1, strict=True),) if below else (),
        arguments=lambda depth: (rho,),
        sample=sample,
        parts={"inputs": inputs, "power": rate, "rho": rho, "below": below},
    )


def flip_proof(statement: Statement, steps: Steps) -> None:
    """Run the network on symbols: W1 = (0, 1), W2 = rho, residuals 1."""
    part = statement.part
    x, y = (sp.Matrix(part.inputs[k : k + 2]) for k in (0, 2))
    z, first, second = sp.Matrix([1, 1]), sp.Matrix([[0, 1]]), sp.Matrix([[part.rho]])
    backward = second.T * sp.Matrix([1])
    signal = (backward.T * backward)[0]
    steps.identity("similarity below the top", part.rho**part.power, signal)
    scores = [z.dot(v) * signal + (first * z).dot(first * v) for v in (x, y)]
    d = sp.symbols("d", **{"positive" if part.below else "real": True})
    steps.identity("Ghost", scores[1] - scores[0], 1 - 10 * part.rho**2)
    ghost = (scores[1] - scores[0]).subs(part.rho, sp.sqrt((1 - d) / 10))
    steps.nonnegative("Ghost's order, with 10 rho^2 = 1 - d", ghost, [d])
    lai = z.dot(x) + (first * z).dot(first * x) - z.dot(y) - (first * z).dot(first * y)
    steps.identity("LAI's order", lai, sp.Integer(9))
    steps.identity("LLI's order", (first * z).dot(first * y) - (first * z).dot(first * x), sp.Integer(1))


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
        parts={"factor": factor, "power": power, "slack": s},
    )


def cosine_proof(statement: Statement, steps: Steps) -> None:
    """Sum ``(M - b)(b - m) S^2 >= 0`` over samples; then complete a square."""
    part = statement.part
    m, u, v, S = sp.symbols("m u v S", nonnegative=True)
    b, M = m + u, m + u + v
    steps.nonnegative("one sample", (m + M) * b * S**2 - b**2 * S**2 - m * M * S**2, [u * v * S**2])
    A, B = sp.symbols("A B", nonnegative=True)
    s = part.slack
    low, high = sp.symbols("m M", positive=True)
    mixed = A + low * high * B + s
    steps.nonnegative("the cosine's sign", mixed, [A, low * high * B, s])
    D = mixed / (low + high)
    left = (low + high) ** part.power * D**2 - part.factor * low * high * A * B
    squares = [(A - low * high * B) ** 2, 2 * s * (A + low * high * B), s**2]
    steps.nonnegative("a square", left, squares)


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
        positive = (AtMost(0, sums(n)[0], strict=True),)
        return (*(between(n) if inside else ()), *positive, AtMost(tilt(n), 1))

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
        parts={"slack": q, "centred": centred, "power": power},
    )


def pearson_proof(statement: Statement, steps: Steps) -> None:
    """With E = G - lambda S: E is short, centring shortens it, and a short E turns little."""
    part = statement.part
    m, u, v, S = sp.symbols("m u v S", nonnegative=True)
    middle, half = m + (u + v) / 2, (u + v) / 2
    error = ((m + u) - middle) * S
    steps.nonnegative("one sample", half**2 * S**2 - error**2, [u * v * S**2])
    steps.identity("in units of lambda", (half / middle) ** part.power * middle**2, half**2)
    E2, n = sp.symbols("E2 n", positive=True)
    E1 = sp.symbols("E1", real=True)
    centring = E2 - (E2 - E1**2 / n)
    steps.nonnegative("centring", centring, [E1**2 / n])
    S2, S1 = sp.symbols("S2", positive=True), sp.symbols("S1", real=True)
    used = S2 - S1**2 / n if part.centred else S2
    steps.nonnegative("what bounds the error", used - S2, [0])
    a, e, s, g = sp.symbols("a e s g", nonnegative=True)
    x = (g - a - e) / 2
    taken = e + s + part.slack
    left = (a + x) ** 2 - (a - taken) * g
    steps.nonnegative("a square", left, [(x + e) ** 2, s * g, part.slack * g])
    d = sp.symbols("d", nonnegative=True)
    steps.nonnegative("the correlation's sign, a = e + d", (e + d + x).subs(a, e + d), [g / 2, d / 2])


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
        return (*between(2), *gap)

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
    between = sp.symbols("d", **{"nonnegative" if part.apart else "real": True})
    difference = (x + between + over) - (x - under)
    side = -1 if part.exchanged else 1
    steps.nonnegative("apart", side * difference, [over, between, under])


def regret(*, scaled: int = 1, strict: bool = True, factor: int = 1) -> Statement:
    """State that the regret is at most the distance of scaled scores, sample by sample."""
    scale = sp.symbols("lam", nonnegative=True)

    def lost(v: sp.Expr, w: sp.Expr) -> sp.Expr:
        kept = sp.Piecewise((v, w > 0 if strict else w < 0), (0, True))
        return sp.Max(v, 0) - kept

    def claim(n: int) -> AtMost:
        v, w = names(n)
        distance = sum(abs(x - scaled * scale * y) for x, y in zip(v, w, strict=True))
        return AtMost(factor * sum(lost(x, y) for x, y in zip(v, w, strict=True)), distance)

    def sample(draw: random.Random, n: int) -> dict:
        v, w = names(n)
        values = {s: sp.Rational(draw.randint(-6, 6), 3) for s in (*v, *w)}
        if draw.random() < 0.3:
            values |= {y: abs(values[x]) if scaled == 1 else -values[x] for x, y in zip(v, w, strict=True)}
            return values | {scale: sp.Integer(1)} | {y: sp.Integer(0) for y in (w if factor == 2 else ())}
        return values | {scale: sp.Rational(draw.randint(0, 6), 3)}

    return Statement(
        slug="selection-regret",
        scope="any number of samples, any non-negative scale",
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda n: (*names(n), scale),
        sample=sample,
        parts={"lost": lost, "scaled": scaled, "factor": factor, "scale": scale},
    )


def regret_proof(statement: Statement, steps: Steps) -> None:
    """Four cases of signs; what is lost is only ever a sample whose signs differ."""
    part = statement.part
    x, y = sp.symbols("x y", positive=True)
    for name, v, w in (
        ("both help", x, y),
        ("both hurt", -x, -y),
        ("helps, not kept", x, -y),
        ("helps, not seen", x, sp.Integer(0)),
        ("hurts, kept", -x, y),
    ):
        differ = name not in {"both help", "both hurt"}
        expected = x if differ else sp.Integer(0)
        steps.identity(f"{name}: what is lost", part.factor * part.lost(v, w), expected)
        if differ:
            sign = 1 if v == x else -1
            distance = sign * (v - part.scaled * part.scale * w)
            steps.nonnegative(f"{name}: the distance", distance - expected, [part.scale * abs(w)])


def agreement(*, exchanged: bool = False, inside: bool = True, parts: int = 1) -> Statement:
    """State between which numbers Ghost's score lies, in terms of the parts of LAI's."""

    def claim(n: int) -> tuple[AtMost, AtMost]:
        S, b = names(n)
        helps = sum(sp.Max(s, 0) for s in S)
        hurts = parts * sum(sp.Max(-s, 0) for s in S)
        ghost = sum(x * s for x, s in zip(b, S, strict=True))
        low, high = (HIGH, LOW) if exchanged else (LOW, HIGH)
        return AtMost(low * helps - high * hurts, ghost), AtMost(ghost, high * helps - low * hurts)

    def sample(draw: random.Random, n: int) -> dict:
        values = draw_between(draw, n)
        return values if inside else values | {names(n)[1][0]: 9 * values[HIGH]}

    return Statement(
        slug="sign-agreement",
        scope="any number of validation samples",
        claim=claim,
        given=lambda n: between(n) if inside else (),
        depths=(1, 2, 3),
        arguments=lambda n: (*names(n), LOW, HIGH),
        sample=sample,
        parts={
            "exchanged": exchanged,
            "parts": parts,
            "slack": sp.symbols("v", **{"nonnegative" if inside else "real": True}),
        },
    )


def agreement_proof(statement: Statement, steps: Steps) -> None:
    """One sample with the parts s and t of its score, S = s - t."""
    part = statement.part
    m, u, s, t = sp.symbols("m u s t", nonnegative=True)
    v = part.slack
    b, M = m + u, m + u + v
    low, high = (M, m) if part.exchanged else (m, M)
    least, most = low * s - part.parts * high * t, high * s - part.parts * low * t
    steps.nonnegative("above the least", b * (s - t) - least, [u * s, v * t])
    steps.nonnegative("below the most", most - b * (s - t), [v * s, u * t])


def identical(*, weighted: bool = True, power: int = 1, own: bool = False) -> Statement:
    """State that proportional similarities leave one factor between Ghost and LAI."""

    def layers(depth: int) -> tuple:
        return tuple(list(sp.symbols(f"{name}:{depth}", positive=True)) for name in ("k", "c"))

    def claim(depth: int) -> Equal:
        k, c = layers(depth)
        c = [*c[:-1], sp.Integer(1)]
        alpha, beta = sp.symbols("alpha beta", positive=True)
        extra = [sp.Symbol(f"x{i}", positive=True) if own else 1 for i in range(depth)]
        ghost = sum(x * a * alpha * g**power * beta for x, a, g in zip(extra, k, c, strict=True))
        lai = sum(x * a for x, a in zip(extra, k, strict=True)) * alpha * beta
        weights = k if weighted else [1] * depth
        factor = sum(a * g for a, g in zip(weights, c, strict=True)) / sum(weights)
        return Equal(factor * lai, ghost)

    return Statement(
        slug="identical-ranking",
        scope="any depth, any pair of samples",
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda depth: (*layers(depth), *sp.symbols("alpha beta", positive=True)),
        parts={"weighted": weighted, "power": power, "own": own},
    )


def identical_proof(statement: Statement, steps: Steps) -> None:
    """Take alpha and beta out of both sums; scaled orthogonal layers make both proportional."""
    part = statement.part
    top, bottom, k, c, pair, x = sp.symbols("N K k c P x", positive=True)
    x = x if part.own else sp.Integer(1)
    ghost, lai = (top + x * k * c**part.power) * pair, (bottom + x * k) * pair
    more = (top + k * c) / (bottom + k) if part.weighted else (top + c) / (bottom + 1)
    steps.identity("one more layer", more * lai, ghost)
    d = sp.symbols("d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, d, 1) for name in "gh")
    scaled = c * sp.Identity(d)
    steps.identity("W W' = c I", sp.Trace(g.T * scaled * h), c * sp.Trace(g.T * h))


STATEMENT = cosine()
MUTANTS = {
    "five for four": cosine(factor=5),
    "the sum not squared": cosine(power=1),
    "quotients outside their bounds": cosine(inside=False),
}
FLIP = flip()
FLIP_MUTANTS = {
    "a sample of another input": flip(inputs=(8, 1, -2, 2)),
    "a similarity that decays once": flip(rate=1),
    "any rate": flip(below=False),
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
REGRET = regret()
REGRET_MUTANTS = {
    "a negative scale": regret(scaled=-1),
    "keeping what is negative": regret(strict=False),
    "twice the regret": regret(factor=2),
}
AGREEMENT = agreement()
AGREEMENT_MUTANTS = {
    "bounds exchanged": agreement(exchanged=True),
    "quotients outside their bounds": agreement(inside=False),
    "without the negative parts": agreement(parts=0),
}
IDENTICAL = identical()
IDENTICAL_MUTANTS = {
    "an unweighted mean": identical(weighted=False),
    "gains squared": identical(power=2),
    "embeddings that are not proportional": identical(own=True),
}


@pytest.mark.equation("rank-cosine")
def prove_cosine_guarantee(settle):
    settle(STATEMENT, cosine_proof, MUTANTS)


@pytest.mark.equation("rank-flip")
def prove_rank_flip(settle):
    settle(FLIP, flip_proof, FLIP_MUTANTS)


@pytest.mark.equation("rank-pearson")
def prove_pearson_guarantee(settle):
    settle(PEARSON, pearson_proof, PEARSON_MUTANTS)


@pytest.mark.equation("concordance")
def prove_certain_order(settle):
    settle(ORDER, order_proof, ORDER_MUTANTS)


@pytest.mark.equation("selection-regret")
def prove_selection_regret(settle):
    settle(REGRET, regret_proof, REGRET_MUTANTS)


@pytest.mark.equation("sign-agreement")
def prove_certain_sign(settle):
    settle(AGREEMENT, agreement_proof, AGREEMENT_MUTANTS)


@pytest.mark.equation("identical-ranking")
def prove_identical_ranking(settle):
    settle(IDENTICAL, identical_proof, IDENTICAL_MUTANTS)
