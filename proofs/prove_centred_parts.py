r"""Means and rests: why there is one way to split, and what four parts a layer's gradient has.

The mean of ``v - c`` is ``S - T c``, with S the weighted sum of the outcomes and T the sum of
the weights, which grows outcome by outcome and ends at T = 1: it vanishes for ``c = E v`` alone.
The four parts are ``(A + D)(g + xi)`` multiplied out, D the exact change of the operator.
"""

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, each, plus, put
from proofs._symbols import matrices, matrix, one_replaced, product, product_of_sums, symbolic, total, vector


def chances(depth: int) -> tuple:
    """Name the weights of all outcomes but the last one."""
    return sp.symbols(f"p:{depth - 1}", real=True)


def split(slug: str, columns: int) -> Statement:
    """State that the rest about c has the mean ``E v - c``; ``depth`` counts outcomes."""

    def arguments(depth: int) -> tuple:
        outcomes = [matrix(f"v{index}_", width(2), columns) for index in range(depth)]
        return outcomes, list(chances(depth)), matrix("c", width(2), columns)

    def claim(depth: int) -> Equal:
        outcomes, weights, centre = arguments(depth)
        weights = [*weights, 1 - total(weights)]
        pairs = list(zip(outcomes, weights, strict=True))
        nothing = sp.zeros(width(2), columns)
        average = sum((p * v for v, p in pairs), nothing)
        return Equal(sum((p * (v - centre) for v, p in pairs), nothing), average - centre)

    return Statement(
        slug, "any finite number of outcomes, any widths", claim, depths=(2, 3), arguments=arguments
    )


SPLIT_MUTANTS = {
    "outcomes not weighted": put(lambda depth: dict.fromkeys(chances(depth), sp.Rational(1, depth))),
    "weights of any sum": put(
        lambda depth: {1 - total(chances(depth)): sp.Symbol("q", real=True)}, of="both"
    ),
    "centre added": each("c", lambda entry: -entry),
}
JACOBIANS = split("jacobian-split", 2)
FLUCTUATIONS = split("output-fluctuation", 1)


@settled("jacobian-split", JACOBIANS, SPLIT_MUTANTS)
@settled("output-fluctuation", FLUCTUATIONS, SPLIT_MUTANTS)
def prove_split_about_the_mean(statement: Statement, steps: Steps) -> None:
    """Add one outcome; weights that sum to 1 leave the mean minus the centre."""
    S, v, c = symbolic("S:mn v:mn c:mn")
    T, p = sp.symbols("T p", real=True)
    more = steps.identity("one more outcome", (S - T * c) + p * (v - c), (S + p * v) - (T + p) * c)

    @steps.conclude(statement)
    def one_outcome_more(depth: int):
        (*outcomes, last), weights, centre = statement.arguments(depth)
        before = sum((w * x for w, x in zip(weights, outcomes, strict=True)), sp.zeros(*centre.shape))
        known = total(weights)
        return more.at({S: before, v: last, c: centre, T: known, p: 1 - known})


def arguments(depth: int) -> tuple:
    """Name the mean parts and the rests of all layers, the last gradient's mean and its fluctuation."""
    return matrices("B", depth), matrices("D", depth), vector("g", width(2)), vector("x", width(2))


def change(depth: int) -> sp.Matrix:
    """Give the exact change of the operator."""
    means, rests, *_ = arguments(depth)
    return product_of_sums(means, rests) - product(means)


def four(A, D, g, xi):
    """Multiply out."""
    return A * g + A * xi + D * g + D * xi


def parts(depth: int) -> Equal:
    """State that a layer's gradient is the sum of its four parts."""
    means, rests, g, xi = arguments(depth)
    return Equal(product_of_sums(means, rests) * (g + xi), four(product(means), change(depth), g, xi))


def first_order(depth: int) -> sp.Matrix:
    """Write the four parts with the printed change, the terms with one rest."""
    means, rests, g, xi = arguments(depth)
    change = sum(one_replaced(means, rests), sp.zeros(width(2), width(2)))
    return four(product(means), change, g, xi)


PARTS = Statement(
    "app-g-l-decomp",
    "any depth, any widths, with the exact change of the operator",
    parts,
    depths=(1, 2, 3),
    arguments=arguments,
)
PARTS_MUTANTS = {
    "the printed first-order change": becomes(first_order),
    "noise through the rest left out": plus(lambda depth: -change(depth) * vector("x", width(2))),
    "rest subtracted": plus(lambda depth: -2 * change(depth) * vector("g", width(2))),
}


@settled("app-g-l-decomp", PARTS, PARTS_MUTANTS)
def prove_app_g_l_decomp(statement: Statement, steps: Steps) -> None:
    """Multiply out; the change of the operator is the exact one."""
    A, D, g, xi = symbolic("A D g x")
    shown = steps.identity("four parts", (A + D) * (g + xi), four(A, D, g, xi))

    @steps.conclude(statement)
    def whole(depth: int):
        means, _, gradient, noise = statement.arguments(depth)
        return shown.at({A: product(means), D: change(depth), g: gradient, xi: noise})
