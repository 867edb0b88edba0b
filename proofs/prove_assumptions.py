r"""What each assumption is worth: A1 as a smallest rate, A2 and A3 as what follows from them.

Assumptions enter as slack: what is at least 0 is a non-negative symbol. Depth enters as the number
k of layers between a layer and the last one; the step from k to k + 1 is shown for symbols that
stand for the powers so far, widths by one more coordinate or by vectors of symbolic size.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, under
from proofs._symbols import total

SCOPE = "any depth, any widths"


def share(draw: random.Random) -> sp.Rational:
    """Draw a number from 0 to 1."""
    return sp.Rational(draw.randint(0, 8), 8)


def decay(*, more: int = 1, extra: int = 0, swapped: bool = False) -> Statement:
    """State that a rate below another one violates what the other one just satisfies."""
    r, n, d = sp.symbols("r n d", positive=True)

    def claim(depth: int) -> AtMost:
        sides = r**depth * n, (r + more * d) ** (depth + extra) * n
        return AtMost(*(reversed(sides) if swapped else sides), strict=True)

    def sample(draw: random.Random, depth: int) -> dict:
        rate = sp.Rational(draw.randint(3, 9), 7)
        return {r: rate, d: rate * sp.Rational(draw.randint(1, 6), 7)}

    return Statement(
        slug="gradient-norm-decay",
        scope="any depth, any rate",
        claim=claim,
        depths=(1, 2, 5),
        arguments=lambda depth: (r, n, d),
        sample=sample,
        parts={"rate": r + more * d, "symbols": (r, n, d), "extra": extra, "swapped": swapped},
    )


def decay_proof(statement: Statement, steps: Steps) -> None:
    """Induct over the layers below the last: the slack so far is s."""
    part = statement.part
    r, n, d = part.symbols
    power, s = sp.Symbol("R", positive=True), sp.Symbol("s", nonnegative=True)
    base, side = part.rate**part.extra, -1 if part.swapped else 1
    steps.nonnegative("no layer", side * n * (base - 1), [0])
    slack = side * (part.rate * (power + s) - r * power)
    more = steps.nonnegative("one more layer", slack, [r * s, d * power, d * s])

    def one_layer_more(depth: int):
        before = (r + d) ** (depth - 1) - r ** (depth - 1)
        return more.at({power: r ** (depth - 1), s: sp.expand(before)}) * n

    steps.conclude(statement, one_layer_more)


def bounded(*, size: int = 2, share_of: int = 1, both: bool = True) -> Statement:
    """State that bounded activations bound every similarity."""
    C = sp.symbols("C", nonnegative=True)

    def vectors(width: int) -> tuple:
        return tuple(list(sp.symbols(f"{name}:{width}", real=True)) for name in "ab")

    def claim(width: int) -> tuple[AtMost, AtMost]:
        alpha = sum(x * y for x, y in zip(*vectors(width), strict=True))
        return AtMost(alpha, C**size / share_of), AtMost(-alpha, C**size / share_of)

    def given(width: int) -> tuple[AtMost, ...]:
        limited = vectors(width)[: 2 if both else 1]
        return under("A2", (AtMost(sum(x**2 for x in vector), C**2) for vector in limited))

    def sample(draw: random.Random, width: int) -> dict:
        a, b = vectors(width)
        size = sp.Rational(draw.randint(1, 9), 3)
        first = {x: size * sp.Rational(draw.randint(-3, 3), 3 * width) for x in a}
        same = {y: first[x] if draw.random() < 0.5 else -first[x] for x, y in zip(a, b, strict=True)}
        scale = draw.choice((1, sp.Rational(1, 2))) if both else 5
        longest = {C: size} | ({a[0]: size, b[0]: scale * size} if width == 1 else {})
        return first | {y: scale * v for y, v in same.items()} | longest

    u, v = sp.symbols("u v", nonnegative=True)
    free = sp.symbols("w", real=True)
    return Statement(
        slug="bounded-activations",
        scope="any width",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda width: (*vectors(width), C),
        sample=sample,
        parts={"limit": lambda square: sp.sqrt(square) ** size / share_of, "slack": (u, v if both else free)},
    )


def bounded_proof(statement: Statement, steps: Steps) -> None:
    """Complete a square: the length of a - b, and of a + b."""
    part = statement.part
    width = sp.symbols("d", integer=True, positive=True)
    a, b = (sp.MatrixSymbol(name, width, 1) for name in "ab")
    for sign in (1, -1):
        square = sp.Trace((a - sign * b).T * (a - sign * b))
        parts = sp.Trace(a.T * a) + sp.Trace(b.T * b) - 2 * sign * sp.Trace(a.T * b)
        steps.identity("a square", square, parts)
    length, C2 = sp.symbols("N S", nonnegative=True)
    alpha = ((C2 - part.slack[0]) + (C2 - part.slack[1]) - length) / 2
    halves = [part.slack[0] / 2, part.slack[1] / 2, length / 2]
    left = steps.nonnegative("what is left of C_a^2", part.limit(C2) - alpha, halves)

    def either_side(width: int) -> list:
        *vectors, C = statement.arguments(width)
        first, second = map(sp.Matrix, vectors)
        short = dict(zip(part.slack, (C**2 - v.dot(v) for v in (first, second)), strict=True))
        apart = (first - second, first + second)
        return [left.at({C2: C**2, length: v.dot(v), **short}) for v in apart]

    steps.conclude(statement, either_side)


def sign(*, agreeing: bool = True, aligned: bool = True, side: int = 1) -> Statement:
    """State that A3 and agreeing embeddings give every score one sign."""

    def names(depth: int) -> tuple:
        alpha = list(sp.symbols(f"alpha:{depth}", **{"nonnegative" if agreeing else "real": True}))
        cosine = list(sp.symbols(f"c:{depth}", **{"nonnegative" if aligned else "real": True}))
        return alpha, cosine, list(sp.symbols(f"n:{depth}", nonnegative=True))

    def claim(depth: int) -> AtMost:
        terms = (a * c * n for a, c, n in zip(*names(depth), strict=True))
        return AtMost(0, side * sp.Add(*terms))

    return Statement(
        slug="non-negative-alignment",
        scope="any depth, any number of validation samples",
        claim=claim,
        depths=(1, 2, 3),
        arguments=names,
        parts={"term": tuple(x[0] for x in names(1)), "side": side},
    )


def sign_proof(statement: Statement, steps: Steps) -> None:
    """Every layer of every pair adds something of the same sign."""
    so_far = sp.symbols("S", nonnegative=True)
    term = sp.Mul(*statement.part.term)
    more = steps.nonnegative("one more term", statement.part.side * (so_far + term), [so_far, term])

    def added_up(depth: int):
        *earlier, last = zip(*statement.arguments(depth), strict=True)
        before = total(sp.Mul(*factors) for factors in earlier)
        return more.at({so_far: before, **dict(zip(statement.part.term, last, strict=True))})

    steps.conclude(statement, added_up)


def aligned(
    *,
    slug: str = "non-expansive",
    extra: int = 0,
    top: bool = True,
    expanding: bool = False,
    bars: bool = False,
) -> Statement:
    """State that similarities decay; with bars in absolute value, without A3."""
    rho, n, m, lower_n, lower_m = sp.symbols("rho n m n_l m_l", nonnegative=True)
    c, cosine = sp.symbols("c_l c", real=True)

    def claim(k: int) -> tuple[AtMost, ...]:
        beta, last = lower_n * lower_m * c, n * m * (abs(cosine) if bars else cosine)
        most = rho ** (2 * k + extra) * last
        return (AtMost(beta, most), AtMost(-beta, most)) if bars else (AtMost(beta, most),)

    def given(k: int) -> tuple[AtMost, ...]:
        first, second, third = (
            ("A1", r"$|\cos|$ at layer $l$ is at most $|\cos|$ at the last layer", "")
            if bars
            else (
                "for the decay also A1",
                "the variant of A3",
                "for the decay also a non-negative cosine at the last layer",
            )
        )
        decay = under(first, (AtMost(lower_n, rho**k * n), AtMost(lower_m, rho**k * m)))
        signs = (1, -1) if bars else (1,)
        narrow = under(second, (AtMost(s * c, abs(cosine) if bars else cosine) for s in signs))
        positive = under(third, (AtMost(0, cosine),)) if top and not bars else ()
        return (*decay, *(() if expanding else narrow), *positive)

    def sample(draw: random.Random, k: int) -> dict:
        values = {s: sp.Rational(draw.randint(1, 7), 4) for s in (rho, n, m)}
        up = sp.Rational(draw.randint(-4 if bars or not top else 0, 4), 4)
        low = (
            abs(up) * sp.Rational(draw.randint(-4, 4), 4) if bars else up - share(draw) * draw.choice((0, 1))
        )
        most = values[rho] ** k
        shares = {lower_n: most * values[n] * share(draw), lower_m: most * values[m] * share(draw)}
        return values | shares | {cosine: up, c: sp.Integer(1) if expanding else low}

    e, f, s, x, free = (*sp.symbols("e f s x", nonnegative=True), sp.symbols("y", real=True))
    top_cosine = (e + f) / 2 if bars else (f if top else free)
    low_cosine = free if expanding else ((f - e) / 2 if bars else top_cosine - e)
    return Statement(
        slug=slug,
        scope="any depth",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda k: (rho, n, m, lower_n, lower_m, c, cosine),
        sample=sample,
        parts={"symbols": (e, f, s, x), "cosines": (low_cosine, top_cosine), "extra": extra, "bars": bars},
    )


def both_norms(steps: Steps) -> Callable[..., Any]:
    """Multiply two bounds on norms: what the product of the norms is below that of the bounds."""
    n, m, u, v = sp.symbols("n m u v", nonnegative=True)
    lemma = steps.nonnegative("both norms", (n + u) * (m + v) - n * m, [n * v, u * m, u * v])

    def below(norms: tuple, bounds: tuple) -> Any:
        rests = (bound - norm for norm, bound in zip(norms, bounds, strict=True))
        return lemma.at(dict(zip((n, m, u, v), (*norms, *rests), strict=True)))

    return below


def aligned_proof(statement: Statement, steps: Steps) -> None:
    """First the norms' product, then its product with the cosines."""
    part = statement.part
    e, f, s, x = part.symbols
    low, top = part.cosines
    below = both_norms(steps)
    if part.bars:
        terms = [s * (e + f) / 2, x * e]
        terms_below = [s * (e + f) / 2, x * f]
        lemmas = [
            steps.nonnegative("from above", (x + s) * top - x * low, terms),
            steps.nonnegative("from below", (x + s) * top + x * low, terms_below),
        ]
    else:
        lemmas = [steps.nonnegative("from above", (x + s) * top - x * low, [s * top, x * e])]

    def pair(k: int) -> list:
        rho, n, m, lower_n, lower_m, lower, cosine = statement.arguments(k)
        size = abs(cosine) if part.bars else cosine
        norms = below((lower_n, lower_m), (rho**k * n, rho**k * m)) * size
        ends = {e: size - lower, f: size + lower if part.bars else size}
        return [lemma.at({x: lower_n * lower_m, s: 0, **ends}) + norms for lemma in lemmas]

    steps.conclude(statement, pair)


