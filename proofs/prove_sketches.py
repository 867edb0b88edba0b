r"""Random sketches of the outputs: no bias, the variance over signs, and over permutations too.

A score is a sum of products of the sketches of P and Q, over their columns: with ``M = P Q'`` the
outputs i and k of one group add ``s_i s_k M_ik``. The derivations for every size are in ``proofs/coq``.

Over permutations the mean is that of every pair of places: (d - 2)! of d! permutations put two given
outputs there. f groups have m outputs, the next one r < m, and m - 1 < d / width.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, settled
from proofs._rewrites import becomes, plus, times
from proofs._symbols import dot, matrix, total

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
def prove_sketch_variance() -> None:
    """Leave of four signs' mean what pairs of one group have."""


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
def prove_sketch_permutation() -> None:
    """Count the pairs of places, then compare with 1 / width."""
