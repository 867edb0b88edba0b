r"""Random sketches of the outputs: no bias, the variance over signs, and over permutations too.

Outputs are added to their groups one by one. Before output n is added, its group's sums are symbols; its
sign is 1 or -1 whatever came before, so that the mean over it leaves what is free of the sign and what is
of second order in it. A score is a sum of such products over the columns of the gradients P and Q: with
``M = P Q'`` an output moves the score by ``s R``, where R adds ``s_i (M_in + M_ni)`` over its group.

Over permutations the mean is that of every pair of places: (d - 2)! of d! permutations put two given
outputs there. f groups have m outputs, the next one r < m, and m - 1 < d / width.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps
from proofs._symbols import matrix, total

SCOPE = "any number of outputs, any groups, any columns; numbers up to five outputs in runs"
PERMUTED_SCOPE = "any number of outputs, any width; numbers up to five outputs"
SIGNS = (1, -1)


def arguments(depth: int) -> tuple[sp.Matrix, sp.Matrix]:
    """Name both sides' gradients of the virtual readouts: one row an output, two columns."""
    return matrix("P", depth, 2), matrix("Q", depth, 2)


def width(depth: int) -> int:
    """Give the number of groups: one or two, so that some are padded."""
    return 1 + depth // 3


def groups(order: Sequence[int]) -> list[list[int]]:
    """Cut the outputs, in this order, into runs of equal size but for the last."""
    size = -(-len(order) // width(len(order)))
    return [list(order[start : start + size]) for start in range(0, len(order), size)]


def score(left: Sequence[Any], right: Sequence[Any], depth: int) -> Any:
    """Multiply the sketches of P and Q under these signs."""
    P, Q = arguments(depth)
    found = sp.S.Zero
    for group in groups(range(depth)):
        sums = [
            sum((s[i] * side[i, :] for i in group), sp.zeros(1, 2)) for s, side in ((left, P), (right, Q))
        ]
        found += sums[0].dot(sums[1])
    return found


def drawn(outcomes: Sequence[int], shared: bool, depth: int) -> list[tuple]:
    """List both sides' signs."""
    listed = list(itertools.product(outcomes, repeat=depth))
    return [(s, s) for s in listed] if shared else list(itertools.product(listed, repeat=2))


def unbiased(*, outcomes: Sequence[int] = SIGNS, shared: bool = True, factor: int = 1) -> Statement:
    """State that the mean over all signs is the product without a sketch."""

    def claim(depth: int) -> Equal:
        P, Q = arguments(depth)
        listed = drawn(outcomes, shared, depth)
        mean = total(score(*signs, depth) for signs in listed) / len(listed)
        return Equal(mean, factor * total(P[i, :].dot(Q[i, :]) for i in range(depth)))

    return Statement(
        slug="sketch-unbiased",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3, 4) if shared else (1, 2),
        arguments=arguments,
        parts={"outcomes": outcomes, "shared": shared, "factor": factor},
    )


def unbiased_proof(statement: Statement, steps: Steps) -> None:
    """Add an output to its group; the other groups and the other columns are untouched."""
    part = statement.part
    X, Y, p, q = sp.symbols("X Y p q", real=True)
    listed = drawn(part.outcomes, part.shared, 1)
    mean = total((X + s * p) * (Y + t * q) for (s,), (t,) in listed) / len(listed)
    steps.identity("one more output", mean, X * Y + part.factor * p * q)
    steps.base(statement, (1, 2))


UNBIASED = unbiased()
UNBIASED_MUTANTS = {
    "no signs": unbiased(outcomes=(1,)),
    "signs 0 and 1": unbiased(outcomes=(0, 1)),
    "each side its own signs": unbiased(shared=False),
    "twice the product": unbiased(factor=2),
}


@pytest.mark.equation("sketch-unbiased")
def prove_sketch_unbiased(settle):
    settle(UNBIASED, unbiased_proof, UNBIASED_MUTANTS)


def pairs(M: sp.Matrix, group: Sequence[int], cross: int = 1) -> Any:
    """Add up ``M_ik^2 + M_ik M_ki`` over the pairs of a group."""
    found = itertools.permutations(group, 2)
    return total(M[i, k] ** 2 + cross * M[i, k] * M[k, i] for i, k in found)


