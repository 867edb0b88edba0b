r"""Random sketches of the outputs: no bias, the variance over signs, and over permutations too.

Outputs are added to their groups one by one. Before output n is added, its group's sums are symbols; its
sign is 1 or -1 whatever came before, so that the mean over it leaves what is free of the sign and what is
of second order in it. A score is a sum of such products over the columns of the gradients P and Q: with
``M = P Q'`` an output moves the score by ``s R``, where R adds ``s_i (M_in + M_ni)`` over its group.

Over permutations the mean is that of every pair of places: (d - 2)! of d! permutations put two given
outputs there. f groups have m outputs, the next one r < m, and m - 1 < d / width.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, settled
from proofs._rewrites import becomes, plus, times
from proofs._symbols import dot, matrix, symbolic, total

SCOPE = "any number of outputs, any groups, any columns; numbers up to five outputs in runs"
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
    sides = list(zip((left, right), arguments(depth), strict=True))
    found = sp.S.Zero
    for group in groups(range(depth)):
        sums = (sum((s[i] * rows[i, :] for i in group), sp.zeros(1, 2)) for s, rows in sides)
        found += dot(*sums)
    return found


def drawn(outcomes: Sequence[int], shared: bool, depth: int) -> list[tuple]:
    """List both sides' signs."""
    listed = list(itertools.product(outcomes, repeat=depth))
    return [(s, s) for s in listed] if shared else list(itertools.product(listed, repeat=2))


def product(depth: int) -> sp.Matrix:
    """Multiply both sides' gradients, output by output."""
    P, Q = arguments(depth)
    return P * Q.T


def mean_score(depth: int, listed: list[tuple], power: int = 1) -> Any:
    """Take the mean of a power of the score over signs."""
    return total(score(*signs, depth) ** power for signs in listed) / len(listed)


def unbiased(depth: int) -> Equal:
    """State that the mean over all signs is the product without a sketch."""
    return Equal(mean_score(depth, drawn(SIGNS, True, depth)), product(depth).trace())


UNBIASED = Statement("sketch-unbiased", SCOPE, unbiased, depths=(1, 2, 3, 4), arguments=arguments)
UNBIASED_MUTANTS = {
    "no signs": becomes(lambda depth: mean_score(depth, drawn((1,), True, depth)), of="lhs"),
    "signs 0 and 1": becomes(lambda depth: mean_score(depth, drawn((0, 1), True, depth)), of="lhs"),
    "each side its own signs": becomes(lambda depth: mean_score(depth, drawn(SIGNS, False, depth)), of="lhs"),
    "twice the product": times(2),
}


@settled("sketch-unbiased", UNBIASED, UNBIASED_MUTANTS)
def prove_sketch_unbiased() -> None:
    """Add an output to its group; the other groups and the other columns are untouched."""


def pairs(M: sp.Matrix, group: Sequence[int]) -> Any:
    """Add up ``M_ik^2 + M_ik M_ki`` over the pairs of a group."""
    return total(M[i, k] ** 2 + M[i, k] * M[k, i] for i, k in itertools.permutations(group, 2))


def mirrored(depth: int) -> Any:
    """Add up ``M_ik M_ki`` over the pairs of all groups."""
    M, found = product(depth), (itertools.permutations(group, 2) for group in groups(range(depth)))
    return total(M[i, k] * M[k, i] for i, k in itertools.chain(*found))


def diagonal(depth: int) -> Any:
    """Add up the squares of what outputs have with themselves."""
    return total(product(depth)[i, i] ** 2 for i in range(depth))


def variance(depth: int) -> Equal:
    """State the variance over signs for fixed groups."""
    M, second = product(depth), mean_score(depth, drawn(SIGNS, True, depth), 2)
    return Equal(total(pairs(M, group) for group in groups(range(depth))), second - M.trace() ** 2)


VARIANCE = Statement("sketch-variance", SCOPE, variance, depths=(1, 2, 3, 4), arguments=arguments)
VARIANCE_MUTANTS = {
    "transposed pairs left out": plus(lambda depth: -mirrored(depth), of="lhs"),
    "transposed pairs subtracted": plus(lambda depth: -2 * mirrored(depth), of="lhs"),
    "outputs with themselves": plus(lambda depth: 2 * diagonal(depth), of="lhs"),
    "pairs of different groups": becomes(lambda depth: pairs(product(depth), range(depth)), of="lhs"),
}


@settled("sketch-variance", VARIANCE, VARIANCE_MUTANTS)
def prove_sketch_variance(statement: Statement, steps: Steps) -> None:
    """Add an output: its sign enters the deviation once, and each pair's part of R once."""
    Z, R, m, x, y, p, q = sp.symbols("Z R m x y p q", real=True)

    def mean(value: Callable[[int], Any]) -> Any:
        return total(value(s) for s in SIGNS) / len(SIGNS)

    steps.identity("one more output", mean(lambda s: (Z + s * R) ** 2), Z**2 + R**2)
    term = x**2 + y**2 + 2 * x * y  # pairs (i, n) and (n, i)
    steps.identity("one more pair", mean(lambda s: (R + s * (x + y)) ** 2), R**2 + term)
    steps.identity("an output with itself", mean(lambda s: (s**2 * m - m) ** 2), 0)
    X, Y, W = sp.symbols("X Y W", real=True)  # our group's sums, another group's product
    products = [(X + s * p) * (Y + s * q) + W for s in SIGNS]
    moved = X * q + p * Y
    steps.identity("the sign's part", (products[0] - products[1]) / 2, moved)
    steps.base(statement, (1, 2, 3))


