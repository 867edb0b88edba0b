r"""Bounds on the ratios ``b = beta^(l)/beta^(L)`` bound everything, from both sides.

``b`` between m and M is ``b = m + u`` and ``M = b + v`` with non-negative u and v; what is bounded
is a sum over layers and validation samples of terms that u and v make non-negative. The last
layer's ratio is 1.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import AtMost, Statement, Steps, under, width
from proofs._symbols import parts_of, total

SCOPE = "any depth, any number of validation samples"
SAMPLES = 2
C = sp.symbols("C_a", nonnegative=True)
s, t = sp.symbols("s t", real=True)


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
UNIT = r"$\beta^{(l)} = b_l \beta^{(L)}$ with $0 \le b_l \le 1$ for every layer and $z$"
SHARE = r"$s \sum_l \alpha^{(l)} \le \alpha^{(L)}$ for every $z$"
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
        return (under("A2", limits) if bounded else ()) + (under(UNIT, inside) if unit else ())

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
        slug="lai-gap",
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


def shares(depth: int, ends: tuple, power: int = 1, every: bool = True, **kind: bool) -> tuple[AtMost, ...]:
    """State that s and t, times a sample's alphas, lie below and above what the bounds make of them."""
    found = []
    for row in names(depth, **kind)[0][: None if every else 1]:
        weights = [a**power for a in row]
        low, high = (total(a * b for a, b in zip(weights, end, strict=True)) for end in ends)
        found += [AtMost(s * total(weights), low), AtMost(high, t * total(weights))]
    return under(SHARE, found)


def draw_shares(draw: random.Random, given: tuple[AtMost, ...], values: dict) -> dict:
    """Draw samples that share nothing, too, and the best s and t, or worse ones."""
    found, ends = dict(values), {s: [], t: []}
    for relation in given:
        difference = sp.expand((relation.rhs - relation.lhs).xreplace(found))
        for symbol in ends:
            if (slope := difference.coeff(symbol, 1)) != 0:
                ends[symbol].append(-difference.coeff(symbol, 0) / slope)
    worse = draw.choice((0, 0, sp.Rational(1, 2)))
    return found | {s: min(ends[s], default=1) - worse, t: max(ends[t], default=1) + worse}


def quotient(
    *, swapped: bool = False, power: int = 1, agreeing: bool = True, aligned: bool = True, every: bool = True
) -> Statement:
    """State the range of Ghost in multiples of LAI."""
    kind = {"agreeing": agreeing, "aligned": aligned}

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, last, ratios, _, _ = names(depth, **kind)
        ghost, lai = weighted(alpha, last, ratios), weighted(alpha, last, ones(depth))
        return AtMost(s * lai, ghost), AtMost(ghost, t * lai)

    def given(depth: int) -> tuple[AtMost, ...]:
        ends = names(depth, **kind)[3:]
        share = shares(depth, ends[::-1] if swapped else ends, power=power, every=every, **kind)
        return (*between(depth, ORDERED, **kind), *share)

    def sample(draw: random.Random, depth: int) -> dict:
        values = draw_between(draw, depth, unit=True, **kind)
        row = draw.choice((*names(depth, **kind)[0], ()))
        values |= dict.fromkeys(row, sp.Integer(0))
        return draw_shares(draw, given(depth), values)

    return Statement(
        slug="ghost-lai-range",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth, **kind)[:2], s, t),
        sample=sample,
        parts={"names": lambda depth: names(depth, **kind), "weights": weights_of(agreeing, aligned)},
    )


def weights_of(agreeing: bool, aligned: bool) -> tuple[sp.Symbol, sp.Symbol]:
    """Give one alpha and one last similarity, of any sign where the statement allows it."""
    held = (("alpha", agreeing), ("beta", aligned))
    return tuple(sp.symbols(name, **{"nonnegative" if sign else "real": True}) for name, sign in held)


def ones(depth: int) -> list[list[sp.Expr]]:
    """Give every layer the ratio 1: LAI's."""
    return [[sp.Integer(1)] * depth] * width(SAMPLES)


