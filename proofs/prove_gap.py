r"""The gap between Ghost and LAI, its simplest bound, and when LAI is the nearer approximation.

Layers are numbered from the top here: ``beta[0]`` is the last layer's, so that one more layer at
the bottom leaves all others in place and adds one term. Everything is then a statement about one
term and a step "so far, and one more". Sums over validation samples grow in the same way.

Signs without cases: a number between ``-C`` and ``C`` is ``(q - p)/2`` with ``C = (p + q)/2`` and
``p, q >= 0``; a number and its absolute value are ``x - y`` and ``x + y`` with ``x, y >= 0``.
"""

from __future__ import annotations

import sympy as sp

from proofs._harness import STEP, AtMost, Equal, Statement, Steps, settled, under
from proofs._rewrites import becomes, each, plus, put, times, without
from proofs._symbols import parts_of, total

SCOPE = "any depth, similarities of any sign"
LAST, C = sp.Symbol("beta0", real=True), sp.Symbol("C", nonnegative=True)


def names(depth: int) -> tuple[list, list]:
    """Name the similarities from the top layer down."""
    return tuple(list(sp.symbols(f"{name}:{depth}", real=True)) for name in ("alpha", "beta"))


def gap(depth: int) -> sp.Expr:
    """Write the gap layer by layer."""
    return total(a * (b - LAST) for a, b in list(zip(*names(depth), strict=True))[1:])


def statement(depth: int) -> Equal:
    """State that the gap is what the layers below the last one differ by."""
    alpha, beta = names(depth)
    return Equal(gap(depth), total(a * b for a, b in zip(alpha, beta, strict=True)) - total(alpha) * LAST)


def bound(depth: int) -> tuple[AtMost, AtMost]:
    """State the bound by the similarities added."""
    most = total(C**2 * (abs(b) + abs(LAST)) for b in names(depth)[1][1:])
    return AtMost(gap(depth), most), AtMost(-gap(depth), most)


def a2(depth: int) -> tuple[AtMost, ...]:
    """State A2."""
    return under("A2", (AtMost(sign * a, C**2) for a in names(depth)[0] for sign in (1, -1)))


def form(below: sp.Expr, alike: sp.Expr) -> sp.Expr:
    """Write the difference of squares by the mean ratio."""
    return alike**2 * (2 * below / alike - 1)


def below_and_alike(depth: int, start: int = 1) -> tuple:
    """Add up Ghost's terms below the top, and LAI's there."""
    alpha, beta = names(depth)
    pairs = list(zip(alpha, beta, strict=True))[start:]
    return total(a * b for a, b in pairs), total(a * LAST for a, _ in pairs)


def nearer(depth: int) -> Equal:
    """State by how much LAI is nearer than LLI, in squares."""
    alpha, beta = names(depth)
    ghost = total(a * b for a, b in zip(alpha, beta, strict=True))
    lai, lli = total(alpha) * LAST, alpha[0] * LAST
    return Equal((ghost - lli) ** 2 - (ghost - lai) ** 2, form(*below_and_alike(depth)))


STATEMENT = Statement(
    "app-epsilon-pair", f"{STEP}; similarities of any sign", statement, depths=(1, 2, 3, 4), arguments=names
)
MUTANTS = {
    "similarities added": put({LAST: -LAST}, of="lhs"),
    "alpha squared": each("alpha", lambda a: a**2, of="lhs"),
    "a lower layer left out": put(lambda depth: {sp.Symbol("alpha1", real=True): sp.S.Zero}, of="lhs"),
    "the first layer in the last one's place": put(lambda depth: {LAST: names(depth)[1][-1]}, of="lhs"),
}
BOUND = Statement(
    "zeta-bound", SCOPE, bound, given=a2, depths=(1, 2, 3), arguments=lambda depth: (names(depth)[1], C)
)
BOUND_MUTANTS = {
    "C_a not squared": each("C", sp.sqrt),
    "without the lower similarity": put(lambda depth: {abs(b): sp.S.Zero for b in names(depth)[1][1:]}),
    "without the last similarity": put({abs(LAST): sp.S.Zero}),
    "activations not bounded": without("A2"),
}
NEARER = Statement(
    "lai-nearer-than-lli",
    f"{STEP}; any number of validation samples, similarities of any sign",
    nearer,
    depths=(2, 3),
    arguments=names,
)
NEARER_MUTANTS = {
    "a threshold of 1": plus(lambda depth: -(below_and_alike(depth)[1] ** 2)),
    "not squared": times(lambda depth: 1 / below_and_alike(depth)[1]),
    "the other way round": times(-1),
    "the last layer counted": becomes(lambda depth: form(*below_and_alike(depth, 0))),
}


@settled("app-epsilon-pair", STATEMENT, MUTANTS)
def prove_gap(statement: Statement, steps: Steps) -> None:
    """Add a layer at the bottom to Ghost, to the sum of alphas and to the gap."""
    steps.base(statement, (1, 2, 3))
    ghost, alphas, alpha, beta, last = sp.symbols("G A alpha beta last", real=True)
    so_far = ghost - alphas * last
    more = (ghost + alpha * beta) - (alphas + alpha) * last
    steps.identity("one more layer", more, so_far + alpha * (beta - last))


@settled("zeta-bound", BOUND, BOUND_MUTANTS)
def prove_pair_bound(statement: Statement, steps: Steps) -> None:
    """Write the slack of one layer as non-negative terms, for both signs of the gap."""
    p, q, up, down, top, bottom = sp.symbols("p q u d t b", nonnegative=True)
    most = (p + q) / 2 * (up + down + top + bottom)
    term = (q - p) / 2 * ((up - down) - (top - bottom))
    above = steps.nonnegative("from above", most - term, [p * up, p * bottom, q * down, q * top])
    below = steps.nonnegative("from below", most + term, [q * up, q * bottom, p * down, p * top])

    def layer(a: sp.Expr, b: sp.Expr, last: sp.Expr) -> dict:
        (u, d), (t, s) = parts_of(b), parts_of(last)
        return {p: C**2 - a, q: C**2 + a, up: u, down: d, top: t, bottom: s}

    def added_up(depth: int) -> list:
        alpha, beta = names(depth)
        lower = [layer(alpha[k], beta[k], beta[0]) for k in range(1, depth)]
        return [total(lemma.at(values) for values in lower) for lemma in (above, below)]

    steps.conclude(statement, added_up)


@settled("lai-nearer-than-lli", NEARER, NEARER_MUTANTS)
def prove_lai_nearer_than_lli(statement: Statement, steps: Steps) -> None:
    """Reduce all sums to two: what Ghost has below the top, and what LAI has there instead."""
    ghost, lai, lli, alpha, beta, last = sp.symbols("G A I alpha beta last", real=True)
    steps.identity("Ghost - LLI grows", (ghost + alpha * beta) - lli, (ghost - lli) + alpha * beta)
    more = (ghost + alpha * beta) - (lai + alpha * last)
    steps.identity("Ghost - LAI grows", more, (ghost - lai) + alpha * beta - alpha * last)
    below, alike = sp.symbols("E S", real=True, nonzero=True)
    steps.identity("two sums", below**2 - (below - alike) ** 2, form(below, alike))
    steps.base(statement, (2,))
