r"""The printed geometric bounds: false for LAI, true for LLI, and where LAI's error goes instead.

Against LAI: a network whose similarities are ``r^(2k)`` (k layers below the last; embeddings of
length 1) satisfies A1 for every rho from r on. Its gap exceeds the printed bound wherever
``r^2 + rho^2 < 1``, so for **every** rho below 1 there is a network that breaks it; likewise the
relative bound wherever ``r^2 + L rho^2 < 1``. Shown for every depth, by one more layer.

For LLI: one term of the difference against one term of the bound, by slack; see
`proofs.prove_conservative` for how signs are written without cases.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, under, width
from proofs._symbols import total

SAMPLES = 2
RHO, RATE, C, ABAR = sp.symbols("rho r C_a abar", positive=True)


def broken(
    *, relative: bool = False, score: str = "lai", fast: bool = True, swapped: bool = False
) -> Statement:
    """State that the printed bound is below the gap; the arguments make mutants."""

    def claim(depth: int) -> AtMost:
        lower = range(1, depth)
        gap = sp.Add(*((1 - RATE ** (2 * k)) if score == "lai" else RATE ** (2 * k) for k in lower))
        printed = sp.Add(*(RHO ** (2 * k) for k in lower))
        sides = printed, gap / depth if relative else gap
        return AtMost(*(reversed(sides) if swapped else sides), strict=True)

    def weight(depth: int) -> int:
        return depth if relative else 1

    def given(depth: int) -> tuple[AtMost, ...]:
        # where the example breaks the printed bound
        apart = AtMost(RATE**2 + weight(depth) * RHO**2, 1, strict=True)
        return (
            *under("A1", (AtMost(RATE, RHO), AtMost(RHO, 1, strict=True))),
            *(under(MEANING, (apart,)) if fast else ()),
        )

    def sample(draw: random.Random, depth: int) -> dict:
        rho = sp.Rational(draw.randint(1, 9), 10 * (depth if fast and relative else 1))
        rate = rho * sp.Rational(draw.randint(1, 8), 8)
        if fast and rate**2 + weight(depth) * rho**2 >= 1:
            rate = rho * sp.Rational(1, 100)
        return {RHO: rho, RATE: rate}

    x, y, m = sp.symbols("x y m", nonnegative=True)
    d = sp.symbols("d", **{"positive" if fast else "real": True})
    return Statement(
        slug="app-rel-gap" if relative else "app-abs-gap",
        scope="any depth of at least 2, any rho below 1",
        claim=claim,
        given=given,
        depths=(2, 3, 5),
        arguments=lambda depth: (RHO, RATE),
        sample=sample,
        parts={
            "margin": d,
            "weight": 1 + m if relative else sp.Integer(1),
            "extra": m,
            "relative": relative,
            "symbols": (x, y),
            "term": lambda X: (1 - X) if score == "lai" else X,
            "side": -1 if swapped else 1,
        },
    )


def broken_proof(statement: Statement, steps: Steps) -> None:
    """Keep ``term - w rho^(2k) >= d > 0`` through one more layer; x = r^2, y = rho^2, 1 = x + w y + d."""
    part = statement.part
    x, y = part.symbols
    w, d = part.weight, part.margin
    one = x + w * y + d
    X, Y = sp.symbols("X Y", nonnegative=True)
    a, b = sp.symbols("a b", nonnegative=True)
    steps.nonnegative("1 - x", one - x, [w * y, d])
    steps.nonnegative("1 - y", one - y, [x, (w - 1) * y, d])
    first = part.side * (part.term(x) - w * y)
    start = steps.nonnegative("the layer below the last", first.subs(x, 1 - w * y - d), [d])
    below = part.side * (part.term((1 - a) * X) - w * (1 - b) * Y)
    above = part.side * (part.term(X) - w * Y)
    more = steps.nonnegative("one more layer", below - above, [a * X, w * b * Y])

    def added_up(depth: int):
        weight = {part.extra: depth - 1} if part.relative else {}
        base = start.at({y: RHO**2, d: 1 - RATE**2 - (depth if part.relative else 1) * RHO**2, **weight})
        grown = [
            more.at({a: 1 - RATE**2, b: 1 - RHO**2, X: RATE ** (2 * k), Y: RHO ** (2 * k), **weight})
            for k in range(1, depth - 1)
        ]
        layers = total(base + total(grown[:k]) for k in range(depth - 1))
        return layers / (depth if part.relative else 1)

    steps.conclude(statement, added_up)


def names(depth: int, *, aligned: bool = False) -> tuple:
    """Name the similarities of every validation sample, from the top layer down."""
    kind = {"nonnegative" if aligned else "real": True}
    return tuple(
        [list(sp.symbols(f"{name}{z}_:{depth}", **assumed)) for z in range(width(SAMPLES))]
        for name, assumed in (("alpha", {"real": True}), ("beta", kind))
    )


def scores(depth: int, **kind: bool) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Write Ghost, LAI and LLI."""
    alpha, beta = names(depth, **kind)
    ghost = sp.Add(*(a * b for x, y in zip(alpha, beta, strict=True) for a, b in zip(x, y, strict=True)))
    lai = sp.Add(*(sp.Add(*x) * y[0] for x, y in zip(alpha, beta, strict=True)))
    return ghost, lai, sp.Add(*(x[0] * y[0] for x, y in zip(alpha, beta, strict=True)))


