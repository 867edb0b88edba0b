r"""The conservative bounds: as printed, sharp, relative, and without any alignment.

Layers are numbered from the top: ``alpha[z][k]`` lies k layers below the last. Every bound is a sum
over layers and validation samples, so that it is shown for one term, and one more term adds what
was shown. A number between ``-C`` and ``C`` is ``(q - p)/2`` with ``C = (p + q)/2``; what is at
least 0 is a non-negative symbol.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import sympy as sp

from proofs._harness import AtMost, Statement, Steps, under, width
from proofs._symbols import one_where, parts_of, total

SCOPE = "any depth, any number of validation samples"
SAMPLES = 2
RHO, C, ABAR, M = sp.symbols("rho C_a abar m", nonnegative=True)


def share(draw: random.Random, low: int = 0) -> sp.Rational:
    """Draw a number from 0 to 1, or from -1; often an end."""
    return draw.choice(
        (sp.Integer(low), sp.Integer(0), sp.Integer(1), sp.Rational(draw.randint(8 * low, 8), 8))
    )


SUMS, LAST = r"$\sum_{l<L} \alpha^{(l)} \ge 0$", r"$\alpha^{(L)} \ge \bar\alpha > 0$"
POSITIVE = r"$\sum_z \beta^{(L)} > 0$"  # with the two before, LAI is positive


def names(depth: int, *, aligned: bool = True) -> tuple:
    """Name alpha, beta and the validation norms; beta non-negative under A3."""
    kind = {"nonnegative" if aligned else "real": True}
    alpha, beta = (
        [list(sp.symbols(f"{name}{z}_:{depth}", **assumed)) for z in range(width(SAMPLES))]
        for name, assumed in (("alpha", {"real": True}), ("beta", kind))
    )
    return alpha, beta, list(sp.symbols(f"n:{width(SAMPLES)}", nonnegative=True))


def pairs(depth: int) -> list[tuple[int, int]]:
    """List the validation samples and the layers below the last."""
    return [(z, k) for z in range(width(SAMPLES)) for k in range(1, depth)]


def scores(depth: int, **kind: bool) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Write Ghost, LAI and LLI."""
    alpha, beta, _ = names(depth, **kind)
    ghost = sp.Add(*(a * b for x, y in zip(alpha, beta, strict=True) for a, b in zip(x, y, strict=True)))
    lai = sp.Add(*(sp.Add(*x) * y[0] for x, y in zip(alpha, beta, strict=True)))
    return ghost, lai, sp.Add(*(x[0] * y[0] for x, y in zip(alpha, beta, strict=True)))


def a1_to_a3(depth: int, *, a1: bool, a2: bool, aligned: bool) -> tuple[AtMost, ...]:
    """State A2, and A1 with A3 or with its absolute values."""
    alpha, beta, norms = names(depth, aligned=aligned)
    decay = tuple(
        AtMost(sign * y[k], RHO ** (2 * k) * n * M)
        for y, n in zip(beta, norms, strict=True)
        for k in range(depth)
        for sign in ((1,) if aligned else (1, -1))
    )
    bounded = tuple(AtMost(sign * a, C**2) for x in alpha for a in x for sign in (1, -1))
    first = "A1; A3" if aligned else r"A1 with any $\rho > 0$"
    return (under(first, decay) if a1 else ()) + (under("A2", bounded) if a2 else ())


def draw_under_a1_to_a3(draw: random.Random, depth: int, *, a1: bool, a2: bool, aligned: bool) -> dict:
    """Draw similarities at and between the ends that the assumptions leave."""
    alpha, beta, norms = names(depth, aligned=aligned)
    values = {s: sp.Rational(draw.randint(1, 6), 4) for s in (RHO, C, M, *norms)}
    tight = draw.random() < 0.2
    for x, y, n in zip(alpha, beta, norms, strict=True):
        for k in range(depth):
            most = (values[RHO] ** (2 * k) if a1 else 9) * values[n] * values[M]
            values[y[k]] = most * (min(k, 1) if tight else share(draw, 0 if aligned else -1))
            values[x[k]] = values[C] ** 2 * (1 if tight else share(draw, -1)) * (1 if a2 else 9)
    return values