def counted(full: Any, size: Any, rest: Any) -> Any:
    """Give the chance that two outputs share one of the groups."""
    d = full * size + rest
    return (full * size * (size - 1) + rest * (rest - 1)) / (d * (d - 1))


def permuted(depth: int) -> tuple[Equal, AtMost]:
    """State the variance over signs and permutations, and its bound."""
    M, orders = product(depth), list(itertools.permutations(range(depth)))
    mean = total(pairs(M, group) for order in orders for group in groups(order)) / len(orders)
    most = ((M.T * M).trace() + (M * M).trace()) / width(depth)
    return Equal(mean, by_chance(depth, counted)), AtMost(mean, most)


def by_chance(depth: int, chance: Callable[..., Any], twice: int = 2) -> Any:
    """Write the variance by the chance that two outputs share a group."""
    M = product(depth)
    return together(depth, chance) * ((M.T * M).trace() + (M * M).trace() - twice * diagonal(depth))


def together(depth: int, chance: Callable[..., Any]) -> Any:
    """Give the chance that two outputs share a group, by full groups, outputs of one, outputs of the last."""
    size = -(-depth // width(depth))
    full, rest = divmod(depth, size)
    return chance(sp.Integer(full), sp.Integer(size), sp.Integer(rest)) if depth > 1 else 0


PERMUTED = Statement(
    "sketch-permutation",
    "any number of outputs, any width; numbers up to five outputs",
    permuted,
    depths=(1, 2, 3, 4, 5),
    arguments=arguments,
)
PERMUTED_MUTANTS = {
    "every group full": becomes(
        lambda depth: by_chance(depth, lambda full, size, rest: (size - 1) / (full * size + rest - 1)), only=0
    ),
    "one in width": becomes(
        lambda depth: by_chance(depth, lambda full, size, rest: sp.Rational(1, width(depth))), only=0
    ),
    "outputs with themselves once too often": becomes(lambda depth: by_chance(depth, counted, 1), only=0),
    "a bound without the transposed pairs": plus(
        lambda depth: -(product(depth) ** 2).trace() / width(depth), only=1
    ),
    "a bound over the squared width": times(lambda depth: sp.Rational(1, width(depth)), only=1),
}


@settled("sketch-permutation", PERMUTED, PERMUTED_MUTANTS)
def prove_sketch_permutation(statement: Statement, steps: Steps) -> None:
    """Count the pairs of places, then compare with 1 / width; norms in symbolic size."""
    d = sp.Symbol("d", integer=True, positive=True)
    placed = sp.factorial(d) / sp.factorial(d + 2)  # of d + 2 outputs, two have their places
    steps.identity("two outputs at two places", placed, 1 / ((d + 2) * (d + 1)))
    f, v, r, u = sp.symbols("f v r u", integer=True, nonnegative=True)
    m = r + 1 + v  # more than the last group has

    def places(full: Any) -> Any:
        n = full * m + r
        return n * (n - 1) * counted(full, m, r)

    steps.identity("the last group's pairs", places(sp.S.Zero), r * (r - 1))
    steps.identity("one more full group", places(f + 1) - places(f), m * (m - 1))
    n = f * m + r
    steps.nonnegative("full groups have more", n * (m - 1) - places(f), [r * (1 + v)])
    wide = sp.Symbol("W", integer=True, positive=True)
    outputs = (m - 1) * wide + 1 + u  # m is the least with m W >= outputs: (m - 1) W < outputs
    steps.nonnegative("a chance of at most 1 / W", (outputs - 1) - (m - 1) * wide, [u])
    x = sp.Symbol("x", real=True)
    steps.identity("an output with itself", x**2 + x * x, 2 * x**2)
    square, own = sp.symbols("S D", nonnegative=True)
    twice = sp.Symbol("T", real=True)
    most = (square + twice) / wide
    rest = wide * most - (square + twice - 2 * own)
    bounded = steps.nonnegative("the bound", rest, [2 * own])
    M, S, g, h, a, b = symbolic("M S g h a b")
    one_more = sp.Trace((S + a * g.T).T * (M + b * h.T))
    cross = sp.Trace(S.T * (b * h.T)) + sp.Trace((a * g.T).T * M)
    steps.identity("one more position", one_more, sp.Trace(S.T * M) + cross + sp.Trace(g * a.T * b * h.T))
    steps.identity("two positions", sp.Trace((a * g.T).T * (b * h.T)), sp.Trace((a.T * b) * (h.T * g)))
    steps.identity("transposed", sp.Trace((a * g.T) * (b * h.T)), sp.Trace((g.T * b) * (h.T * a)))
    y = sp.Symbol("y", real=True)
    both = steps.nonnegative("a pair of outputs", x**2 + y**2 + 2 * x * y, [(x + y) ** 2])

    def apart(depth: int) -> list:
        M, runs = product(depth), width(depth)
        values = {square: (M.T * M).trace(), twice: (M * M).trace(), own: diagonal(depth), wide: runs}
        found = bounded.at(values) / runs
        couples = itertools.combinations(range(depth), 2)
        shared = sp.Rational(1, runs) - together(depth, counted)
        return [None, found + total(both.at({x: M[i, k], y: M[k, i]}) for i, k in couples) * shared]

    steps.conclude(statement, apart, depths=(1, 2, 3, 4))
    steps.base(statement, (1, 2, 3), relations=(0,))
