r"""Bounds on the ratios ``b = beta^(l)/beta^(L)`` bound everything, from both sides.

``b`` between m and M is ``b = m + u`` and ``M = b + v`` with non-negative u and v; what is bounded
is a sum over layers and validation samples of terms that u and v make non-negative. The last
layer's ratio is 1.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, under, width
from proofs._symbols import parts_of, total

SCOPE = "any depth, any number of validation samples"
SAMPLES = 2
C = sp.symbols("C_a", nonnegative=True)


def grid(name: str, depth: int, **kind: bool) -> list[list[sp.Symbol]]:
    """Name a number for every validation sample and layer, from the top layer down."""
    return [list(sp.symbols(f"{name}{z}_:{depth}", **kind)) for z in range(width(SAMPLES))]


def names(depth: int, *, agreeing: bool = True, aligned: bool = True) -> tuple:
    """Name alpha, the last similarities, the ratios below the last layer, and their bounds."""
    alpha = grid("alpha", depth, **{"nonnegative" if agreeing else "real": True})
    last = list(sp.symbols(f"beta:{width(SAMPLES)}", **{"nonnegative" if aligned else "real": True}))
    ratios = [[sp.Integer(1), *row[1:]] for row in grid("b", depth, real=True)]
    ends = (list(sp.symbols(f"{name}:{depth}", real=True)) for name in "mM")
    low, high = ([sp.Integer(1), *end[1:]] for end in ends)
    return alpha, last, ratios, low, high


def weighted(alpha, last, ratios, start: int = 0) -> sp.Expr:
    """Add up alpha times the ratio times the last similarity."""
    return sp.Add(
        *(
            a * b * beta
            for row, beta, ratio in zip(alpha, last, ratios, strict=True)
            for a, b in list(zip(row, ratio, strict=True))[start:]
        )
    )


ORDERED = r"$0 \le \beta^{(l)} \le \beta^{(L)}$ for every layer and $z$"
BETWEEN = r"$m_l \beta^{(L)} \le \beta^{(l)} \le M_l \beta^{(L)}$"


def between(depth: int, words: str = BETWEEN, **kind: bool) -> tuple[AtMost, ...]:
    """State that every ratio lies between its bounds."""
    _, _, ratios, low, high = names(depth, **kind)
    relations = (
        relation
        for row in ratios
        for k in range(1, depth)
        for relation in (AtMost(low[k], row[k]), AtMost(row[k], high[k]))
    )
    return under(words, relations)


def draw_between(
    draw: random.Random, depth: int, *, unit: bool = False, outside: bool = False, **kind
) -> dict:
    """Draw bounds, ratios between them (often at an end) and positive weights."""
    alpha, last, ratios, low, high = names(depth, **kind)
    values = {}
    for k in range(1, depth):
        ends = sorted(sp.Rational(draw.randint(0 if unit else -4, 8), 8 if unit else 4) for _ in range(2))
        values |= {low[k]: ends[0], high[k]: ends[1]}
        for row in ratios:
            share = draw.choice((sp.Integer(0), sp.Integer(1), sp.Rational(draw.randint(0, 4), 4)))
            values[row[k]] = ends[0] + share * (ends[1] - ends[0]) + (3 if outside else 0)
    for symbol in (*last, *(a for row in alpha for a in row)):
        negative = symbol.is_nonnegative is None and draw.random() < 0.5
        values[symbol] = sp.Rational(draw.randint(1, 8), 4) * (-1 if negative else 1)
    return values


def two_sided(
    *, score: str = "lai", crossed: bool = False, agreeing: bool = True, aligned: bool = True, start: int = 1
) -> Statement:
    """State both ends of LAI minus Ghost, or of Ghost minus LLI."""
    kind = {"agreeing": agreeing, "aligned": aligned}

    def part(ratio: sp.Expr) -> sp.Expr:
        return 1 - ratio if score == "lai" else ratio

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, last, ratios, low, high = names(depth, **kind)
        difference = weighted(alpha, last, [[part(b) for b in row] for row in ratios], 1)
        ends = (high, low) if (score == "lai") != crossed else (low, high)
        smallest, largest = (
            weighted(alpha, last, [[part(b) for b in end]] * width(SAMPLES), start) for end in ends
        )
        return AtMost(smallest, difference), AtMost(difference, largest)

    p, q = (
        sp.symbols(name, **{"nonnegative" if held else "real": True})
        for name, held in (("alpha", agreeing), ("beta", aligned))
    )
    return Statement(
        slug=f"{score}-two-sided",
        scope=SCOPE,
        claim=claim,
        given=lambda depth: between(depth, **kind),
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth, **kind)[:2], *(x[1:] for x in names(depth)[3:])),
        sample=lambda draw, depth: draw_between(draw, depth, **kind),
        parts={
            "part": part,
            "weights": (p, q),
            "falling": (score == "lai") != crossed,
            "names": lambda depth: names(depth, **kind),
            "last": part(sp.Integer(1)) if start == 0 else sp.Integer(0),
        },
    )


def two_sided_proof(statement: Statement, steps: Steps) -> None:
    """One term against either end; the last layer adds nothing."""
    part = statement.part
    m, u, v = sp.symbols("m", real=True), *sp.symbols("u v", nonnegative=True)
    alpha, beta = part.weights
    ratio, top = m + u, m + u + v
    low, high = (top, m) if part.falling else (m, top)
    near, far = (v, u) if part.falling else (u, v)
    weight = alpha * beta
    middle = part.part(ratio)
    lemmas = (
        steps.nonnegative("above the lower end", weight * (middle - part.part(low)), [weight * near]),
        steps.nonnegative("below the upper end", weight * (part.part(high) - middle), [weight * far]),
    )
    steps.identity("the last layer", weight * part.last, sp.Integer(0))

    def added_up(depth: int) -> list:
        values = [
            {m: least, u: b - least, v: most - b, alpha: a, beta: end}
            for a, end, b, least, most in lower_layers(*part.names(depth))
        ]
        return [total(lemma.at(point) for point in values) for lemma in lemmas]

    steps.conclude(statement, added_up)


def lower_layers(alpha, last, ratios, low, high) -> list[tuple]:
    """List alpha, the last similarity, the ratio and its bounds of every layer below the last."""
    return [
        (row[k], end, ratio[k], low[k], high[k])
        for row, end, ratio in zip(alpha, last, ratios, strict=True)
        for k in range(1, len(low))
    ]


def signed(*, unit: bool = True, bounded: bool = True, power: int = 2) -> Statement:
    """State the bound for embeddings of any sign and ratios between 0 and 1."""
    kind = {"agreeing": False, "aligned": False}

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, last, ratios, _, _ = names(depth, **kind)
        gap = weighted(alpha, last, [[b - 1 for b in row] for row in ratios])
        most = C**power * (depth - 1) * sp.Add(*(abs(b) for b in last))
        return AtMost(gap, most), AtMost(-gap, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha, _, ratios, _, _ = names(depth, **kind)
        limits = tuple(AtMost(s * a, C**2) for row in alpha for a in row for s in (1, -1))
        lower = [b for row in ratios for b in row[1:]]
        inside = tuple(r for b in lower for r in (AtMost(0, b), AtMost(b, 1)))
        return (under(MEANING, limits) if bounded else ()) + (under(MEANING, inside) if unit else ())

    def sample(draw: random.Random, depth: int) -> dict:
        values = draw_between(draw, depth, unit=True, outside=not unit, **kind)
        alpha, _, ratios, _, _ = names(depth, **kind)
        size = sp.Rational(draw.randint(1, 8), 4)
        if draw.random() < 0.3:
            values |= {b: sp.Integer(0 if unit else 3) for row in ratios for b in row[1:]}
            values |= {b: sp.Integer(1) for b in names(depth, **kind)[1]}
            return values | {C: size} | {a: size**2 * (1 if bounded else 9) for row in alpha for a in row}
        scale = size**2 * (1 if bounded else 9)
        return values | {C: size} | {a: scale * draw.choice((1, -1, 0)) for row in alpha for a in row}

    p, q, x, y, e, f = sp.symbols("p q x y e f", nonnegative=True)
    w, t = sp.symbols("w t", real=True)
    return Statement(
        slug="lai-two-sided",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (names(depth, **kind)[1], C),
        sample=sample,
        parts={
            "symbols": (p, q, x, y, e, f),
            "alpha": (q - p) / 2 if bounded else w,
            "short": f if unit else t,
            "limit": lambda square: sp.sqrt(square) ** power,
        },
    )


def signed_proof(statement: Statement, steps: Steps) -> None:
    """One term: 1 - b = e lies in [0, 1], so that e + f = 1; beta = x - y, |beta| <= x + y."""
    part = statement.part
    p, q, x, y, e, _ = part.symbols
    one = e + part.short
    most = part.limit((p + q) / 2) * (x + y) * one
    term = part.alpha * (x - y) * e
    rest = (p + q) / 2 * (x + y) * part.short
    lemmas = (
        steps.nonnegative("from below", most + term, [q * x * e, p * y * e, rest]),
        steps.nonnegative("from above", most - term, [p * x * e, q * y * e, rest]),
    )

    def added_up(depth: int) -> list:
        values = []
        for a, end, b, *_ in lower_layers(*names(depth, agreeing=False, aligned=False)):
            up, down = parts_of(end)
            values.append({p: C**2 - a, q: C**2 + a, x: up, y: down, e: 1 - b, part.short: b})
        return [total(lemma.at(point) for point in values) for lemma in lemmas]

    steps.conclude(statement, added_up)


def quotient(*, ends: tuple = (sp.Min, sp.Max), power: int = 1, agreeing: bool = True) -> Statement:
    """State the range of Ghost over LAI."""
    kind = {"agreeing": agreeing}

    def mean(weights: list, bounds: list) -> sp.Expr:
        top = sp.Add(*(a**power * b for a, b in zip(weights, bounds, strict=True)))
        return top / sp.Add(*(a**power for a in weights))

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, last, ratios, low, high = names(depth, **kind)
        ones = [[sp.Integer(1)] * depth] * width(SAMPLES)
        found = weighted(alpha, last, ratios) / weighted(alpha, last, ones)
        least, most = (
            end(*(mean(row, bounds) for row in alpha)) for end, bounds in zip(ends, (low, high), strict=True)
        )
        return AtMost(least, found), AtMost(found, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha, last, _, _, _ = names(depth, **kind)
        lai = weighted(alpha, last, [[sp.Integer(1)] * depth] * width(SAMPLES))
        return (*between(depth, ORDERED, **kind), *under("LAI is not zero", (AtMost(0, lai, strict=True),)))

    def sample(draw: random.Random, depth: int) -> dict:
        values = draw_between(draw, depth, unit=True, **kind)
        if not agreeing:
            first = names(depth, **kind)[0]
            values |= {row[0]: sp.Integer(9) for row in first}
        return values

    a, whole = (
        sp.symbols("a", **{"nonnegative" if agreeing else "real": True}),
        sp.symbols("A", positive=True),
    )
    return Statement(
        slug="ghost-lai-range",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (names(depth)[0], *(x[1:] for x in names(depth)[3:])),
        sample=sample,
        parts={"weight": a, "whole": whole, "power": power, "ends": ends},
    )


def quotient_proof(statement: Statement, steps: Steps) -> None:
    """Per sample the mean of b lies between those of m and M; over samples, weights are LAI's."""
    part = statement.part
    a, whole = part.weight, part.whole
    m, s, r = sp.symbols("m s r", real=True)
    u, v, lai, x, y = sp.symbols("u v I x y", nonnegative=True)
    steps.identity("weights of the mean", a**part.power, a)
    below = (s + a * (m + u)) / whole - (s + a * m) / whole
    layers = [steps.nonnegative("one more layer, lower end", below, [a * u / whole])]
    above = (s + a * (m + u + v)) / whole - (s + a * (m + u)) / whole
    layers.append(steps.nonnegative("one more layer, upper end", above, [a * v / whole]))
    low, high = (end(r, r + x) for end in part.ends)
    samples = []
    for name, difference in (("first", sp.Integer(0)), ("second", x)):
        least, most = r + difference + y, r + difference - y
        samples += [
            steps.nonnegative(f"{name} sample, least", (least - low) * lai, [difference * lai, y * lai]),
            steps.nonnegative(f"{name} sample, most", (high - most) * lai, [(x - difference) * lai, y * lai]),
        ]

    def mean(weights: list, bounds: list) -> sp.Expr:
        return weighted([weights], [sp.Integer(1)], [bounds]) / sp.Add(*weights)

    def added_up(depth: int) -> list:
        alpha, last, ratios, ends_below, ends_above = names(depth)
        score = weighted(alpha, last, [[sp.Integer(1)] * depth] * width(SAMPLES))
        sums = [sp.Integer(0), sp.Integer(0)]
        for side, bounds in enumerate((ends_below, ends_above)):
            end = (sp.Min, sp.Max)[side](*(mean(row, bounds) for row in alpha))
            for row, beta, found in zip(alpha, last, ratios, strict=True):
                for k, weight in enumerate(row):
                    inside = {m: ends_below[k], u: found[k] - ends_below[k], v: ends_above[k] - found[k]}
                    sums[side] += layers[side].at({s: 0, a: weight, whole: score, **inside}) * beta
                apart = (mean(row, bounds) - end) * (-1) ** side
                values = {r: end, x: 0, y: apart, lai: sp.Add(*row) * beta / score}
                sums[side] += samples[side].at(values)
        return sums

    steps.conclude(statement, added_up, depths=statement.depths)


