r"""The conservative bounds: as printed, sharp, relative, and without any alignment.

Layers are numbered from the top: ``alpha[z][k]`` lies k layers below the last. Every bound is a sum
over layers and validation samples, so that it is shown for one term, and one more term adds what
was shown.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy as sp

from proofs._chain import LAST, SAMPLES, a2, bounded_product, scores, similarities
from proofs._harness import AtMost, Statement, Steps, settled, under, width, within
from proofs._rewrites import each, plus, put, signless, without
from proofs._symbols import summed, total

SCOPE = "any depth, any number of validation samples"
RHO, C, ABAR, M = sp.symbols("rho C_a abar m", nonnegative=True)


A1_A3, A1 = "A1; A3", r"A1 with any $\rho > 0$"
SUMS = r"$\sum_{l<L} \alpha^{(l)} \ge 0$"
POSITIVE = r"$\sum_z \beta^{(L)} > 0$"  # with the two before, LAI is positive


def names(depth: int, *, aligned: bool = True) -> tuple:
    """Name alpha, beta and the validation norms; beta non-negative under A3."""
    norms = list(sp.symbols(f"n:{width(SAMPLES)}", nonnegative=True))
    return *similarities(depth, aligned=aligned), norms


def terms_of(depth: int, **kind: bool) -> Iterator[tuple]:
    """List alpha, beta, the last beta and the norms' bound of every layer below the last."""
    for x, y, n in zip(*names(depth, **kind), strict=True):
        for k in range(1, depth):
            yield x[k], y[k], y[0], RHO ** (2 * k) * n * M


def a1_to_a3(depth: int, *, aligned: bool = True) -> tuple[AtMost, ...]:
    """State A2, and A1 with A3 or with its absolute values."""
    alpha, beta, norms = names(depth, aligned=aligned)
    rows = ((b, RHO ** (2 * k) * n * M) for y, n in zip(beta, norms, strict=True) for k, b in enumerate(y))
    decay = (r for b, most in rows for r in within(most, b)[: 1 if aligned else 2])
    return under(A1_A3 if aligned else A1, decay) + a2(alpha, C)


def conservative(slug: str, size: Callable[[Any, Any], sp.Expr]) -> Statement:
    """State the printed bound, or the sharp one, by what multiplies C_a^2 for one term."""

    def claim(depth: int) -> tuple[AtMost, ...]:
        alpha, beta, _ = names(depth)
        ghost, lai, _ = scores(alpha, beta)
        return within(total(C**2 * size(last, top) for _, _, last, top in terms_of(depth)), ghost - lai)

    return Statement(
        slug,
        SCOPE,
        claim,
        given=a1_to_a3,
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth), M, RHO, C),
    )


def sharp_size(last: sp.Expr, top: sp.Expr) -> sp.Expr:
    """Give how far a number between 0 and the top is from the last similarity at most."""
    return sp.Max(last, top - last)


def printed_terms(statement: Statement, steps: Steps, depth: int) -> list:
    """Add up the terms of the statement's bound: ``|b - last| <= b + last``, b below its own."""
    lemmas, values = bounded_product(steps)
    s = sp.Symbol("s", nonnegative=True)
    rest = steps.nonnegative("below the bound", s, [s])
    terms = list(terms_of(depth))
    points = [values(a, C**2, b - last, b + last) for a, b, last, _ in terms]
    left = total(rest.at({s: bound - b}) for _, b, _, bound in terms) * C**2
    return [one + left for one in summed(lemmas, points)]


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
    return within(C**2 / ABAR * (depth - 1 + spread * powers), (ghost - lai) / lai)


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


def alone(counts: int) -> Statement:
    """State the bounds under A1 and A2 alone, for LAI, or LLI, where the last similarity does not count."""

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, beta, _ = names(depth, aligned=False)
        ghost, lai, lli = scores(alpha, beta)
        terms = terms_of(depth, aligned=False)
        most = total(C**2 * (top + counts * abs(last)) for _, _, last, top in terms)
        return within(most, ghost - (lai if counts else lli))

    return Statement(
        "gap-without-alignment",
        SCOPE,
        claim,
        given=functools.partial(a1_to_a3, aligned=False),
        depths=(1, 2, 3),
        arguments=lambda depth: (*names(depth, aligned=False), M, RHO, C),
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
def prove_sharp_conservative_bound() -> None:
    """Use that the last similarity's distance from what is between 0 and the top is largest at an end."""


@settled("lai-lower-bound", LOWER, LOWER_MUTANTS)
def prove_lai_lower_bound(statement: Statement, steps: Steps) -> None:
    """One validation sample: what lies below the last layer, and what is above alpha-bar."""
    w, u, b, so_far = sp.symbols("w u b S", nonnegative=True)
    lai = ((ABAR + u) + w) * b
    more = steps.nonnegative("one more sample", so_far + lai - ABAR * b, [so_far, u * b, w * b])

    @steps.conclude(statement)
    def added_up(depth: int) -> Any:
        samples = zip(*statement.arguments(depth)[:2], strict=True)
        return total(more.at({so_far: 0, u: x[0] - ABAR, w: sp.Add(*x[1:]), b: y[0]}) for x, y in samples)


@settled("app-relative-conservative", RELATIVE, RELATIVE_MUTANTS)
def prove_relative_conservative_bound(statement: Statement, steps: Steps) -> None:
    """Divide the conservative bound B by the lower bound of LAI, both with their slack."""
    bar, T, C2 = sp.symbols("abar T C2", positive=True)
    L1, S, G, s, w = sp.symbols("D S geo s w", nonnegative=True)
    bound = C2 * (L1 * T + S * G)
    most, lai = C2 / bar * (L1 + S / T * G), bar * T + w
    times = steps.nonnegative("times LAI", most * lai - (bound - s), [s, bound / (bar * T) * w])

    @steps.conclude(statement)
    def divided(depth: int) -> list:
        alpha, beta, norms = names(depth)
        score, sum_of_last = scores(alpha, beta)[1], sp.Add(*(y[0] for y in beta))
        values = {bar: ABAR, T: sum_of_last, C2: C**2, L1: depth - 1, s: 0}
        values |= {S: sp.Add(*norms) * M, G: sp.Add(*(RHO ** (2 * k) for k in range(1, depth)))}
        least = times.at(values | {w: score - ABAR * sum_of_last})
        return [(least + rest) / score for rest in printed_terms(STATEMENT, steps, depth)]


@settled("gap-without-alignment", ALONE, ALONE_MUTANTS)
@settled("gap-without-alignment", ALONE_LLI, ALONE_MUTANTS)
def prove_gaps_without_alignment() -> None:
    """One term of Ghost, between the ends of A1; of LAI also the last layer's."""
