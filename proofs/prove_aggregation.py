r"""Sums over a validation set: the summary, a sample's own vote, and what scoring costs.

Aggregation. For the rows ``C`` of inputs and ``G`` of output gradients of a validation set of any size,
``sum_z <c_z, c> <g_z, g> = (C c)' (G g) = g' (G' C) c``. A sum over layers or matrices is a sum of such
terms, so that Ghost has one table per matrix and LAI one for all inputs side by side.

Costs. On a chain of widths ``d_0, ..., d_L`` one forward pass is ``F = sum d_(l-1) d_l`` multiply-adds and
Ghost's backward pass ``F - d_0 d_1`` more; LAI keeps ``sum d_(l-1) + d_L`` numbers of a sample and Ghost
``sum (d_(l-1) + d_l)``. Twice LAI less Ghost is ``d_0 d_1`` and ``d_0 + d_L``: positive. One more layer
adds equal amounts to both sides of these identities, which is the induction.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import STEP, AtMost, Equal, Statement, Steps, width
from proofs._symbols import matrix, total

SCOPE = f"any number of validation samples, any widths; {STEP}"
COST_SCOPE = f"{STEP}; any widths, dense layers"
IN, OUT = 2, 2


def aggregation(*, order: str = "products summed", sign: int = 1) -> Statement:
    """State that one table serves any number of validation samples."""

    def claim(count: int) -> Equal:
        c_z, g_z, c, g = aggregation_arguments(count)
        pairs = sp.Add(*((c_z * c.T)[z] * (g_z * g.T)[z] for z in range(count)))
        table = g_z.T * c_z
        if order == "sums multiplied":
            ones = sp.ones(1, count)
            table = (ones * g_z).T * (ones * c_z)
        elif order == "means multiplied":
            ones = sp.ones(1, count) / count
            table = count * (ones * g_z).T * (ones * c_z)
        return Equal(sign * pairs, (g * table * c.T)[0])

    return Statement(
        slug="aggregation",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=aggregation_arguments,
        parts={"order": order, "sign": sign},
    )


def aggregation_arguments(count: int) -> tuple:
    """Name the validation samples' vectors, then the training sample's."""
    return (
        matrix("C", count, width(IN)),
        matrix("G", count, width(OUT)),
        matrix("c", 1, width(IN)),
        matrix("g", 1, width(OUT)),
    )


def aggregation_proof(statement: Statement, steps: Steps) -> None:
    """Reorder one product of matrices of symbolic size, then join two validation sets."""
    n, m, d_in, d_out = sp.symbols("n m D d", integer=True, positive=True)
    c_z, g_z = sp.MatrixSymbol("C", n, d_in), sp.MatrixSymbol("G", n, d_out)
    c, g = sp.MatrixSymbol("c", d_in, 1), sp.MatrixSymbol("g", d_out, 1)
    pairs = sp.Trace((c_z * c).T * (g_z * g))
    steps.identity("reordered", statement.part.sign * pairs, sp.Trace(g.T * (g_z.T * c_z) * c))
    more, also = sp.MatrixSymbol("E", m, d_in), sp.MatrixSymbol("F", m, d_out)
    joined = pairs + sp.Trace((more * c).T * (also * g))
    steps.identity("two sets", joined, sp.Trace(g.T * (g_z.T * c_z + also.T * more) * c))
    relation = statement.relations(2)[0]
    steps.identity("two samples", relation.lhs, relation.rhs)


def positions(*, order: str = "products summed", sign: int = 1) -> Statement:
    """State that a sample's score is the sum of its positions' scores."""

    def claim(count: int) -> Equal:
        c, g, table = position_arguments(count)
        apart = sp.Add(*((g.row(t) * table * c.row(t).T)[0] for t in range(count)))
        gradient = g.T * c
        if order == "sums multiplied":
            ones = sp.ones(1, count)
            gradient = (ones * g).T * (ones * c)
        return Equal(sign * apart, (table.T * gradient).trace())

    return Statement(
        slug="position-score",
        scope=f"any number of positions, any widths; {STEP}",
        claim=claim,
        depths=(1, 2, 3),
        arguments=position_arguments,
        parts={"order": order, "sign": sign},
    )


def position_arguments(count: int) -> tuple:
    """Name the rows of inputs and of output gradients, then the summed validation gradient."""
    return (
        matrix("c", count, width(IN)),
        matrix("g", count, width(OUT)),
        matrix("T", width(OUT), width(IN)),
    )


def positions_proof(statement: Statement, steps: Steps) -> None:
    """Add one position more to a sum, for matrices of symbolic size."""
    d_in, d_out = sp.symbols("D d", integer=True, positive=True)
    so_far, table = (sp.MatrixSymbol(name, d_out, d_in) for name in "ST")
    c, g = sp.MatrixSymbol("c", d_in, 1), sp.MatrixSymbol("g", d_out, 1)
    score = statement.part.sign * sp.Trace(g.T * table * c)
    steps.identity("one position", score, sp.Trace(table.T * (g * c.T)))
    more = sp.Trace(table.T * so_far) + sp.Trace(g.T * table * c)
    steps.identity("one position more", more, sp.Trace(table.T * (so_far + g * c.T)))
    relation = statement.relations(2)[0]
    steps.identity("two positions", relation.lhs, relation.rhs)


POSITIONS = positions()
POSITIONS_MUTANTS = {
    "sums multiplied": positions(order="sums multiplied"),
    "the printed sign": positions(sign=-1),
}
AGGREGATION = aggregation()
AGGREGATION_MUTANTS = {
    "sums multiplied": aggregation(order="sums multiplied"),
    "means multiplied": aggregation(order="means multiplied"),
    "the printed sign": aggregation(sign=-1),
}


@pytest.mark.equation("position-score")
def prove_position_score(settle):
    settle(POSITIONS, positions_proof, POSITIONS_MUTANTS)


@pytest.mark.equation("aggregation")
def prove_aggregation(settle):
    """Show that a validation set can be summed before it is met."""
    settle(AGGREGATION, aggregation_proof, AGGREGATION_MUTANTS)


def own_vote(*, own: int = 1, others: int = 1) -> Statement:
    """State that a batch's score of sample 0 is its own vote and the others'."""

    def claim(count: int) -> tuple:
        gradients = matrix("g", count, width(IN))
        first = gradients.row(0)
        score = sp.Add(*(gradients.row(z).dot(first) for z in range(count)))
        rest = sp.Add(*(gradients.row(z).dot(first) for z in range(1, count)))
        norm = sp.Add(*(entry**2 for entry in first))
        return (Equal(score, others * rest + own * norm), AtMost(sp.S.Zero, own * first.dot(first)))

    return Statement(
        slug="self-exclusion",
        scope="any batch size, any number of parameters",
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda count: (matrix("g", count, width(IN)),),
        parts={"own": own, "others": others},
    )


def own_vote_proof(statement: Statement, steps: Steps) -> None:
    """Split the sum of gradients into the sample's and the rest, for any number of parameters."""
    part, p = statement.part, sp.Symbol("p", integer=True, positive=True)
    g, rest = sp.MatrixSymbol("g", p, 1), sp.MatrixSymbol("r", p, 1)
    score = sp.Trace((g + rest).T * g)
    claimed = part.others * sp.Trace(rest.T * g) + part.own * sp.Trace(g.T * g)
    split = steps.identity("split", score, claimed)
    entry = sp.Symbol("x", real=True)
    coordinate = steps.nonnegative("one coordinate of the own vote", part.own * entry * entry, [entry**2])

    def votes(count: int) -> list:
        own, *others = (row.T for row in map(matrix("g", count, width(IN)).row, range(count)))
        joined = sum(others, sp.zeros(width(IN), 1))
        return [split.at({g: own, rest: joined}), total(coordinate.at({entry: x}) for x in own)]

    steps.conclude(statement, votes)