def quotient_proof(statement: Statement, steps: Steps) -> None:
    """Per layer b lies between m and M; per sample s and t are within what these make of its alphas."""
    a, beta = statement.part.weights
    m = sp.symbols("m", real=True)
    u, v, x = sp.symbols("u v x", nonnegative=True)
    weight = a * beta
    layers = (
        steps.nonnegative("one layer, lower end", weight * (m + u) - weight * m, [weight * u]),
        steps.nonnegative("one layer, upper end", weight * (m + u + v) - weight * (m + u), [weight * v]),
    )
    one = steps.nonnegative("one sample", x * beta, [x * beta])

    def added_up(depth: int) -> list:
        alpha, last, ratios, *ends = statement.part.names(depth)
        sums = [sp.Integer(0), sp.Integer(0)]
        for row, end, found in zip(alpha, last, ratios, strict=True):
            for k, w in enumerate(row):
                inside = {m: ends[0][k], u: found[k] - ends[0][k], v: ends[1][k] - found[k]}
                sums = [sums[side] + layers[side].at({a: w, beta: end, **inside}) for side in range(2)]
            low, high = (total(w * b for w, b in zip(row, bounds, strict=True)) for bounds in ends)
            slacks = low - s * total(row), t * total(row) - high
            sums = [sums[side] + one.at({x: slacks[side], beta: end}) for side in range(2)]
        return sums

    steps.conclude(statement, added_up)


def below_one(
    *, layer: int = 0, unit: bool = True, every: bool = True, agreeing: bool = True, aligned: bool = True
) -> Statement:
    """State that aligned layers keep LAI's error within what the lower layers' share of LAI is."""
    kind = {"agreeing": agreeing, "aligned": aligned}

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, last, ratios, _, _ = names(depth, **kind)
        ghost, lai = weighted(alpha, last, ratios), weighted(alpha, last, ones(depth))
        return AtMost(0, lai - ghost), AtMost(lai - ghost, (1 - s) * lai)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha, _, ratios, _, _ = names(depth, **kind)
        inside = tuple(r for row in ratios for b in row[1:] for r in (AtMost(0, b), AtMost(b, 1)))
        share = (AtMost(s * total(row), row[layer % depth]) for row in alpha[: None if every else 1])
        return (*under(ORDERED, inside if unit else ()), *under(SHARE, share))

    def sample(draw: random.Random, depth: int) -> dict:
        values = draw_between(draw, depth, unit=True, outside=not unit, **kind)
        alpha, _, ratios, _, _ = names(depth, **kind)
        if draw.random() < 0.4 and unit:
            values |= {b: sp.Integer(0) for row in ratios for b in row[1:]}
        values |= dict.fromkeys(draw.choice((*alpha, ())), sp.Integer(0))
        return {x: y for x, y in draw_shares(draw, given(depth), values).items() if x != t}

    return Statement(
        slug="relative-below-one",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth, **kind)[:2], s),
        sample=sample,
        parts={
            "names": lambda depth: names(depth, **kind),
            "weights": weights_of(agreeing, aligned),
            "short": sp.symbols("f", **{"nonnegative" if unit else "real": True}),
        },
    )


def below_one_proof(statement: Statement, steps: Steps) -> None:
    """Per sample Ghost is LAI less what the ratios take, and at least the last layer's part."""
    (a, beta), f = statement.part.weights, statement.part.short
    b, x = sp.symbols("b x", nonnegative=True)
    more = steps.nonnegative("no more than LAI", a * beta * (b + f) - a * beta * b, [a * beta * f])
    less = steps.nonnegative("no less than the last layer's part", a * beta * b, [a * beta * b])
    share = steps.nonnegative("the last layer's part", x * beta, [x * beta])

    def added_up(depth: int) -> list:
        alpha, last, ratios, low, high = statement.part.names(depth)
        above = below = sp.Integer(0)
        for w, end, ratio, *_ in lower_layers(alpha, last, ratios, low, high):
            above += more.at({a: w, beta: end, b: ratio, f: 1 - ratio})
            below += less.at({a: w, beta: end, b: ratio})
        for row, end in zip(alpha, last, strict=True):
            below += share.at({x: row[0] - s * total(row), beta: end})
        return [above, below]

    steps.conclude(statement, added_up, depths=(2, 3, 4))


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
    "ends exchanged": quotient(swapped=True),
    "alpha squared": quotient(power=2),
    "embeddings of any sign": quotient(agreeing=False),
    "opposed at the top": quotient(aligned=False),
    "the first sample's share": quotient(every=False),
}
BELOW_ONE = below_one()
BELOW_ONE_MUTANTS = {
    "the bottom layer's share": below_one(layer=-1),
    "ratios above 1": below_one(unit=False),
    "the first sample's share": below_one(every=False),
    "embeddings of any sign": below_one(agreeing=False),
    "opposed at the top": below_one(aligned=False),
}


@pytest.mark.equation("lai-two-sided")
def prove_lai_gap_from_both_sides(settle):
    settle(STATEMENT, two_sided_proof, MUTANTS)


@pytest.mark.equation("lai-gap")
def prove_lai_gap_for_similarities_of_any_sign(settle):
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
