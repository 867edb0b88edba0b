r"""Bounds on the ratios ``b = beta^(l)/beta^(L)`` bound everything, from both sides.

``b`` between m and M is ``b = m + u`` and ``M = b + v`` with non-negative u and v; what is bounded
is a sum over layers and validation samples of terms that u and v make non-negative. The last
layer's ratio is 1.
"""

from collections.abc import Callable
from dataclasses import replace

import sympy as sp

from proofs._chain import SAMPLES, grid
from proofs._harness import AtMost, Statement, settled, under, width
from proofs._rewrites import Rewrite, exchanged, given, signless, without
from proofs._symbols import dot, total

SCOPE = "any depth, any number of validation samples"
s = sp.Symbol("s", real=True)


def names(depth: int, **kind: bool) -> tuple:
    """Name alpha, the last similarities, the ratios below the last layer, and their bounds."""
    kind = kind or {"nonnegative": True}
    ratios = [[sp.Integer(1), *row[1:]] for row in grid("b", depth, real=True)]
    ends = (list(sp.symbols(f"{name}:{depth}", real=True)) for name in "mM")
    low, high = ([sp.Integer(1), *end[1:]] for end in ends)
    return grid("alpha", depth, **kind), list(sp.symbols(f"beta:{width(SAMPLES)}", **kind)), ratios, low, high


def lower_layers(depth: int, *known: list, **kind: bool) -> list[tuple]:
    """List alpha, the last similarity, the ratio and its bounds of every layer below the last.

    ``known`` gives alphas and last similarities with other assumptions: a mutant's.
    """
    alpha, last, ratios, low, high = names(depth, **kind)
    rows = zip(*(known or (alpha, last)), ratios, strict=True)
    return [(x[k], end, ratio[k], low[k], high[k]) for x, end, ratio in rows for k in range(1, depth)]


def weighted(alpha, last, ratios, start: int = 0) -> sp.Expr:
    """Add up alpha times the ratio times the last similarity."""
    samples = zip(alpha, last, ratios, strict=True)
    return sp.expand(total(dot(row[start:], ratio[start:]) * beta for row, beta, ratio in samples))


ORDERED = r"$0 \le \beta^{(l)} \le \beta^{(L)}$ for every layer and $z$"
SHARE = r"$s \sum_l \alpha^{(l)} \le \alpha^{(L)}$ for every $z$"
BETWEEN = r"$m_l \beta^{(L)} \le \beta^{(l)} \le M_l \beta^{(L)}$"


def between(depth: int, words: str = BETWEEN) -> tuple[AtMost, ...]:
    """State that every ratio lies between its bounds."""
    layers = lower_layers(depth)
    return under(words, (r for *_, b, low, high in layers for r in (AtMost(low, b), AtMost(b, high))))


def unit_ratios(depth: int, words: str) -> tuple[AtMost, ...]:
    """State that every ratio lies between 0 and 1."""
    lower = (b for _, _, b, *_ in lower_layers(depth))
    return under(words, (r for b in lower for r in (AtMost(0, b), AtMost(b, 1))))


def of_shares(change: Callable[[AtMost, int], AtMost | None]) -> Rewrite:
    """Change what s is."""
    return given(lambda r, depth: change(r, depth) if r.of == SHARE else r)


def of_the_first_sample(r: AtMost, depth: int) -> AtMost | None:
    """Keep what is said of the first sample."""
    return r if r.lhs.free_symbols & set(names(depth)[0][0]) else None


def bottom_layers(r: AtMost, depth: int) -> AtMost:
    """Put the bottom layer in the last one's place."""
    return replace(r, rhs=r.rhs.xreplace({row[0]: row[-1] for row in names(depth)[0]}))


def ghost_and_lai(depth: int) -> tuple[sp.Expr, sp.Expr]:
    """Write Ghost and LAI."""
    alpha, last, ratios, _, _ = names(depth)
    return weighted(alpha, last, ratios), weighted(alpha, last, [[sp.S.One] * depth] * len(alpha))


def below_one(depth: int) -> tuple[AtMost, AtMost]:
    """State that aligned layers keep LAI's error within what the lower layers' share of LAI is."""
    ghost, lai = ghost_and_lai(depth)
    return AtMost(0, lai - ghost), AtMost(lai - ghost, (1 - s) * lai)


def unit_shares(depth: int) -> tuple[AtMost, ...]:
    """State that ratios lie between 0 and 1, and that s is at most the last layer's share."""
    share = (AtMost(s * total(row), row[0]) for row in names(depth)[0])
    return (*unit_ratios(depth, ORDERED), *under(SHARE, share))


def lai_gap(depth: int) -> tuple[AtMost, AtMost]:
    """State both ends of LAI minus Ghost."""
    alpha, last, ratios, low, high = names(depth)

    def part(of: list) -> sp.Expr:
        return weighted(alpha, last, [[1 - b for b in row] for row in of], 1)

    samples = width(SAMPLES)
    return AtMost(part([high] * samples), part(ratios)), AtMost(part(ratios), part([low] * samples))


STATEMENT = Statement(
    "lai-two-sided",
    SCOPE,
    lai_gap,
    given=between,
    depths=(1, 2, 3),
    arguments=lambda depth: (*names(depth)[:2], *(x[1:] for x in names(depth)[3:])),
)
MUTANTS = {
    "ends exchanged": exchanged(),
    "embeddings of any sign": signless("alpha"),
    "opposed at the top": signless("beta"),
}
BELOW_ONE = Statement(
    "relative-below-one",
    SCOPE,
    below_one,
    given=unit_shares,
    depths=(1, 2, 3),
    arguments=lambda depth: (*names(depth)[:2], s),
)
BELOW_ONE_MUTANTS = {
    "the bottom layer's share": of_shares(bottom_layers),
    "ratios above 1": without(ORDERED),
    "the first sample's share": of_shares(of_the_first_sample),
    "embeddings of any sign": signless("alpha"),
    "opposed at the top": signless("beta"),
}


@settled("lai-two-sided", STATEMENT, MUTANTS)
def prove_gap_from_both_sides() -> None:
    """One term against either end; the last layer adds nothing."""


@settled("relative-below-one", BELOW_ONE, BELOW_ONE_MUTANTS)
def prove_relative_error_below_one() -> None:
    """Per sample Ghost is LAI less what the ratios take, and at least the last layer's part."""
