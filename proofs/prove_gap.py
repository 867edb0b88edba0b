r"""The gap between Ghost and LAI, its simplest bound, and when LAI is the nearer approximation.

Layers are numbered from the top here: ``beta[0]`` is the last layer's, so that one more layer at
the bottom leaves all others in place and adds one term. Everything is then a statement about one
term and a step "so far, and one more". Sums over validation samples grow in the same way.

Signs without cases: a number between ``-C`` and ``C`` is ``(q - p)/2`` with ``C = (p + q)/2`` and
``p, q >= 0``; a number and its absolute value are ``x - y`` and ``x + y`` with ``x, y >= 0``.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import STEP, AtMost, Equal, Statement, Steps, under
from proofs._symbols import parts_of, total

SCOPE = "any depth, similarities of any sign"


def names(depth: int) -> tuple[list, list]:
    """Name the similarities from the top layer down."""
    return tuple(list(sp.symbols(f"{name}:{depth}", real=True)) for name in ("alpha", "beta"))


def statement(*, sign: int = -1, power: int = 1, start: int = 1, other: int = 0) -> Statement:
    """State the gap layer by layer; the arguments make mutants."""

    def term(alpha: sp.Expr, beta: sp.Expr, last: sp.Expr) -> sp.Expr:
        return alpha**power * (beta + sign * last)

    def claim(depth: int) -> Equal:
        alpha, beta = names(depth)
        ghost = total(a * b for a, b in zip(alpha, beta, strict=True))
        lai = total(alpha) * beta[0]
        reference = beta[other % depth]
        return Equal(total(term(alpha[k], beta[k], reference) for k in range(start, depth)), ghost - lai)

    return Statement(
        slug="app-epsilon-pair",
        scope=f"{STEP}; similarities of any sign",
        claim=claim,
        depths=(1, 2, 3, 4),
        arguments=names,
        parts={"term": term},
    )


def proof(statement: Statement, steps: Steps) -> None:
    """Add a layer at the bottom to Ghost, to the sum of alphas and to the gap."""
    relations = [statement.relations(depth)[0] for depth in (1, 2, 3)]
    for relation in relations:
        steps.identity("up to three layers", relation.lhs, relation.rhs)
    ghost, alphas, alpha, beta, last = sp.symbols("G A alpha beta last", real=True)
    so_far = ghost - alphas * last
    more = (ghost + alpha * beta) - (alphas + alpha) * last
    steps.identity("one more layer", more, so_far + statement.part.term(alpha, beta, last))


def bound(*, size: int = 2, lower: int = 1, upper: int = 1, bounded: bool = True) -> Statement:
    """State the bound by the similarities added; the arguments make mutants."""
    C = sp.symbols("C", nonnegative=True)

    def limit(square: sp.Expr, below: sp.Expr, last: sp.Expr) -> sp.Expr:
        return sp.sqrt(square) ** size * (lower * below + upper * last)

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        alpha, beta = names(depth)
        zeta = total(alpha[k] * (beta[k] - beta[0]) for k in range(1, depth))
        most = total(limit(C**2, abs(beta[k]), abs(beta[0])) for k in range(1, depth))
        return AtMost(zeta, most), AtMost(-zeta, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        if not bounded:
            return ()
        return under("A2", (AtMost(sign * a, C**2) for a in names(depth)[0] for sign in (1, -1)))

    def sample(draw: random.Random, depth: int) -> dict:
        size = sp.Rational(draw.randint(1, 9), 3)
        scale = size**2 if bounded else 9 * size**2
        alpha, _ = names(depth)
        return {C: size} | {a: scale * sp.Rational(draw.randint(-4, 4), 4) for a in alpha}

    p, q, free = (*sp.symbols("p q", nonnegative=True), sp.symbols("alpha", real=True))
    return Statement(
        slug="zeta-bound",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (names(depth)[1], C),
        sample=sample,
        parts={"limit": limit, "square": (p + q) / 2, "alpha": (q - p) / 2 if bounded else free, "C": C},
    )


def bound_proof(statement: Statement, steps: Steps) -> None:
    """Write the slack of one layer as non-negative terms, for both signs of the gap."""
    part = statement.part
    p, q, up, down, top, bottom = sp.symbols("p q u d t b", nonnegative=True)
    most = part.limit(part.square, up + down, top + bottom)
    term = part.alpha * ((up - down) - (top - bottom))
    above = steps.nonnegative("from above", most - term, [p * up, p * bottom, q * down, q * top])
    below = steps.nonnegative("from below", most + term, [q * up, q * bottom, p * down, p * top])

    def layer(a: sp.Expr, b: sp.Expr, last: sp.Expr) -> dict:
        (u, d), (t, s) = parts_of(b), parts_of(last)
        return {p: part.C**2 - a, q: part.C**2 + a, up: u, down: d, top: t, bottom: s}

    def added_up(depth: int) -> list:
        alpha, beta = names(depth)
        lower = [layer(alpha[k], beta[k], beta[0]) for k in range(1, depth)]
        return [total(lemma.at(values) for values in lower) for lemma in (above, below)]

    steps.conclude(statement, added_up)


def nearer(*, threshold: int = 1, power: int = 2, side: int = 1, start: int = 1) -> Statement:
    """State by how much LAI is nearer than LLI, in squares; the arguments make mutants."""

    def form(below: sp.Expr, alike: sp.Expr) -> sp.Expr:
        return side * alike**power * (2 * below / alike - threshold)

    def claim(depth: int) -> Equal:
        alpha, beta = names(depth)
        ghost = total(a * b for a, b in zip(alpha, beta, strict=True))
        lai, lli = total(alpha) * beta[0], alpha[0] * beta[0]
        below = total(alpha[k] * beta[k] for k in range(start, depth))
        alike = total(alpha[k] * beta[0] for k in range(start, depth))
        return Equal((ghost - lli) ** 2 - (ghost - lai) ** 2, form(below, alike))

    def sample(draw: random.Random, depth: int) -> dict:
        alpha, beta = names(depth)
        return {s: sp.Rational(draw.randint(1, 9), draw.choice((1, 2, 5))) for s in (*alpha, beta[0])}

    return Statement(
        slug="lai-nearer-than-lli",
        scope=f"{STEP}; any number of validation samples, similarities of any sign",
        claim=claim,
        depths=(2, 3),
        arguments=names,
        sample=sample,
        parts={"form": form},
    )


def nearer_proof(statement: Statement, steps: Steps) -> None:
    """Reduce all sums to two: what Ghost has below the top, and what LAI has there instead."""
    ghost, lai, lli, alpha, beta, last = sp.symbols("G A I alpha beta last", real=True)
    steps.identity("Ghost - LLI grows", (ghost + alpha * beta) - lli, (ghost - lli) + alpha * beta)
    more = (ghost + alpha * beta) - (lai + alpha * last)
    steps.identity("Ghost - LAI grows", more, (ghost - lai) + alpha * beta - alpha * last)
    below, alike = sp.symbols("E S", real=True, nonzero=True)
    steps.identity("two sums", below**2 - (below - alike) ** 2, statement.part.form(below, alike))
    relation = statement.relations(2)[0]
    steps.identity("two layers", relation.lhs, relation.rhs)


STATEMENT = statement()
MUTANTS = {
    "similarities added": statement(sign=1),
    "alpha squared": statement(power=2),
    "a lower layer left out": statement(start=2),
    "the first layer in the last one's place": statement(other=-1),
}
BOUND = bound()
BOUND_MUTANTS = {
    "C_a not squared": bound(size=1),
    "without the lower similarity": bound(lower=0),
    "without the last similarity": bound(upper=0),
    "activations not bounded": bound(bounded=False),
}
NEARER = nearer()
NEARER_MUTANTS = {
    "a threshold of 1": nearer(threshold=2),
    "not squared": nearer(power=1),
    "the other way round": nearer(side=-1),
    "the last layer counted": nearer(start=0),
}


@pytest.mark.equation("app-epsilon-pair")
def prove_gap(settle):
    """Settle that the gap is the printed sum over the lower layers."""
    settle(STATEMENT, proof, MUTANTS)


@pytest.mark.equation("zeta-bound")
def prove_pair_bound(settle):
    """Settle that the gap of a pair is at most its similarities added."""
    settle(BOUND, bound_proof, BOUND_MUTANTS)


@pytest.mark.equation("lai-nearer-than-lli")
def prove_lai_nearer_than_lli(settle):
    """Settle that LAI is nearer than LLI if and only if the mean ratio exceeds one half."""
    settle(NEARER, nearer_proof, NEARER_MUTANTS)