def conservative(*, slug: str, first: int = 1, power: int = 2, a1: bool = True, a2: bool = True) -> Statement:
    """State the printed bound, or the sharp one."""
    sharp = slug == "conservative-sharp"

    def limit(square: sp.Expr, last: sp.Expr, top: sp.Expr) -> sp.Expr:
        size = sp.Max(last, top - last) if sharp else first * last + top
        return sp.sqrt(square) ** power * size * (first if sharp else 1)

    def claim(depth: int) -> tuple[AtMost, ...]:
        ghost, lai, _ = scores(depth)
        _, beta, norms = names(depth)
        most = sp.Add(*(limit(C**2, beta[z][0], RHO ** (2 * k) * norms[z] * M) for z, k in pairs(depth)))
        return AtMost(ghost - lai, most), AtMost(lai - ghost, most)

    options = {"a1": a1, "a2": a2, "aligned": True}
    p, q, free = (*sp.symbols("p q", nonnegative=True), sp.symbols("w", real=True))
    return Statement(
        slug=slug,
        scope=SCOPE,
        claim=claim,
        given=lambda depth: a1_to_a3(depth, **options),
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth), M, RHO, C),
        sample=lambda draw, depth: draw_under_a1_to_a3(draw, depth, **options),
        parts={
            "limit": limit,
            "square": (p + q) / 2,
            "alpha": (q - p) / 2 if a2 else free,
            "slack": sp.symbols("s", nonnegative=True) if a1 else free,
        },
    )


def terms_of(depth: int, **kind: bool) -> Iterator[tuple]:
    """List alpha, beta, the last beta and the norms' bound of every layer below the last."""
    alpha, beta, norms = names(depth, **kind)
    for z, k in pairs(depth):
        yield alpha[z][k], beta[z][k], beta[z][0], RHO ** (2 * k) * norms[z] * M


def conservative_proof(statement: Statement, steps: Steps) -> None:
    """Add up the terms of the printed bound, from above and from below."""
    steps.conclude(statement, lambda depth: printed_terms(statement, steps, depth))


def printed_terms(statement: Statement, steps: Steps, depth: int) -> list:
    """Show one term of the printed bound, and add up all of them."""
    part = statement.part
    p, q, below, last = sp.symbols("p q b L", nonnegative=True)
    most = part.limit(part.square, last, below + part.slack)
    term = part.alpha * (below - last)
    terms = [p * below, p * part.slack / 2, q * last, q * part.slack / 2]
    above = steps.nonnegative("from above", most - term, terms)
    terms = [q * below, q * part.slack / 2, p * last, p * part.slack / 2]
    under = steps.nonnegative("from below", most + term, terms)
    values = [
        {p: C**2 - a, q: C**2 + a, below: b, last: top, part.slack: bound - b}
        for a, b, top, bound in terms_of(depth)
    ]
    return [total(lemma.at(point) for point in values) for lemma in (above, under)]


