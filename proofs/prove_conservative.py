r"""The conservative bounds: as printed, sharp, relative, and without any alignment.

Layers are numbered from the top: ``alpha[z][k]`` lies k layers below the last. Every bound is a sum
over layers and validation samples, so that it is shown for one term, and one more term adds what
was shown. A number between ``-C`` and ``C`` is ``(q - p)/2`` with ``C = (p + q)/2``; what is at
least 0 is a non-negative symbol.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import sympy as sp

from proofs._chain import LAST, SAMPLES, scores, share, similarities
from proofs._harness import AtMost, Statement, Steps, settled, under, width
from proofs._rewrites import each, plus, put, signless, without
from proofs._symbols import one_where, parts_of, total

SCOPE = "any depth, any number of validation samples"
RHO, C, ABAR, M = sp.symbols("rho C_a abar m", nonnegative=True)


A1_A3, A1 = "A1; A3", r"A1 with any $\rho > 0$"
SUMS = r"$\sum_{l<L} \alpha^{(l)} \ge 0$"
POSITIVE = r"$\sum_z \beta^{(L)} > 0$"  # with the two before, LAI is positive


def names(depth: int, *, aligned: bool = True) -> tuple:
    """Name alpha, beta and the validation norms; beta non-negative under A3."""
    norms = list(sp.symbols(f"n:{width(SAMPLES)}", nonnegative=True))
    return *similarities(depth, aligned=aligned), norms


def pairs(depth: int) -> list[tuple[int, int]]:
    """List the validation samples and the layers below the last."""
    return [(z, k) for z in range(width(SAMPLES)) for k in range(1, depth)]


def a1_to_a3(depth: int, *, aligned: bool = True) -> tuple[AtMost, ...]:
    """State A2, and A1 with A3 or with its absolute values."""
    alpha, beta, norms = names(depth, aligned=aligned)
    decay = tuple(
        AtMost(sign * y[k], RHO ** (2 * k) * n * M)
        for y, n in zip(beta, norms, strict=True)
        for k in range(depth)
        for sign in ((1,) if aligned else (1, -1))
    )
    bounded = tuple(AtMost(sign * a, C**2) for x in alpha for a in x for sign in (1, -1))
    return under(A1_A3 if aligned else A1, decay) + under("A2", bounded)


def draw_under_a1_to_a3(draw: random.Random, depth: int, *, aligned: bool = True) -> dict:
    """Draw similarities at and between the ends that the assumptions leave."""
    alpha, beta, norms = names(depth, aligned=aligned)
    values = {s: sp.Rational(draw.randint(1, 6), 4) for s in (RHO, C, M, *norms)}
    tight = draw.random() < 0.2
    for x, y, n in zip(alpha, beta, norms, strict=True):
        for k in range(depth):
            most = values[RHO] ** (2 * k) * values[n] * values[M]
            values[y[k]] = most * (min(k, 1) if tight else share(draw, 0 if aligned else -1))
            values[x[k]] = values[C] ** 2 * (1 if tight else share(draw, -1))
    return values


def conservative(slug: str, size: Callable[[Any, Any], sp.Expr]) -> Statement:
    """State the printed bound, or the sharp one, by what multiplies C_a^2 for one term."""

    def claim(depth: int) -> tuple[AtMost, ...]:
        alpha, beta, _ = names(depth)
        ghost, lai, _ = scores(alpha, beta)
        most = sp.Add(*(C**2 * size(last, top) for _, _, last, top in terms_of(depth)))
        return AtMost(ghost - lai, most), AtMost(lai - ghost, most)

    return Statement(
        slug,
        SCOPE,
        claim,
        given=a1_to_a3,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth), M, RHO, C),
        sample=draw_under_a1_to_a3,
    )


def sharp_size(last: sp.Expr, top: sp.Expr) -> sp.Expr:
    """Give how far a number between 0 and the top is from the last similarity at most."""
    return sp.Max(last, top - last)


def terms_of(depth: int, **kind: bool) -> Iterator[tuple]:
    """List alpha, beta, the last beta and the norms' bound of every layer below the last."""
    alpha, beta, norms = names(depth, **kind)
    for z, k in pairs(depth):
        yield alpha[z][k], beta[z][k], beta[z][0], RHO ** (2 * k) * norms[z] * M


def printed_terms(statement: Statement, steps: Steps, depth: int) -> list:
    """Show one term of the printed bound, and add up all of them."""
    p, q, below, last, s = sp.symbols("p q b L s", nonnegative=True)
    most, term = (p + q) / 2 * (last + below + s), (q - p) / 2 * (below - last)
    above = steps.nonnegative("from above", most - term, [p * below, p * s / 2, q * last, q * s / 2])
    under = steps.nonnegative("from below", most + term, [q * below, q * s / 2, p * last, p * s / 2])
    values = [
        {p: C**2 - a, q: C**2 + a, below: b, last: top, s: bound - b} for a, b, top, bound in terms_of(depth)
    ]
    return [total(lemma.at(point) for point in values) for lemma in (above, under)]


