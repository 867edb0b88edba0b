r"""Sums over a validation set: the summary, a sample's own vote, and what scoring costs.

Aggregation. For the rows ``C`` of inputs and ``G`` of output gradients of a validation set of any size,
``sum_z <c_z, c> <g_z, g> = (C c)' (G g) = g' (G' C) c``. A sum over layers or matrices is a sum of such
terms, so that Ghost has one table per matrix and LAI one for all inputs side by side.

Costs. On a chain of widths ``d_0, ..., d_L`` one forward pass is ``F = sum d_(l-1) d_l`` multiply-adds and
Ghost's backward pass ``F - d_0 d_1`` more; LAI keeps ``sum d_(l-1) + d_L`` numbers of a sample and Ghost
``sum (d_(l-1) + d_l)``. Twice LAI less Ghost is ``d_0 d_1`` and ``d_0 + d_L``: positive. One more layer
adds equal amounts to both sides of these identities, which is the induction.
"""

import sympy as sp

from proofs._harness import STEP, AtMost, Equal, Statement, settled, width
from proofs._rewrites import becomes, plus, put, times
from proofs._symbols import dot, matrix, total

SCOPE = f"any number of validation samples, any widths; {STEP}"
COST_SCOPE = f"{STEP}; any widths, dense layers"
IN, OUT = 2, 2


def aggregation(count: int) -> Equal:
    """State that one table serves any number of validation samples."""
    c_z, g_z, c, g = aggregation_arguments(count)
    return Equal(dot(c_z * c.T, g_z * g.T), (g * (g_z.T * c_z) * c.T)[0])


def sums_multiplied(count: int) -> sp.Expr:
    """Multiply the similarities with the validation samples' sums."""
    c_z, g_z, c, g = aggregation_arguments(count)
    return total(c_z * c.T) * total(g_z * g.T)


def aggregation_arguments(count: int) -> tuple:
    """Name the validation samples' vectors, then the training sample's."""
    rows = matrix("C", count, width(IN)), matrix("G", count, width(OUT))
    return *rows, matrix("c", 1, width(IN)), matrix("g", 1, width(OUT))


def positions(count: int) -> Equal:
    """State that a sample's score is the sum of its positions' scores."""
    c, g, table = position_arguments(count)
    return Equal(pairs_of_positions(count).trace(), (table.T * (g.T * c)).trace())


def pairs_of_positions(count: int) -> sp.Matrix:
    """Score each position's output gradient with each position's input."""
    c, g, table = position_arguments(count)
    return g * table * c.T


def position_arguments(count: int) -> tuple:
    """Name the rows of inputs and of output gradients, then the summed validation gradient."""
    return (matrix("c", count, width(IN)), matrix("g", count, width(OUT)), matrix("T", width(OUT), width(IN)))


POSITIONS = Statement(
    "position-score",
    f"any number of positions, any widths; {STEP}",
    positions,
    depths=(1, 2, 3),
    arguments=position_arguments,
)
POSITIONS_MUTANTS = {
    "sums multiplied": becomes(lambda count: total(pairs_of_positions(count))),
    "the printed sign": times(-1, of="lhs"),
}
AGGREGATION = Statement("aggregation", SCOPE, aggregation, depths=(1, 2, 3), arguments=aggregation_arguments)
AGGREGATION_MUTANTS = {
    "sums multiplied": becomes(sums_multiplied),
    "means multiplied": becomes(lambda count: sums_multiplied(count) / count),
    "the printed sign": times(-1, of="lhs"),
}


@settled("position-score", POSITIONS, POSITIONS_MUTANTS)
def prove_position_score() -> None:
    """Add one position more to a sum, for matrices of symbolic size."""


@settled("aggregation", AGGREGATION, AGGREGATION_MUTANTS)
def prove_aggregation() -> None:
    """Reorder one product of matrices of symbolic size, then join two validation sets."""


def own_vote(count: int) -> tuple:
    """State that a batch's score of sample 0 is its own vote and the others'."""
    gradients = matrix("g", count, width(IN))
    scores = gradients * gradients.row(0).T
    norm = dot(gradients.row(0), gradients.row(0))
    return Equal(total(scores), total(scores[1:]) + norm), AtMost(sp.S.Zero, norm)


OWN = Statement(
    "self-exclusion",
    "any batch size, any number of parameters",
    own_vote,
    depths=(1, 2, 3),
    arguments=lambda count: (matrix("g", count, width(IN)),),
)
OWN_MUTANTS = {
    "no own vote": plus(lambda count: -total(x**2 for x in matrix("g", count, width(IN)).row(0)), only=0),
    "against itself": times(-1, only=1),
    "the others alone, opposed": put(
        lambda count: {x: -x for x in matrix("g", count, width(IN))[width(IN) :]}, only=0
    ),
}


@settled("self-exclusion", OWN, OWN_MUTANTS)
def prove_self_exclusion() -> None:
    """Split the sum of gradients into the sample's and the rest, for any number of parameters."""


def sizes(depth: int) -> list:
    """Count each matrix's entries."""
    d = cost_arguments(depth)
    return [d[layer] * d[layer + 1] for layer in range(depth)]


def costs(depth: int) -> tuple[AtMost, AtMost]:
    """State that Ghost costs less than twice as much as LAI, in numbers kept and in passes."""
    d, forward = cost_arguments(depth), sp.Add(*sizes(depth))
    inputs, outputs, backward = sp.Add(*d[:-1]), sp.Add(*d[1:]), sp.Add(*sizes(depth)[1:])
    return (
        AtMost(inputs + outputs, 2 * (inputs + d[-1]), strict=True),
        AtMost(forward + backward, 2 * forward, strict=True),
    )


def cost_arguments(depth: int) -> tuple:
    """Name the widths."""
    return sp.symbols(f"d:{depth + 1}", integer=True, positive=True)


COSTS = Statement(
    "cost-ratio", COST_SCOPE, costs, depths=(1, 2, 4), arguments=lambda depth: (list(cost_arguments(depth)),)
)
COSTS_MUTANTS = {
    "less than LAI": times(sp.Rational(1, 2)),
    "gradients kept as matrices": plus(lambda depth: sp.Add(*sizes(depth)), only=0, of="lhs"),
    "back through the first layer too": plus(lambda depth: sizes(depth)[0], only=1, of="lhs"),
}


@settled("cost-ratio", COSTS, COSTS_MUTANTS)
def prove_cost_ratio() -> None:
    """Write twice LAI less Ghost as positive terms; one more layer leaves them as they are."""