def sharp_proof(statement: Statement, steps: Steps) -> None:
    """One term, where the last similarity is the larger end, and where it is the smaller one."""
    part = statement.part
    p, q, below, more = sp.symbols("p q b v", nonnegative=True)
    top, shown = below + part.slack, []
    for name, last, ends in (
        ("last the larger", (top + more) / 2, (part.slack + more, below)),
        ("last the smaller", (top - more) / 2, (part.slack, more + below)),
    ):
        most, term = part.limit(part.square, last, top), part.alpha * (below - last)
        shown.append(
            (
                steps.nonnegative(f"{name}, from above", most - term, [q * ends[0] / 2, p * ends[1] / 2]),
                steps.nonnegative(f"{name}, from below", most + term, [p * ends[0] / 2, q * ends[1] / 2]),
            )
        )
        printed = part.square * (last + top) - most
        rest = top if last == (top + more) / 2 else top - more
        steps.identity(f"{name}, against the printed one", printed, part.square * rest)

    def added_up(depth: int) -> list:
        sums = [sp.Integer(0), sp.Integer(0)]
        for a, b, end, bound in terms_of(depth):
            larger = one_where(2 * end >= bound)
            values = {p: C**2 - a, q: C**2 + a, below: b, part.slack: bound - b}
            for k, (first, second) in enumerate(zip(*shown, strict=True)):
                sums[k] += first.at(values | {more: sp.Max(2 * end - bound, 0)}) * larger
                sums[k] += second.at(values | {more: sp.Max(bound - 2 * end, 0)}) * (1 - larger)
        return sums

    steps.conclude(statement, added_up)


def lower(*, agreeing: bool = True, aligned: bool = True, bar: bool = True) -> Statement:
    """State that LAI is at least alpha-bar times the summed last similarities."""

    def claim(depth: int) -> AtMost:
        _, lai, _ = scores(depth, aligned=aligned)
        return AtMost(ABAR * sp.Add(*(y[0] for y in names(depth, aligned=aligned)[1])), lai)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha = names(depth)[0]
        sums = tuple(AtMost(0, sp.Add(*x[1:])) for x in alpha) if agreeing else ()
        last = tuple(AtMost(ABAR, x[0]) for x in alpha) if bar else ()
        return under(SUMS, sums) + under(LAST, last)

    def sample(draw: random.Random, depth: int) -> dict:
        alpha, _, _ = names(depth)
        values = {ABAR: share(draw)}
        for x in alpha:
            values[x[0]] = values[ABAR] + share(draw, 0 if bar else -1)
            values |= {a: share(draw, -1 if not agreeing else 0) for a in x[1:]}
        return values

    slack = tuple(
        sp.symbols(name, **{"nonnegative" if held else "real": True})
        for name, held in (("w", agreeing), ("u", bar), ("b", aligned))
    )
    return Statement(
        slug="lai-lower-bound",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth)[:2], ABAR),
        sample=sample,
        parts={"slack": slack},
    )


def lower_proof(statement: Statement, steps: Steps) -> None:
    """One validation sample: what lies below the last layer, and what is above alpha-bar."""
    w, u, b = statement.part.slack
    so_far = sp.symbols("S", nonnegative=True)
    lai = ((ABAR + u) + w) * b
    more = steps.nonnegative("one more sample", so_far + lai - ABAR * b, [so_far, u * b, w * b])

    def added_up(depth: int) -> Any:
        alpha, beta, _ = statement.arguments(depth)
        samples = zip(alpha, beta, strict=True)
        return total(more.at({so_far: 0, u: x[0] - ABAR, w: sp.Add(*x[1:]), b: y[0]}) for x, y in samples)

    steps.conclude(statement, added_up)