def lower(depth: int) -> AtMost:
    """State that LAI is at least alpha-bar times the summed last similarities."""
    alpha, beta, _ = names(depth)
    return AtMost(ABAR * sp.Add(*(y[0] for y in beta)), scores(alpha, beta)[1])


def agreeing(depth: int) -> tuple[AtMost, ...]:
    """State that embeddings below the last layer agree on the whole, and at the last one by alpha-bar."""
    alpha = names(depth)[0]
    sums = (AtMost(0, sp.Add(*x[1:])) for x in alpha)
    return under(SUMS, sums) + under(LAST, (AtMost(ABAR, x[0]) for x in alpha))


def relative(depth: int) -> tuple[AtMost, AtMost]:
    """State the relative bound with all it needs."""
    alpha, beta, norms = names(depth)
    ghost, lai, _ = scores(alpha, beta)
    spread = sp.Add(*norms) * M / sp.Add(*(y[0] for y in beta))
    powers = sp.Add(*(RHO ** (2 * k) for k in range(1, depth)))
    most = C**2 / ABAR * (depth - 1 + spread * powers)
    return AtMost((ghost - lai) / lai, most), AtMost((lai - ghost) / lai, most)


def all_of_them(depth: int) -> tuple[AtMost, ...]:
    """State all that the relative bound needs."""
    alpha, beta, _ = names(depth)
    positive = sp.Add(*(y[0] for y in beta)), scores(alpha, beta)[1]
    return (
        *a1_to_a3(depth),
        *agreeing(depth),
        *under(LAST, (AtMost(0, ABAR, strict=True),)),
        *under(POSITIVE, (AtMost(0, x, strict=True) for x in positive)),
    )


def draw_all(draw: random.Random, depth: int) -> dict:
    """Draw embeddings that agree, besides."""
    values = draw_under_a1_to_a3(draw, depth)
    bar = values[ABAR] = values[C] ** 2 * sp.Rational(draw.randint(1, 4), 8)
    for x, y, n in zip(*names(depth), strict=True):
        values[x[0]] = bar + (values[C] ** 2 - bar) * share(draw)
        values |= {a: abs(values[a]) for a in x[1:]}
        values[y[0]] = values[n] * values[M] * sp.Rational(draw.randint(1, 4), 4)
    return values


def alone(counts: int) -> Statement:
    """State the bounds under A1 and A2 alone, for LAI, or LLI, where the last similarity does not count."""

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, beta, _ = names(depth, aligned=False)
        ghost, lai, lli = scores(alpha, beta)
        terms = terms_of(depth, aligned=False)
        most = sp.Add(*(C**2 * (top + counts * abs(last)) for _, _, last, top in terms))
        other = lai if counts else lli
        return AtMost(ghost - other, most), AtMost(other - ghost, most)

    return Statement(
        "gap-without-alignment",
        SCOPE,
        claim,
        given=functools.partial(a1_to_a3, aligned=False),
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth, aligned=False), M, RHO, C),
        sample=functools.partial(draw_under_a1_to_a3, aligned=False),
        parts={"counts": counts},
    )


STATEMENT = conservative("app-conservative", lambda last, top: last + top)
MUTANTS = {
    "C_a not squared": each("C_a", sp.sqrt),
    "without the last similarity": put(lambda depth: {y[0]: sp.S.Zero for y in names(depth)[1]}),
    "norms that do not decay": without(A1_A3),
    "activations not bounded": without("A2"),
}
SHARP = conservative("conservative-sharp", sharp_size)
SHARP_MUTANTS = {
    "C_a not squared": each("C_a", sp.sqrt),
    "norms that do not decay": without(A1_A3),
    "activations not bounded": without("A2"),
}
LOWER = Statement(
    "lai-lower-bound",
    SCOPE,
    lower,
    given=agreeing,
    depths=(1, 2, 3),
    arguments=lambda depth: (*names(depth)[:2], ABAR),
)
LOWER_MUTANTS = {
    "embeddings of any sign": without(SUMS),
    "opposed at the top": signless("beta"),
    "no smallest embedding": without(LAST),
}
RELATIVE = Statement(
    "app-relative-conservative",
    SCOPE,
    relative,
    given=all_of_them,
    depths=(1, 2, 3),
    arguments=lambda depth: (*names(depth), M, RHO, C, ABAR),
    sample=draw_all,
)
RELATIVE_MUTANTS = {
    "embeddings of any sign": without(SUMS),
    "alpha-bar inverted": each("abar", lambda bar: 1 / bar),
    "without the last similarity": plus(lambda depth: -(C**2) / ABAR * (depth - 1)),
}
ALONE, ALONE_LLI = alone(1), alone(0)
ALONE_MUTANTS = {
    "norms that do not decay": without(A1),
    "activations not bounded": without("A2"),
    "C_a not squared": each("C_a", sp.sqrt),
}