NARROW = r"A1; $|\cos(g_z^{(l)}, g_j^{(l)})| \le |\cos(g_z^{(L)}, g_j^{(L)})|$ for every $l$ and $z$"
LAST = r"$\alpha^{(L)} \ge \bar\alpha > 0$"


def share(draw: random.Random, low: int = 0) -> sp.Rational:
    """Draw a number from 0 to 1, or from -1; often an end."""
    ends = (sp.Integer(low), sp.Integer(0), sp.Integer(1))
    return draw.choice((*ends, sp.Rational(draw.randint(8 * low, 8), 8)))


def lli(*, extra: int = 0, power: int = 2, score: str = "lli", decays: bool = True) -> Statement:
    """State the geometric bound for LLI."""

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        ghost, lai, last = scores(depth)
        _, beta = names(depth)
        powers = sp.Add(*(RHO ** (2 * k + extra) for k in range(1, depth)))
        most = C**power * sp.Add(*(abs(y[0]) for y in beta)) * powers
        other = {"lli": last, "lai": lai}[score]
        return AtMost(ghost - other, most), AtMost(other - ghost, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha, beta = names(depth)
        signs = (1, -1)
        bounded = tuple(AtMost(s * a, C**2) for x in alpha for a in x for s in signs)
        decay = tuple(
            AtMost(s * y[k], RHO ** (2 * k) * abs(y[0])) for y in beta for k in range(1, depth) for s in signs
        )
        return under("A2", bounded) + (under(NARROW, decay) if decays else ())

    def sample(draw: random.Random, depth: int) -> dict:
        values = {RHO: sp.Rational(draw.randint(1, 9), 8), C: sp.Rational(draw.randint(1, 8), 4)}
        tight = draw.random() < 0.3
        for x, y in zip(*names(depth), strict=True):
            values[y[0]] = sp.Rational(draw.randint(-4, 4), 2)
            for k in range(depth):
                values[x[k]] = values[C] ** 2 * (1 if tight else share(draw, -1))
            for k in range(1, depth):
                most = (values[RHO] ** (2 * k) if decays else 3) * abs(values[y[0]])
                values[y[k]] = most * (1 if tight else share(draw, -1))
        return values

    p, q, e, f, free = (*sp.symbols("p q e f", nonnegative=True), sp.symbols("w", real=True))
    return Statement(
        slug="lli-gap",
        scope="any depth, any number of validation samples, embeddings of any sign",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth), RHO, C),
        sample=sample,
        parts={
            "symbols": (p, q, e, f),
            "limit": lambda square, top: sp.sqrt(square) ** power * top,
            "beta": (f - e) / 2 if decays else free,
            "counts": 1 if score == "lai" else 0,
            "extra": extra,
        },
    )


def lli_proof(statement: Statement, steps: Steps) -> None:
    """Add up the terms of the bound, from above and from below."""
    steps.conclude(statement, lambda depth: lli_terms(statement, steps, depth))