def variance(*, cross: int = 1, itself: int = 0, apart: bool = False) -> Statement:
    """State the variance over signs for fixed groups."""

    def claim(depth: int) -> Equal:
        P, Q = arguments(depth)
        M = P * Q.T
        listed = drawn(SIGNS, True, depth)
        second = total(score(*signs, depth) ** 2 for signs in listed) / len(listed)
        counted = [list(range(depth))] if apart else groups(range(depth))
        closed = total(pairs(M, group, cross) for group in counted)
        closed += itself * total(M[i, i] ** 2 for i in range(depth))
        return Equal(closed, second - M.trace() ** 2)

    return Statement(
        slug="sketch-variance",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3, 4),
        arguments=arguments,
        parts={"cross": cross, "itself": itself, "apart": apart},
    )


def variance_proof(statement: Statement, steps: Steps) -> None:
    """Add an output: its sign enters the deviation once, and each pair's part of R once."""
    part = statement.part
    Z, R, m, x, y, p, q = sp.symbols("Z R m x y p q", real=True)

    def mean(value: Callable[[int], Any]) -> Any:
        return total(value(s) for s in SIGNS) / len(SIGNS)

    steps.identity("one more output", mean(lambda s: (Z + s * R) ** 2), Z**2 + R**2)
    term = x**2 + y**2 + 2 * part.cross * x * y  # pairs (i, n) and (n, i)
    steps.identity("one more pair", mean(lambda s: (R + s * (x + y)) ** 2), R**2 + term)
    steps.identity("an output with itself", mean(lambda s: (s**2 * m - m) ** 2), part.itself * m**2)
    X, Y, W = sp.symbols("X Y W", real=True)  # our group's sums, another group's product
    products = [(X + s * p) * (Y + s * q) + W for s in SIGNS]
    moved = X * q + p * Y + (W if part.apart else 0)
    steps.identity("the sign's part", (products[0] - products[1]) / 2, moved)
    steps.base(statement, (1, 2, 3))


VARIANCE = variance()
VARIANCE_MUTANTS = {
    "transposed pairs left out": variance(cross=0),
    "transposed pairs subtracted": variance(cross=-1),
    "outputs with themselves": variance(itself=2),
    "pairs of different groups": variance(apart=True),
}


@pytest.mark.equation("sketch-variance")
def prove_sketch_variance(settle):
    settle(VARIANCE, variance_proof, VARIANCE_MUTANTS)


def counted(full: Any, size: Any, rest: Any, wide: Any) -> Any:
    """Give the chance that two outputs share one of the groups."""
    d = full * size + rest
    return (full * size * (size - 1) + rest * (rest - 1)) / (d * (d - 1))


def unpadded(full: Any, size: Any, rest: Any, wide: Any) -> Any:
    """Give the chance as if every group were full."""
    return (size - 1) / (full * size + rest - 1)


