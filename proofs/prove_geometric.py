r"""The printed geometric bounds: false for LAI, true for LLI, and where LAI's error goes instead.

Against LAI: a network whose similarities are ``r^(2k)`` (k layers below the last; embeddings of
length 1) satisfies A1 for every rho from r on. Its gap exceeds the printed bound wherever
``r^2 + rho^2 < 1``, so for **every** rho below 1 there is a network that breaks it; likewise the
relative bound wherever ``r^2 + L rho^2 < 1``. Shown for every depth, by one more layer.

For LLI: one term of the difference against one term of the bound.
"""

from collections.abc import Iterator

import sympy as sp

from proofs._chain import LAST, a2, grid, scores, similarities
from proofs._harness import MEANING, AtMost, Statement, Steps, settled, under, within
from proofs._rewrites import becomes, each, every, exchanged, plus, side, times, without
from proofs._symbols import dot, total

RHO, RATE, C, ABAR = sp.symbols("rho r C_a abar", positive=True)
NARROW = r"A1; $|\cos(g_z^{(l)}, g_j^{(l)})| \le |\cos(g_z^{(L)}, g_j^{(L)})|$ for every $l$ and $z$"


def broken(*, relative: bool = False) -> Statement:
    """State that the printed bound is below the gap, or the relative one below the relative gap."""

    def claim(depth: int) -> AtMost:
        gap = sp.Add(*(1 - RATE ** (2 * k) for k in range(1, depth)))
        return AtMost(powers(depth), gap / depth if relative else gap, strict=True)

    def given(depth: int) -> tuple[AtMost, ...]:
        # where the example breaks the printed bound
        apart = AtMost(RATE**2 + (depth if relative else 1) * RHO**2, 1, strict=True)
        return (*under("A1", (AtMost(RATE, RHO), AtMost(RHO, 1, strict=True))), *under(MEANING, (apart,)))

    return Statement(
        "app-rel-gap" if relative else "app-abs-gap",
        "any depth of at least 2, any rho below 1",
        claim,
        given=given,
        depths=(2, 3, 5),
        arguments=lambda depth: (RHO, RATE),
        parts={"relative": relative},
    )


def powers(depth: int) -> sp.Expr:
    """Add up the powers of rho below the last layer."""
    return sp.Add(*(RHO ** (2 * k) for k in range(1, depth)))


def lli(depth: int) -> tuple[AtMost, AtMost]:
    """State the geometric bound for LLI."""
    alpha, beta = similarities(depth)
    ghost, _, last = scores(alpha, beta)
    return within(C**2 * total(abs(y[0]) for y in beta) * powers(depth), ghost - last)


def lai_less_lli(depth: int) -> sp.Expr:
    """Give what LAI has below the last layer."""
    _, lai, last = scores(*similarities(depth))
    return lai - last


def decay(depth: int, beta: list) -> Iterator[tuple]:
    """List each lower similarity, and the last one times the power of rho between them."""
    return ((y[k], RHO ** (2 * k) * abs(y[0])) for y in beta for k in range(1, depth))


def a2_and_narrow(depth: int) -> tuple[AtMost, ...]:
    """State A2, and that similarities decay from the last one's size."""
    alpha, beta = similarities(depth)
    return a2(alpha, C) + under(NARROW, (r for b, most in decay(depth, beta) for r in within(most, b)))


def lli_relative(depth: int) -> tuple[AtMost, AtMost]:
    """State the relative bound for LLI."""
    ghost, _, last = scores(*similarities(depth, aligned=True))
    return within(C**2 / ABAR * powers(depth), (ghost - last) / last)


def narrow_and_agreeing(depth: int) -> tuple[AtMost, ...]:
    """State what the relative bound needs."""
    alpha, beta = similarities(depth, aligned=True)
    narrow = (AtMost(b, most) for b, most in decay(depth, beta))
    last = under(LAST, (AtMost(ABAR, x[0]) for x in alpha))
    positive = under("LLI is not zero", (AtMost(0, scores(alpha, beta)[2], strict=True),))
    return a2(alpha, C) + under(NARROW, narrow) + last + positive


def ratios_of(depth: int) -> tuple:
    """Name alpha, the last similarities, and what the lower ones are in their multiples."""
    alpha, beta = similarities(depth)
    return alpha, [row[0] for row in beta], grid("r", depth - 1, real=True)


def terms(depth: int, layer: int = 0) -> tuple:
    """Give LAI, one layer's part of it, and Ghost's terms below the last layer."""
    alpha, last, ratios = ratios_of(depth)
    lai, kept = (dot(part, last) for part in (map(total, alpha), (x[layer] for x in alpha)))
    rows = zip(alpha, last, ratios, strict=True)
    return lai, kept, [a * r * b for x, b, row in rows for a, r in zip(x[1:], row, strict=True)]


def end(depth: int, layer: int = 0) -> sp.Expr:
    """Give the limit: the share of LAI that is not the layer's."""
    lai, kept, _ = terms(depth, layer)
    return abs(1 - kept / lai)