def below_one(*, layer: int = 0, unit: bool = True, end: type = sp.Min, agreeing: bool = True) -> Statement:
    """State that aligned layers keep LAI's relative error below 1."""
    kind = {"agreeing": agreeing}

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, last, ratios, _, _ = names(depth, **kind)
        lai = weighted(alpha, last, [[sp.Integer(1)] * depth] * width(SAMPLES))
        error = 1 - weighted(alpha, last, ratios) / lai
        most = 1 - end(*(row[layer % depth] / sp.Add(*row) for row in alpha))
        return AtMost(0, error), AtMost(error, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha, last, ratios, _, _ = names(depth, **kind)
        lower = [b for row in ratios for b in row[1:]]
        lai = weighted(alpha, last, [[sp.Integer(1)] * depth] * width(SAMPLES))
        inside = tuple(r for b in lower for r in (AtMost(0, b), AtMost(b, 1)))
        positive = under("LAI is not zero", (AtMost(0, lai, strict=True),))
        return (*under(ORDERED, inside if unit else ()), *positive)

    def sample(draw: random.Random, depth: int) -> dict:
        values = draw_between(draw, depth, unit=True, outside=not unit, **kind)
        ratios = names(depth, **kind)[2]
        if draw.random() < 0.4 and unit:
            values |= {b: sp.Integer(0) for row in ratios for b in row[1:]}
        if not agreeing:
            values |= {row[0]: sp.Integer(9) for row in names(depth, **kind)[0]}
        return values

    a = sp.symbols("a", **{"nonnegative" if agreeing else "real": True})
    return Statement(
        slug="relative-below-one",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (names(depth)[0],),
        sample=sample,
        parts={
            "weight": a,
            "short": sp.symbols("f", **{"nonnegative" if unit else "real": True}),
            "top": layer,
            "end": end,
        },
    )


def below_one_proof(statement: Statement, steps: Steps) -> None:
    """Per sample Ghost is LAI less what the ratios take, and at least the last layer's part."""
    part = statement.part
    a, f = part.weight, part.short
    beta, b, last, lower, x = sp.symbols("beta b t l x", nonnegative=True)
    one = b + f
    more = steps.nonnegative("no more than LAI", a * beta * one - a * beta * b, [a * beta * f])
    kept = {0: last}.get(part.top, lower)
    ghost = last * beta + a * beta * b
    less = steps.nonnegative("no less than the last layer's part", ghost - kept * beta, [a * beta * b])
    least = part.end(x, x + last)
    steps.nonnegative("the smallest share, first sample", x - least, [0])
    share = steps.nonnegative("the smallest share, second sample", x + last - least, [last])

    def added_up(depth: int) -> list:
        alpha, ends, ratios, low, high = names(depth)
        score = weighted(alpha, ends, [[sp.Integer(1)] * depth] * width(SAMPLES))
        smallest = sp.Min(*(row[0] / sp.Add(*row) for row in alpha))
        above = below = sp.Integer(0)
        for w, end, ratio, *_ in lower_layers(alpha, ends, ratios, low, high):
            above += more.at({a: w, beta: end, b: ratio, f: 1 - ratio})
            below += less.at({a: w, beta: end, b: ratio, last: 0})
        for row, end in zip(alpha, ends, strict=True):
            excess = row[0] / sp.Add(*row) - smallest
            below += share.at({x: smallest, last: excess}) * (sp.Add(*row) * end)
        return [above / score, below / score]

    steps.conclude(statement, added_up, depths=statement.depths)


STATEMENT = two_sided()
MUTANTS = {
    "ends exchanged": two_sided(crossed=True),
    "embeddings of any sign": two_sided(agreeing=False),
    "opposed at the top": two_sided(aligned=False),
}
SIGNED = signed()
SIGNED_MUTANTS = {
    "ratios above 1": signed(unit=False),
    "activations not bounded": signed(bounded=False),
    "C_a not squared": signed(power=1),
}
LLI = two_sided(score="lli")
LLI_MUTANTS = {
    "ends exchanged": two_sided(score="lli", crossed=True),
    "embeddings of any sign": two_sided(score="lli", agreeing=False),
    "the last layer counted": two_sided(score="lli", start=0),
}
QUOTIENT = quotient()
QUOTIENT_MUTANTS = {
    "the largest for the smallest": quotient(ends=(sp.Max, sp.Max)),
    "the smallest for the largest": quotient(ends=(sp.Min, sp.Min)),
    "alpha squared": quotient(power=2),
    "embeddings of any sign": quotient(agreeing=False),
}
BELOW_ONE = below_one()
BELOW_ONE_MUTANTS = {
    "the bottom layer's share": below_one(layer=-1),
    "ratios above 1": below_one(unit=False),
    "the largest share": below_one(end=sp.Max),
    "embeddings of any sign": below_one(agreeing=False),
}


@pytest.mark.equation("lai-two-sided")
def prove_lai_gap_from_both_sides(settle):
    settle(STATEMENT, two_sided_proof, MUTANTS)
    settle(SIGNED, signed_proof, SIGNED_MUTANTS)


@pytest.mark.equation("lli-two-sided")
def prove_lli_gap_from_both_sides(settle):
    settle(LLI, two_sided_proof, LLI_MUTANTS)


@pytest.mark.equation("ghost-lai-range")
def prove_range_of_ghost_over_lai(settle):
    settle(QUOTIENT, quotient_proof, QUOTIENT_MUTANTS)


@pytest.mark.equation("relative-below-one")
def prove_relative_error_below_one(settle):
    settle(BELOW_ONE, below_one_proof, BELOW_ONE_MUTANTS)
