r"""Whose row is it: two backward passes with different weights tell, for almost all weights.

Losses are added one by one. A loss whose gradient reaches row i with D and whose weight is w adds D to the
first gradient and w D to the second, hence (w - w_i) D to what is left of ``second - w_i first``: nothing
where it is sample i's own, whatever its gradient. Moving one other loss's weight by s moves what is left by
s D: two weightings that differ there alone cannot both hide it, so that the weightings that hide it are a
proper subspace. Of two losses either can hide the other, at one ratio of gradients. Hence two samples with
different weights hide nothing: what is left, over the difference of the weights, is the other's gradient.
Three with weights 1, 2, 4 do: 2 d from the first and d from the third pass as the second one's.
"""

from typing import Any

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled
from proofs._rewrites import becomes, plus, put
from proofs._symbols import matrix, vector

SCOPE = "any number of samples, rows of any width; numbers on rows of two"
s = sp.Symbol("s", real=True)


def arguments(depth: int) -> tuple[sp.Matrix, sp.Matrix]:
    """Name the gradients of all losses at row 0, one each, and their weights."""
    return matrix("D", depth, 2), vector("w", depth)


def residual(gradients: sp.Matrix, weights: Any) -> sp.Matrix:
    """Take what is left of the second gradient of row 0 beside its own weight times the first."""
    return sp.Matrix(weights).T * gradients - weights[0] * (sp.ones(1, gradients.rows) * gradients)


def foreign(depth: int, start: int) -> sp.Matrix:
    """Add up what is left of the other losses' gradients, from the one named."""
    D, w = arguments(depth)
    return (w - sp.ones(depth, 1) * w[0])[start:, :].T * D[start:, :]


def change(depth: int, moved: int) -> sp.Matrix:
    """Give what moving one weight by s changes of what is left."""
    D, w = arguments(depth)
    return residual(D, w + s * sp.eye(depth)[:, moved]) - residual(D, w)


def ownership(depth: int) -> tuple[Equal, ...]:
    """State what is left, how it moves with one weight, and how two losses hide each other."""
    D, w = arguments(depth)
    relations = [Equal(residual(D, w), foreign(depth, 1))]
    if depth > 1:
        relations.append(Equal(change(depth, depth - 1), s * D[depth - 1, :]))
    if depth > 2:
        hidden = sp.Matrix(D)
        hidden[1, :], hidden[2, :] = (w[2] - w[0]) * D[1, :], -(w[1] - w[0]) * D[1, :]
        relations.append(Equal(residual(hidden, w), foreign(depth, 3)))
    return tuple(relations)


def hidden_twice(depth: int) -> sp.Matrix:
    """Give how much more is left where two losses do not have opposite signs."""
    D, w = arguments(depth)
    return 2 * (w[1] - w[0]) * (w[2] - w[0]) * D[1, :]


OWNERSHIP = Statement("sample-ownership", SCOPE, ownership, depths=(1, 2, 3, 4), arguments=arguments)
OWNERSHIP_MUTANTS = {
    "the own weight squared": put(
        {sp.Symbol("w_0", real=True): sp.Symbol("w_0", real=True) ** 2}, only=0, of="lhs"
    ),
    "the second gradient doubled": plus(
        lambda depth: arguments(depth)[1].T * arguments(depth)[0], only=0, of="lhs"
    ),
    "weights added": put({sp.Symbol("w_0", real=True): -sp.Symbol("w_0", real=True)}, only=0),
    "the row's own weight moved": becomes(lambda depth: change(depth, 0), only=1, of="lhs"),
    "two losses of one sign": plus(hidden_twice, only=2, of="lhs"),
}


@settled("sample-ownership", OWNERSHIP, OWNERSHIP_MUTANTS)
def prove_sample_ownership(statement: Statement, steps: Steps) -> None:
    """Add a loss, its own or another; move one weight; let two losses cancel."""
    F, S, d, w, w0 = sp.symbols("F S d w w_0", real=True)  # both gradients so far, in one coordinate

    def left(once: Any, second: Any) -> Any:
        return second - w0 * once

    steps.identity("its own loss", left(F + d, S + w0 * d), left(F, S))
    steps.identity("another loss", left(F + d, S + w * d), left(F, S) + (w - w0) * d)
    steps.identity("another loss's weight", (w + s - w0) * d - (w - w0) * d, s * d)
    other = sp.Symbol("v", real=True)
    pair = (w - w0) * (other - w0) * d - (other - w0) * (w - w0) * d
    steps.identity("two losses that cancel", pair, 0)
    steps.identity("two samples", left(F + d, w0 * F + w * d) / (w - w0), d)
    powers = {w0: 2, w: 1, other: 4}
    first, third = ((weight - w0).subs(powers) * part for weight, part in ((w, 2 * d), (other, d)))
    steps.identity("weights 1, 2, 4: two gradients that cancel", first + third, 0)
    steps.base(statement, statement.depths)