OWN = own_vote()
OWN_MUTANTS = {
    "no own vote": own_vote(own=0),
    "against itself": own_vote(own=-1),
    "the others alone, opposed": own_vote(others=-1),
}


@pytest.mark.equation("self-exclusion")
def prove_self_exclusion(settle):
    """Show that a sample's own vote is never against it, and what outvotes it."""
    settle(OWN, own_vote_proof, OWN_MUTANTS)


def costs(*, factor: int = 2, kept: str = "output gradients", skipped: int = 1) -> Statement:
    """State that Ghost costs less than twice as much as LAI."""

    def counts(depth: int) -> tuple:
        d = cost_arguments(depth)
        sizes = [d[layer] * d[layer + 1] for layer in range(depth)]
        inputs, outputs = sp.Add(*d[:-1]), sp.Add(*d[1:])
        ghost = inputs + outputs + (sp.Add(*sizes) if kept == "gradients" else 0)
        passes = sp.Add(*sizes) + sp.Add(*sizes[skipped:])
        return ghost, inputs + d[-1], passes, sp.Add(*sizes)

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        ghost, lai, ghost_passes, lai_passes = counts(depth)
        return (
            AtMost(ghost, factor * lai, strict=True),
            AtMost(ghost_passes, factor * lai_passes, strict=True),
        )

    return Statement(
        slug="cost-ratio",
        scope=COST_SCOPE,
        claim=claim,
        depths=(1, 2, 4),
        arguments=lambda depth: (list(cost_arguments(depth)),),
        parts={"factor": factor},
    )


def cost_arguments(depth: int) -> tuple:
    """Name the widths."""
    return sp.symbols(f"d:{depth + 1}", integer=True, positive=True)


def cost_proof(statement: Statement, steps: Steps) -> None:
    """Write twice LAI less Ghost as positive terms; one more layer leaves them as they are."""
    for depth in (1, 2, 3):
        d = cost_arguments(depth)
        numbers, passes = statement.relations(depth)
        steps.nonnegative(f"numbers, {depth} layers", numbers.rhs - numbers.lhs, [d[0], d[-1]])
        steps.nonnegative(f"passes, {depth} layers", passes.rhs - passes.lhs, [d[0] * d[1]])
    inputs, outputs, first, top, more = sp.symbols("I O d_0 d_L d_more", positive=True)
    balance = {inputs: outputs + first - top}  # what every chain's inputs and outputs differ by
    longer = statement.part.factor * (inputs + top + more) - (inputs + top + outputs + more)
    steps.identity("one more layer, numbers", longer.subs(balance), first + more)
    forward, bottom = sp.symbols("F f", positive=True)
    step = statement.part.factor * (forward + top * more) - (2 * (forward + top * more) - bottom)
    steps.identity("one more layer, passes", step, bottom)


COSTS = costs()
COSTS_MUTANTS = {
    "less than LAI": costs(factor=1),
    "gradients kept as matrices": costs(kept="gradients"),
    "back through the first layer too": costs(skipped=0),
}


@pytest.mark.equation("cost-ratio")
def prove_cost_ratio(settle):
    """Show that Ghost's caches and passes stay below twice LAI's."""
    settle(COSTS, cost_proof, COSTS_MUTANTS)