def lli_terms(statement: Statement, steps: Steps, depth: int, *, aligned: bool = False) -> list:
    """Show one term, from above and from below, and add up all of them."""
    part = statement.part
    p, q, e, f = part.symbols
    last = sp.symbols("L", real=True)
    most = part.limit((p + q) / 2, (e + f) / 2)
    term = (q - p) / 2 * (part.beta - part.counts * last)
    lemmas = (
        steps.nonnegative("from above", most - term, [p * f / 2, q * e / 2]),
        steps.nonnegative("from below", most + term, [q * f / 2, p * e / 2]),
    )
    values = []
    for x, y in zip(*names(depth, aligned=aligned), strict=True):
        for k in range(1, depth):
            top = RHO ** (2 * k) * abs(y[0])
            values.append({p: C**2 - x[k], q: C**2 + x[k], e: top - y[k], f: top + y[k]})
    return [total(lemma.at(point) for point in values) for lemma in lemmas]


def lli_relative(*, inverse: int = 1, extra: int = 0, bar: bool = True) -> Statement:
    """State the relative bound for LLI."""

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        ghost, _, last = scores(depth, aligned=True)
        most = C**2 / ABAR**inverse * sp.Add(*(RHO ** (2 * k + extra) for k in range(1, depth)))
        return AtMost((ghost - last) / last, most), AtMost((last - ghost) / last, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha, beta = names(depth, aligned=True)
        bounded = tuple(AtMost(s * a, C**2) for x in alpha for a in x for s in (1, -1))
        decay = tuple(AtMost(y[k], RHO ** (2 * k) * y[0]) for y in beta for k in range(1, depth))
        last = tuple(AtMost(ABAR, x[0]) for x in alpha) if bar else ()
        lli = AtMost(0, scores(depth, aligned=True)[2], strict=True)
        return (
            under("A2", bounded) + under(NARROW, decay) + under(LAST, last) + under("LLI is not zero", [lli])
        )

    def sample(draw: random.Random, depth: int) -> dict:
        values = {RHO: sp.Rational(draw.randint(1, 7), 8), C: sp.Rational(draw.randint(3, 8), 4)}
        values[ABAR] = values[C] ** 2 * sp.Rational(draw.randint(1, 8), 8)
        low = values[ABAR] if bar else sp.Rational(1, 100)
        for x, y in zip(*names(depth, aligned=True), strict=True):
            values[y[0]] = sp.Rational(draw.randint(1, 4), 2)
            values[x[0]] = low + (values[C] ** 2 - low) * share(draw) * (1 if bar else 0)
            for k in range(1, depth):
                values[x[k]] = values[C] ** 2 * share(draw, -1)
                values[y[k]] = values[RHO] ** (2 * k) * values[y[0]] * share(draw)
        return values

    return Statement(
        slug="lli-relative-gap",
        scope="any depth, any number of validation samples",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth, aligned=True), RHO, C, ABAR),
        sample=sample,
        parts={
            "inverse": inverse,
            "extra": extra,
            "slack": sp.symbols("w", **{"nonnegative" if bar else "real": True}),
        },
    )


def lli_relative_proof(statement: Statement, steps: Steps) -> None:
    """Divide the gap, at most C_a^2 T geo, by LLI, at least alpha-bar T."""
    part = statement.part
    T, C2 = sp.symbols("T C2", positive=True)
    G, s = sp.symbols("geo s", nonnegative=True)
    gap, last = C2 * T * G - s, ABAR * T + part.slack
    most = C2 / ABAR**part.inverse * G
    times = steps.nonnegative("times LLI", most * last - gap, [C2 / ABAR * G * part.slack, s])

    def divided(depth: int) -> list:
        _, beta = names(depth, aligned=True)
        score, sum_of_last = scores(depth, aligned=True)[2], sp.Add(*(y[0] for y in beta))
        values = {T: sum_of_last, C2: C**2, G: sp.Add(*(RHO ** (2 * k) for k in range(1, depth))), s: 0}
        least = times.at(values | {part.slack: score - ABAR * sum_of_last})
        return [(least + rest) / score for rest in lli_terms(LLI, steps, depth, aligned=True)]

    steps.conclude(statement, divided)