def norms(*, extra: int = 0, decays: bool = True, reach: int = 1) -> Statement:
    """State that a similarity is at most the decayed product of norms."""
    rho, n, m, lower_n, lower_m = sp.symbols("rho n m n_l m_l", nonnegative=True)
    c = sp.symbols("c_l", real=True)

    def claim(k: int) -> tuple[AtMost, AtMost]:
        beta, most = lower_n * lower_m * c, rho ** (2 * k + extra) * n * m
        return AtMost(beta, most), AtMost(-beta, most)

    def given(k: int) -> tuple[AtMost, ...]:
        angles = under(MEANING, (AtMost(c, reach), AtMost(-c, reach)))
        decay = under("A1", (AtMost(lower_n, rho**k * n), AtMost(lower_m, rho**k * m)))
        return (*decay, *angles) if decays else angles

    def sample(draw: random.Random, k: int) -> dict:
        values = {s: sp.Rational(draw.randint(1, 7), 4) for s in (rho, n, m)}
        most = values[rho] ** k if decays else 9
        shares = {lower_n: most * values[n] * share(draw), lower_m: most * values[m] * share(draw)}
        return values | shares | {c: reach * sp.Rational(draw.randint(-4, 4), 4)}

    e, f, s, x, free = (*sp.symbols("e f s x", nonnegative=True), sp.symbols("y", real=True))
    return Statement(
        slug="norm-product-bound",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda k: (rho, n, m, lower_n, lower_m, c),
        sample=sample,
        parts={"symbols": (e, f, x), "slack": s if decays else free, "extra": extra, "reach": reach},
    )