def relative(*, agreeing: bool = True, inverse: int = 1, first: int = 1) -> Statement:
    """State the relative bound with all it needs."""

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        ghost, lai, _ = scores(depth)
        _, beta, norms = names(depth)
        spread = sp.Add(*norms) * M / sp.Add(*(y[0] for y in beta))
        powers = sp.Add(*(RHO ** (2 * k) for k in range(1, depth)))
        most = C**2 / ABAR**inverse * (first * (depth - 1) + spread * powers)
        return AtMost((ghost - lai) / lai, most), AtMost((lai - ghost) / lai, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        alpha, beta, _ = names(depth)
        options = a1_to_a3(depth, a1=True, a2=True, aligned=True)
        sums = tuple(AtMost(0, sp.Add(*x[1:])) for x in alpha) if agreeing else ()
        last = tuple(AtMost(ABAR, x[0]) for x in alpha)
        last += (AtMost(0, ABAR, strict=True),)
        positive = (
            AtMost(0, sp.Add(*(y[0] for y in beta)), strict=True),
            AtMost(0, scores(depth)[1], strict=True),
        )
        return options + under(SUMS, sums) + under(LAST, last) + under(POSITIVE, positive)

    def sample(draw: random.Random, depth: int) -> dict:
        values = draw_under_a1_to_a3(draw, depth, a1=True, a2=True, aligned=True)
        alpha, beta, norms = names(depth)
        bar = values[C] ** 2 * sp.Rational(draw.randint(1, 4), 8)
        values[ABAR] = bar
        for x, y, n in zip(alpha, beta, norms, strict=True):
            values[x[0]] = bar + (values[C] ** 2 - bar) * share(draw)
            values |= {a: abs(values[a]) if agreeing else -(values[C] ** 2) * share(draw) for a in x[1:]}
            values[y[0]] = values[n] * values[M] * sp.Rational(draw.randint(1, 4), 4)
        return values

    w = sp.symbols("w", **{"nonnegative" if agreeing else "real": True})
    return Statement(
        slug="app-relative-conservative",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth), M, RHO, C, ABAR),
        sample=sample,
        parts={"slack": w, "inverse": inverse, "first": first},
    )


def relative_proof(statement: Statement, steps: Steps) -> None:
    """Divide the conservative bound B by the lower bound of LAI, both with their slack."""
    part = statement.part
    bar, T, C2 = sp.symbols("abar T C2", positive=True)
    L1, S, G, s = sp.symbols("D S geo s", nonnegative=True)
    bound = C2 * (L1 * T + S * G)
    relative = C2 / bar**part.inverse * (part.first * L1 + S / T * G)
    lai, gap = bar * T + part.slack, bound - s
    times = steps.nonnegative("times LAI", relative * lai - gap, [s, bound / (bar * T) * part.slack])

    def divided(depth: int) -> list:
        _, beta, norms = names(depth)
        score, sum_of_last = scores(depth)[1], sp.Add(*(y[0] for y in beta))
        values = {bar: ABAR, T: sum_of_last, C2: C**2, L1: depth - 1, s: 0}
        values |= {S: sp.Add(*norms) * M, G: sp.Add(*(RHO ** (2 * k) for k in range(1, depth)))}
        least = times.at(values | {part.slack: score - ABAR * sum_of_last})
        return [(least + rest) / score for rest in printed_terms(STATEMENT, steps, depth)]

    steps.conclude(statement, divided)


def alone(*, score: str = "lai", a1: bool = True, a2: bool = True, power: int = 2) -> Statement:
    """State the bounds for LAI or LLI under A1 and A2 alone."""

    def limit(square: sp.Expr, top: sp.Expr, last: sp.Expr) -> sp.Expr:
        return sp.sqrt(square) ** power * (top + (last if score == "lai" else 0))

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        ghost, lai, lli = scores(depth, aligned=False)
        _, beta, norms = names(depth, aligned=False)
        most = sp.Add(*(limit(C**2, RHO ** (2 * k) * norms[z] * M, abs(beta[z][0])) for z, k in pairs(depth)))
        other = lai if score == "lai" else lli
        return AtMost(ghost - other, most), AtMost(other - ghost, most)

    options = {"a1": a1, "a2": a2, "aligned": False}
    p, q, free = (*sp.symbols("p q", nonnegative=True), sp.symbols("w", real=True))
    e, f = sp.symbols("e f", nonnegative=True)
    return Statement(
        slug="gap-without-alignment",
        scope=SCOPE,
        claim=claim,
        given=lambda depth: a1_to_a3(depth, **options),
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth, aligned=False), M, RHO, C),
        sample=lambda draw, depth: draw_under_a1_to_a3(draw, depth, **options),
        parts={
            "limit": limit,
            "square": (p + q) / 2,
            "alpha": (q - p) / 2 if a2 else free,
            "beta": (f - e) / 2 if a1 else free,
            "top": (e + f) / 2,
            "counts": 1 if score == "lai" else 0,
        },
    )