def limit(*, target: int = 1, layer: int = 0, start: int = 1) -> Statement:
    """State how far LAI's relative error is from its limit, whatever the ratios: it vanishes with them."""

    def parts(depth: int) -> tuple:
        alpha, last = names(depth)[0], [row[0] for row in names(depth)[1]]
        ratios = [list(sp.symbols(f"r{z}_:{depth - 1}", real=True)) for z in range(width(SAMPLES))]
        return alpha, last, ratios

    def terms(depth: int) -> tuple:
        alpha, last, ratios = parts(depth)
        lai = sp.Add(*(sp.Add(*x) * b for x, b in zip(alpha, last, strict=True)))
        kept = sp.Add(*(x[layer % depth] * b for x, b in zip(alpha, last, strict=True)))
        rows = zip(alpha, last, ratios, strict=True)
        below = [a * r * b for x, b, row in rows for a, r in zip(x[1:], row, strict=True)]
        return lai, kept, below

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        lai, kept, below = terms(depth)
        alpha, last, _ = parts(depth)
        top = sp.Add(*(x[0] * b for x, b in zip(alpha, last, strict=True)))
        error = abs(lai - top - sp.Add(*below)) / abs(lai)
        end = target * abs(1 - kept / lai)
        rest = sp.Add(*map(abs, below[start - 1 :])) / abs(lai)
        return AtMost(error - end, rest), AtMost(end - error, rest)

    return Statement(
        slug="relative-limit",
        scope="any depth, any number of validation samples, similarities and ratios of any sign",
        claim=claim,
        depths=(1, 2, 3),
        arguments=parts,
        parts={"terms": terms},
    )


def limit_proof(statement: Statement, steps: Steps) -> None:
    """Compare ``|x - y|`` with ``|x|``: x is LAI without its last layer, y what Ghost has below it."""
    size = sp.Symbol("t", nonnegative=True)
    triangle = steps.nonnegative("what a triangle inequality leaves", size, [size])

    def over_lai(depth: int) -> list:
        lai, kept, below = statement.part.terms(depth)
        x, y = lai - kept, sp.Add(*below)
        each = triangle.at({size: sp.Add(*map(abs, below)) - abs(y)})
        sides = abs(x) + abs(y) - abs(x - y), abs(x - y) + abs(y) - abs(x)
        return [(triangle.at({size: side}) + each) / abs(lai) for side in sides]

    steps.conclude(statement, over_lai)


STATEMENT = broken()
MUTANTS = {
    "for LLI's gap": broken(score="lli"),
    "without rates far enough below rho": broken(fast=False),
    "the printed direction": broken(swapped=True),
}
RELATIVE = broken(relative=True)
RELATIVE_MUTANTS = {
    "for LLI's gap": broken(relative=True, score="lli"),
    "without rates far enough below rho": broken(relative=True, fast=False),
    "the printed direction": broken(relative=True, swapped=True),
}
LLI = lli()
LLI_MUTANTS = {
    "one power more": lli(extra=1),
    "C_a not squared": lli(power=1),
    "for LAI, as printed": lli(score="lai"),
    "similarities that do not decay": lli(decays=False),
}
LLI_RELATIVE = lli_relative()
LLI_RELATIVE_MUTANTS = {
    "alpha-bar inverted": lli_relative(inverse=-1),
    "one power more": lli_relative(extra=1),
    "no smallest embedding": lli_relative(bar=False),
}
LIMIT = limit()
LIMIT_MUTANTS = {
    "zero, as printed": limit(target=0),
    "the bottom layer's share": limit(layer=-1),
    "no decay of the layer below the last": limit(start=0),
}


@pytest.mark.equation("app-abs-gap")
def prove_the_printed_bound_fails_for_lai(settle):
    settle(STATEMENT, broken_proof, MUTANTS)


@pytest.mark.equation("app-rel-gap")
def prove_the_printed_relative_bound_fails_for_lai(settle):
    settle(RELATIVE, broken_proof, RELATIVE_MUTANTS)


@pytest.mark.equation("lli-gap")
def prove_the_printed_bound_for_lli(settle):
    settle(LLI, lli_proof, LLI_MUTANTS)


@pytest.mark.equation("lli-relative-gap")
def prove_the_printed_relative_bound_for_lli(settle):
    settle(LLI_RELATIVE, lli_relative_proof, LLI_RELATIVE_MUTANTS)


@pytest.mark.equation("relative-limit")
def prove_the_limit_of_the_relative_error(settle):
    settle(LIMIT, limit_proof, LIMIT_MUTANTS)