def norms_proof(statement: Statement, steps: Steps) -> None:
    """Cauchy and Schwarz by one more coordinate, then the decay of both norms."""
    part = statement.part
    width = sp.symbols("d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, width, 1) for name in "gh")
    x, y, A, B, D = sp.symbols("x y A B D", real=True)
    square = sp.Trace((y * g - x * h).T * (y * g - x * h))
    parts = y**2 * sp.Trace(g.T * g) + x**2 * sp.Trace(h.T * h) - 2 * x * y * sp.Trace(g.T * h)
    steps.identity("one more coordinate: the new part is a square", square, parts)
    more = (A + x**2) * (B + y**2) - (D + x * y) ** 2
    steps.identity("one more coordinate", more, (A * B - D**2) + (y**2 * A + x**2 * B - 2 * x * y * D))
    e, f, product = part.symbols
    below, lemmas = both_norms(steps), []
    one, cosine = (e + f) / 2, part.reach * (f - e) / 2
    for name, sign, end in (("from above", 1, e), ("from below", -1, f)):
        slack = (product + part.slack) * one - sign * product * cosine
        lemmas.append(steps.nonnegative(name, slack, [part.slack * one, product * end]))

    def pair(k: int) -> list:
        rho, n, m, lower_n, lower_m, c = statement.arguments(k)
        values = {product: lower_n * lower_m, part.slack: 0, e: 1 - c, f: 1 + c}
        rest = below((lower_n, lower_m), (rho**k * n, rho**k * m))
        return [lemma.at(values) + rest for lemma in lemmas]

    steps.conclude(statement, pair)


DECAY = decay()
DECAY_MUTANTS = {
    "a smaller rate": decay(more=-1),
    "one power more": decay(extra=1),
    "the other way round": decay(swapped=True),
}
STATEMENT = bounded()
MUTANTS = {
    "C_a not squared": bounded(size=1),
    "half of it": bounded(share_of=2),
    "one sample's activations not bounded": bounded(both=False),
}
SIGN = sign()
SIGN_MUTANTS = {
    "embeddings of any sign": sign(agreeing=False),
    "gradients of any angle": sign(aligned=False),
    "the printed sign": sign(side=-1),
}
ALIGNED = aligned()
ALIGNED_MUTANTS = {
    "one power more": aligned(extra=1),
    "opposed at the top": aligned(top=False),
    "more aligned below": aligned(expanding=True),
}
BARS = aligned(slug="alignment-decay", bars=True)
BARS_MUTANTS = {
    "one power more": aligned(slug="alignment-decay", bars=True, extra=1),
    "more aligned below": aligned(slug="alignment-decay", bars=True, expanding=True),
}
NORMS = norms()
NORMS_MUTANTS = {
    "one power more": norms(extra=1),
    "norms that do not decay": norms(decays=False),
    "cosines up to 2": norms(reach=2),
}


@pytest.mark.equation("gradient-norm-decay")
def prove_decay_rate(settle):
    settle(DECAY, decay_proof, DECAY_MUTANTS)


@pytest.mark.equation("bounded-activations")
def prove_bounded_activations(settle):
    settle(STATEMENT, bounded_proof, MUTANTS)


@pytest.mark.equation("non-negative-alignment")
def prove_alignment_gives_one_sign(settle):
    settle(SIGN, sign_proof, SIGN_MUTANTS)


@pytest.mark.equation("non-expansive", "alignment-implies-decay")
def prove_non_expansive_similarities_decay(settle):
    settle(ALIGNED, aligned_proof, ALIGNED_MUTANTS)


@pytest.mark.equation("alignment-decay")
def prove_decay_without_a3(settle):
    settle(BARS, aligned_proof, BARS_MUTANTS)


@pytest.mark.equation("norm-product-bound")
def prove_norm_product_bound(settle):
    settle(NORMS, norms_proof, NORMS_MUTANTS)