def alone_proof(statement: Statement, steps: Steps) -> None:
    """One term; of LAI also the last layer's part, whose sign is x - y."""
    part = statement.part
    p, q, e, f, x, y = sp.symbols("p q e f x y", nonnegative=True)
    most = part.limit(part.square, part.top, x + y)
    term = part.alpha * (part.beta - part.counts * (x - y))
    above = [p * f / 2, q * e / 2, part.counts * q * x, part.counts * p * y]
    below = [q * f / 2, p * e / 2, part.counts * p * x, part.counts * q * y]
    lemmas = (
        steps.nonnegative("from above", most - term, above),
        steps.nonnegative("from below", most + term, below),
    )

    def added_up(depth: int) -> list:
        sums = [sp.Integer(0), sp.Integer(0)]
        for a, b, last, bound in terms_of(depth, aligned=False):
            (up, down), ends = parts_of(last), {e: bound - b, f: bound + b}
            values = {p: C**2 - a, q: C**2 + a, x: up, y: down} | ends
            sums = [so_far + lemma.at(values) for so_far, lemma in zip(sums, lemmas, strict=True)]
        return sums

    steps.conclude(statement, added_up)


STATEMENT = conservative(slug="app-conservative")
MUTANTS = {
    "C_a not squared": conservative(slug="app-conservative", power=1),
    "without the last similarity": conservative(slug="app-conservative", first=0),
    "norms that do not decay": conservative(slug="app-conservative", a1=False),
    "activations not bounded": conservative(slug="app-conservative", a2=False),
}
SHARP = conservative(slug="conservative-sharp")
SHARP_MUTANTS = {
    "C_a not squared": conservative(slug="conservative-sharp", power=1),
    "norms that do not decay": conservative(slug="conservative-sharp", a1=False),
    "activations not bounded": conservative(slug="conservative-sharp", a2=False),
}
LOWER = lower()
LOWER_MUTANTS = {
    "embeddings of any sign": lower(agreeing=False),
    "opposed at the top": lower(aligned=False),
    "no smallest embedding": lower(bar=False),
}
RELATIVE = relative()
RELATIVE_MUTANTS = {
    "embeddings of any sign": relative(agreeing=False),
    "alpha-bar inverted": relative(inverse=-1),
    "without the last similarity": relative(first=0),
}
ALONE = alone()
ALONE_LLI = alone(score="lli")
ALONE_MUTANTS = {
    "norms that do not decay": alone(a1=False),
    "activations not bounded": alone(a2=False),
    "C_a not squared": alone(power=1),
}
ALONE_LLI_MUTANTS = {
    "norms that do not decay": alone(score="lli", a1=False),
    "activations not bounded": alone(score="lli", a2=False),
    "C_a not squared": alone(score="lli", power=1),
}


@pytest.mark.equation("app-conservative")
def prove_conservative_bound(settle):
    settle(STATEMENT, conservative_proof, MUTANTS)


@pytest.mark.equation("conservative-sharp")
def prove_sharp_conservative_bound(settle):
    settle(SHARP, sharp_proof, SHARP_MUTANTS)


@pytest.mark.equation("lai-lower-bound")
def prove_lai_lower_bound(settle):
    settle(LOWER, lower_proof, LOWER_MUTANTS)


@pytest.mark.equation("app-relative-conservative")
def prove_relative_conservative_bound(settle):
    settle(RELATIVE, relative_proof, RELATIVE_MUTANTS)


@pytest.mark.equation("gap-without-alignment")
def prove_gaps_without_alignment(settle):
    settle(ALONE, alone_proof, ALONE_MUTANTS)
    settle(ALONE_LLI, alone_proof, ALONE_LLI_MUTANTS)