def rest(depth: int, start: int = 0) -> sp.Expr:
    """Add up the sizes of Ghost's terms below the last layer, relative to LAI."""
    lai, _, below = terms(depth)
    return total(map(abs, below[start:])) / abs(lai)


def limit(depth: int) -> tuple[AtMost, ...]:
    """State how far LAI's relative error is from its limit, whatever the ratios: it vanishes with them."""
    lai, top, below = terms(depth)
    return within(rest(depth), abs(lai - top - total(below)) / abs(lai) - end(depth))


STATEMENT = broken()
MUTANTS = {
    "for LLI's gap": side(lambda gap, depth: depth - 1 - gap),
    "without rates far enough below rho": without(MEANING),
    "the printed direction": exchanged(),
}
RELATIVE = broken(relative=True)
RELATIVE_MUTANTS = {
    "for LLI's gap": side(lambda gap, depth: sp.Rational(depth - 1, depth) - gap),
    "without rates far enough below rho": without(MEANING),
    "the printed direction": exchanged(),
}
LLI = Statement(
    "lli-gap",
    "any depth, any number of validation samples, embeddings of any sign",
    lli,
    given=a2_and_narrow,
    depths=(1, 2, 3),
    arguments=lambda depth: (*similarities(depth), RHO, C),
)
LLI_MUTANTS = {
    "one power more": times(RHO),
    "C_a not squared": each("C_a", sp.sqrt),
    "for LAI, as printed": every(
        plus(lambda depth: -lai_less_lli(depth), only=0, of="lhs"), plus(lai_less_lli, only=1, of="lhs")
    ),
    "similarities that do not decay": without(NARROW),
}
LLI_RELATIVE = Statement(
    "lli-relative-gap",
    "any depth, any number of validation samples",
    lli_relative,
    given=narrow_and_agreeing,
    depths=(1, 2, 3),
    arguments=lambda depth: (*similarities(depth, aligned=True), RHO, C, ABAR),
)
LLI_RELATIVE_MUTANTS = {
    "alpha-bar inverted": each("abar", lambda bar: 1 / bar),
    "one power more": times(RHO),
    "no smallest embedding": without(LAST),
}
LIMIT = Statement(
    "relative-limit",
    "any depth, any number of validation samples, similarities and ratios of any sign",
    limit,
    depths=(1, 2, 3),
    arguments=ratios_of,
)
LIMIT_MUTANTS = {
    "zero, as printed": plus(end, only=0, of="lhs"),
    "the bottom layer's share": plus(lambda depth: end(depth) - end(depth, -1), only=0, of="lhs"),
    "no decay of the layer below the last": becomes(lambda depth: rest(depth, -1)),
}


@settled("app-abs-gap", STATEMENT, MUTANTS)
@settled("app-rel-gap", RELATIVE, RELATIVE_MUTANTS)
def prove_the_printed_bounds_fail_for_lai(statement: Statement, steps: Steps) -> None:
    """Keep ``1 - r^(2k) - w rho^(2k) >= d > 0`` through a layer more; x = r^2, y = rho^2, d = 1 - x - w y."""
    relative = statement.part.relative
    x, y, extra, X, Y, a, b = sp.symbols("x y m X Y a b", nonnegative=True)
    d = sp.symbols("d", positive=True)
    w = 1 + extra if relative else sp.Integer(1)
    one = x + w * y + d
    steps.nonnegative("1 - x", one - x, [w * y, d])
    steps.nonnegative("1 - y", one - y, [x, (w - 1) * y, d])
    first = 1 - x - w * y
    start = steps.nonnegative("the layer below the last", first.subs(x, 1 - w * y - d), [d])
    below, above = 1 - (1 - a) * X - w * (1 - b) * Y, 1 - X - w * Y
    more = steps.nonnegative("one more layer", below - above, [a * X, w * b * Y])

    @steps.conclude(statement)
    def added_up(depth: int):
        weight = {extra: depth - 1} if relative else {}
        base = start.at({y: RHO**2, d: 1 - RATE**2 - (depth if relative else 1) * RHO**2, **weight})
        powers = [{X: RATE ** (2 * k), Y: RHO ** (2 * k)} for k in range(1, depth - 1)]
        grown = [more.at({a: 1 - RATE**2, b: 1 - RHO**2, **at, **weight}) for at in powers]
        layers = total(base + total(grown[:k]) for k in range(depth - 1))
        return layers / (depth if relative else 1)


@settled("lli-gap", LLI, LLI_MUTANTS)
def prove_the_printed_bound_for_lli() -> None:
    """Add up the terms of the bound, from above and from below."""


@settled("lli-relative-gap", LLI_RELATIVE, LLI_RELATIVE_MUTANTS)
def prove_the_printed_relative_bound_for_lli() -> None:
    """Divide the gap, at most C_a^2 T geo, by LLI, at least alpha-bar T."""


@settled("relative-limit", LIMIT, LIMIT_MUTANTS)
def prove_the_limit_of_the_relative_error() -> None:
    """Compare ``|x - y|`` with ``|x|``: x is LAI without its last layer, y what Ghost has below it."""