@settled("app-conservative", STATEMENT, MUTANTS)
def prove_conservative_bound(statement: Statement, steps: Steps) -> None:
    """Add up the terms of the printed bound, from above and from below."""
    steps.conclude(statement, lambda depth: printed_terms(statement, steps, depth))


@settled("conservative-sharp", SHARP, SHARP_MUTANTS)
def prove_sharp_conservative_bound(statement: Statement, steps: Steps) -> None:
    """One term, where the last similarity is the larger end, and where it is the smaller one."""
    p, q, below, more, s = sp.symbols("p q b v s", nonnegative=True)
    top, square, shown = below + s, (p + q) / 2, []
    for name, last, ends, rest in (
        ("last the larger", (top + more) / 2, (s + more, below), top),
        ("last the smaller", (top - more) / 2, (s, more + below), top - more),
    ):
        most, term = square * sharp_size(last, top), (q - p) / 2 * (below - last)
        above = steps.nonnegative(f"{name}, from above", most - term, [q * ends[0] / 2, p * ends[1] / 2])
        under = steps.nonnegative(f"{name}, from below", most + term, [p * ends[0] / 2, q * ends[1] / 2])
        shown.append((above, under))
        steps.identity(f"{name}, against the printed one", square * (last + top) - most, square * rest)

    def added_up(depth: int) -> list:
        sums = [sp.Integer(0), sp.Integer(0)]
        for a, b, end, bound in terms_of(depth):
            larger = one_where(2 * end >= bound)
            values = {p: C**2 - a, q: C**2 + a, below: b, s: bound - b}
            for k, (first, second) in enumerate(zip(*shown, strict=True)):
                sums[k] += first.at(values | {more: sp.Max(2 * end - bound, 0)}) * larger
                sums[k] += second.at(values | {more: sp.Max(bound - 2 * end, 0)}) * (1 - larger)
        return sums

    steps.conclude(statement, added_up)


@settled("lai-lower-bound", LOWER, LOWER_MUTANTS)
def prove_lai_lower_bound(statement: Statement, steps: Steps) -> None:
    """One validation sample: what lies below the last layer, and what is above alpha-bar."""
    w, u, b, so_far = sp.symbols("w u b S", nonnegative=True)
    lai = ((ABAR + u) + w) * b
    more = steps.nonnegative("one more sample", so_far + lai - ABAR * b, [so_far, u * b, w * b])

    def added_up(depth: int) -> Any:
        alpha, beta, _ = statement.arguments(depth)
        samples = zip(alpha, beta, strict=True)
        return total(more.at({so_far: 0, u: x[0] - ABAR, w: sp.Add(*x[1:]), b: y[0]}) for x, y in samples)

    steps.conclude(statement, added_up)


@settled("app-relative-conservative", RELATIVE, RELATIVE_MUTANTS)
def prove_relative_conservative_bound(statement: Statement, steps: Steps) -> None:
    """Divide the conservative bound B by the lower bound of LAI, both with their slack."""
    bar, T, C2 = sp.symbols("abar T C2", positive=True)
    L1, S, G, s, w = sp.symbols("D S geo s w", nonnegative=True)
    bound = C2 * (L1 * T + S * G)
    most, lai = C2 / bar * (L1 + S / T * G), bar * T + w
    times = steps.nonnegative("times LAI", most * lai - (bound - s), [s, bound / (bar * T) * w])

    def divided(depth: int) -> list:
        alpha, beta, norms = names(depth)
        score, sum_of_last = scores(alpha, beta)[1], sp.Add(*(y[0] for y in beta))
        values = {bar: ABAR, T: sum_of_last, C2: C**2, L1: depth - 1, s: 0}
        values |= {S: sp.Add(*norms) * M, G: sp.Add(*(RHO ** (2 * k) for k in range(1, depth)))}
        least = times.at(values | {w: score - ABAR * sum_of_last})
        return [(least + rest) / score for rest in printed_terms(STATEMENT, steps, depth)]

    steps.conclude(statement, divided)


@settled("gap-without-alignment", ALONE, ALONE_MUTANTS)
@settled("gap-without-alignment", ALONE_LLI, ALONE_MUTANTS)
def prove_gaps_without_alignment(statement: Statement, steps: Steps) -> None:
    """One term; of LAI also the last layer's part, whose sign is x - y."""
    p, q, e, f, x, y = sp.symbols("p q e f x y", nonnegative=True)
    counts = statement.part.counts
    most = (p + q) / 2 * ((e + f) / 2 + counts * (x + y))
    term = (q - p) / 2 * ((f - e) / 2 - counts * (x - y))
    above = [p * f / 2, q * e / 2, counts * q * x, counts * p * y]
    below = [q * f / 2, p * e / 2, counts * p * x, counts * q * y]
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
