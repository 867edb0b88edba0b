r"""What selecting by an approximate score can cost, when its sign is right, and when ranks agree or flip.

Sums over samples grow by one more sample, so that one sample and the sums so far are enough.
Quotients ``b`` of exact and approximate numbers lie between m and M; ``b - m`` and ``M - b`` are
non-negative symbols.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, under, width
from proofs._quotients import HIGH, LOW, between, draw_between, names
from proofs._symbols import one_where, total

SCOPE = "any number of samples, scores of any sign"


def flip(*, rate: int = 2, inputs: tuple = (9, 1, -2, 2), below: bool = True) -> Statement:
    """State the scores of one network of each estimator, and that LAI has the pair the wrong way round."""
    rho = sp.symbols("rho", nonnegative=True)

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
        given=lambda depth: under(MEANING, (AtMost(10 * rho**2, 1, strict=True),)) if below else (),
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
    differ = steps.identity("Ghost", scores[1] - scores[0], 1 - 10 * part.rho**2)
    ghost = (scores[1] - scores[0]).subs(part.rho, sp.sqrt((1 - d) / 10))
    order = steps.nonnegative("Ghost's order, with 10 rho^2 = 1 - d", ghost, [d])
    lai = z.dot(x) + (first * z).dot(first * x) - z.dot(y) - (first * z).dot(first * y)
    lli = (first * z).dot(first * y) - (first * z).dot(first * x)
    others = [
        steps.nonnegative("LAI's order", lai, [sp.Integer(9)]),
        steps.nonnegative("LLI's order", lli, [sp.Integer(1)]),
    ]
    below = order.at({d: 1 - 10 * part.rho**2})
    steps.conclude(statement, lambda depth: [differ, below, *others], depths=(1,))


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
    u, w, rest = sp.symbols("u w r", nonnegative=True)
    apart = part.factor * ((u + part.scale * w) - u)  # of opposite signs: the sizes add up
    misjudged = steps.nonnegative("a misjudged sample", apart, [part.factor * part.scale * w])
    right = steps.nonnegative("a sample judged rightly loses nothing", rest, [rest])

    def added_up(n: int):
        samples = list(zip(*names(n), strict=True))
        found = sp.Integer(0)
        for v, score in samples:
            wrong = one_where(((v > 0) & (score <= 0)) | ((v <= 0) & (score > 0)))
            found += misjudged.at({u: abs(v), w: abs(score)}) * wrong
            found += right.at({rest: abs(v - part.scale * score)}) * (1 - wrong)
        return found

    steps.conclude(statement, added_up, depths=statement.depths)


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
        given=lambda n: between(n, "every term's ratio lies in $[m, M]$") if inside else (),
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
    lemmas = (
        steps.nonnegative("above the least", b * (s - t) - least, [u * s, v * t]),
        steps.nonnegative("below the most", most - b * (s - t), [v * s, u * t]),
    )

    def added_up(n: int) -> list:
        values = [
            {m: LOW, u: ratio - LOW, v: HIGH - ratio, s: sp.Max(score, 0), t: sp.Max(-score, 0)}
            for score, ratio in zip(*names(n), strict=True)
        ]
        return [total(lemma.at(point) for point in values) for lemma in lemmas]

    steps.conclude(statement, added_up, depths=statement.depths)


def identical(*, weighted: bool = True, power: int = 1, own: bool = False) -> Statement:
    """State that proportional similarities leave one factor between Ghost and LAI, for all samples."""

    def names(depth: int) -> tuple:
        k, c = (list(sp.symbols(f"{name}:{depth}", real=True)) for name in ("k", "c"))
        pairs = [
            [list(sp.symbols(f"{name}{j}_:{width(2)}", real=True)) for j in range(width(2))]
            for name in ("alpha", "beta")
        ]
        return k, [*c[:-1], sp.Integer(1)], *pairs

    def claim(depth: int) -> tuple[Equal, ...]:
        k, c, alpha, beta = names(depth)
        weights = k if weighted else [sp.Integer(1)] * depth
        factor = total(a * g for a, g in zip(weights, c, strict=True)) / total(weights)
        extra = sp.symbols(f"x:{depth}", real=True) if own else [sp.Integer(1)] * depth
        layers = [(x * a, g**power) for x, a, g in zip(extra, k, c, strict=True)]
        relations = []
        for firsts, lasts in zip(alpha, beta, strict=True):  # a training sample; sums over validation samples
            pairs = list(zip(firsts, lasts, strict=True))
            ghost = total(a * first * g * last for first, last in pairs for a, g in layers)
            lai = total(total(a * first for a, _ in layers) * last for first, last in pairs)
            relations.append(Equal(factor * lai, ghost))
        return tuple(relations)

    return Statement(
        slug="identical-ranking",
        scope="any depth, any number of validation and of training samples, similarities of any sign",
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda depth: (names(depth)[0], names(depth)[1][:-1], *names(depth)[2:]),
        parts={"names": names, "weighted": weighted, "power": power, "own": own},
    )


def identical_proof(statement: Statement, steps: Steps) -> None:
    """Take the pair's alpha and beta out of both sums; scaled orthogonal layers make both proportional."""
    part = statement.part
    top, bottom, k, c, pair, x = sp.symbols("N K k c P x", real=True)
    x = x if part.own else sp.Integer(1)
    ghost, lai = (top + x * k * c**part.power) * pair, (bottom + x * k) * pair
    more = (top + k * c) / (bottom + k) if part.weighted else (top + c) / (bottom + 1)
    grown = steps.identity("one more layer", more * lai, ghost)
    d = sp.symbols("d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, d, 1) for name in "gh")
    scaled = c * sp.Identity(d)
    steps.identity("W W' = c I", sp.Trace(g.T * scaled * h), c * sp.Trace(g.T * h))

    def all_layers(depth: int) -> list:
        shares, gains, alpha, beta = part.names(depth)
        before = total(a * b for a, b in zip(shares[:-1], gains[:-1], strict=True))
        values = {top: before, bottom: total(shares[:-1]), k: shares[-1], c: 1}
        return [
            total(grown.at(values | {pair: a * b}) for a, b in zip(firsts, lasts, strict=True))
            for firsts, lasts in zip(alpha, beta, strict=True)
        ]

    steps.conclude(statement, all_layers)


FLIP = flip()

FLIP_MUTANTS = {
    "a sample of another input": flip(inputs=(8, 1, -2, 2)),
    "a similarity that decays once": flip(rate=1),
    "any rate": flip(below=False),
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


@pytest.mark.equation("rank-flip")
def prove_rank_flip(settle):
    settle(FLIP, flip_proof, FLIP_MUTANTS)


@pytest.mark.equation("selection-regret")
def prove_selection_regret(settle):
    settle(REGRET, regret_proof, REGRET_MUTANTS)


@pytest.mark.equation("sign-agreement")
def prove_certain_sign(settle):
    settle(AGREEMENT, agreement_proof, AGREEMENT_MUTANTS)


@pytest.mark.equation("identical-ranking")
def prove_identical_ranking(settle):
    settle(IDENTICAL, identical_proof, IDENTICAL_MUTANTS)