def permuted(
    *, chance: Callable[..., Any] = counted, diagonal: int = 2, cross: int = 1, power: int = 1
) -> Statement:
    """State the variance over signs and permutations, and its bound."""

    def claim(depth: int) -> tuple[Equal, AtMost]:
        P, Q = arguments(depth)
        M = P * Q.T
        orders = list(itertools.permutations(range(depth)))
        mean = total(pairs(M, group) for order in orders for group in groups(order)) / len(orders)
        square, twice = (M.T * M).trace(), (M * M).trace()
        size = -(-depth // width(depth))
        together = chance(*divmod_of(depth, size), width(depth)) if depth > 1 else 0
        own = total(M[i, i] ** 2 for i in range(depth))
        most = (square + cross * twice) / width(depth) ** power
        return Equal(mean, together * (square + twice - diagonal * own)), AtMost(mean, most)

    return Statement(
        slug="sketch-permutation",
        scope=PERMUTED_SCOPE,
        claim=claim,
        depths=(1, 2, 3, 4, 5),
        arguments=arguments,
        parts={"chance": chance, "diagonal": diagonal, "cross": cross, "power": power},
    )


def divmod_of(depth: int, size: int) -> tuple[Any, Any, Any]:
    """Give the numbers of full groups, of outputs of one, of outputs of the last."""
    full, rest = divmod(depth, size)
    return sp.Integer(full), sp.Integer(size), sp.Integer(rest)


def permuted_proof(statement: Statement, steps: Steps) -> None:
    """Count the pairs of places, then compare with 1 / width; norms in symbolic size."""
    part = statement.part
    d = sp.Symbol("d", integer=True, positive=True)
    placed = sp.factorial(d) / sp.factorial(d + 2)  # of d + 2 outputs, two have their places
    steps.identity("two outputs at two places", placed, 1 / ((d + 2) * (d + 1)))
    f, v, r, w, u = sp.symbols("f v r w u", integer=True, nonnegative=True)
    m = r + 1 + v  # more than the last group has

    def places(full: Any) -> Any:
        n = full * m + r
        return n * (n - 1) * part.chance(full, m, r, w)

    steps.identity("the last group's pairs", places(sp.S.Zero), r * (r - 1))
    steps.identity("one more full group", places(f + 1) - places(f), m * (m - 1))
    n = f * m + r
    steps.nonnegative("full groups have more", n * (m - 1) - places(f), [r * (1 + v)])
    wide = sp.Symbol("W", integer=True, positive=True)
    outputs = (m - 1) * wide + 1 + u  # m is the least with m W >= outputs: (m - 1) W < outputs
    steps.nonnegative("a chance of at most 1 / W", (outputs - 1) - (m - 1) * wide, [u])
    x = sp.Symbol("x", real=True)
    steps.identity("an output with itself", x**2 + x * x, part.diagonal * x**2)
    square, own = sp.symbols("S D", nonnegative=True)
    twice = sp.Symbol("T", real=True)
    most = (square + part.cross * twice) / wide**part.power
    rest = wide * most - (square + twice - part.diagonal * own)
    bounded = steps.nonnegative("the bound", rest, [2 * own])
    size = sp.symbols("n", integer=True, positive=True)
    M, S = sp.MatrixSymbol("M", size, size), sp.MatrixSymbol("S", size, size)
    g, h, a, b = (sp.MatrixSymbol(name, size, 1) for name in ("g", "h", "a", "b"))
    one_more = sp.Trace((S + a * g.T).T * (M + b * h.T))
    cross = sp.Trace(S.T * (b * h.T)) + sp.Trace((a * g.T).T * M)
    steps.identity("one more position", one_more, sp.Trace(S.T * M) + cross + sp.Trace(g * a.T * b * h.T))
    steps.identity("two positions", sp.Trace((a * g.T).T * (b * h.T)), sp.Trace((a.T * b) * (h.T * g)))
    steps.identity("transposed", sp.Trace((a * g.T) * (b * h.T)), sp.Trace((g.T * b) * (h.T * a)))
    y = sp.Symbol("y", real=True)
    both = steps.nonnegative("a pair of outputs", x**2 + y**2 + 2 * x * y, [(x + y) ** 2])

    def apart(depth: int) -> list:
        P, Q = arguments(depth)
        M, runs = P * Q.T, width(depth)
        together = counted(*divmod_of(depth, -(-depth // runs)), runs) if depth > 1 else 0
        values = {square: (M.T * M).trace(), twice: (M * M).trace()}
        found = bounded.at({**values, own: total(M[i, i] ** 2 for i in range(depth)), wide: runs}) / runs
        couples = itertools.combinations(range(depth), 2)
        shared = sp.Rational(1, runs) - together
        return [None, found + total(both.at({x: M[i, k], y: M[k, i]}) for i, k in couples) * shared]

    steps.conclude(statement, apart, depths=(1, 2, 3, 4))
    steps.base(statement, (1, 2, 3), relations=(0,))


PERMUTED = permuted()
PERMUTED_MUTANTS = {
    "every group full": permuted(chance=unpadded),
    "one in width": permuted(chance=lambda full, size, rest, wide: 1 / sp.sympify(wide)),
    "outputs with themselves once too often": permuted(diagonal=1),
    "a bound without the transposed pairs": permuted(cross=0),
    "a bound over the squared width": permuted(power=2),
}


@pytest.mark.equation("sketch-permutation")
def prove_sketch_permutation(settle):
    settle(PERMUTED, permuted_proof, PERMUTED_MUTANTS)
