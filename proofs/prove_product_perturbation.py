r"""What rests in the Jacobians do to their product: exactly, and to first order.

Write ``P_n = J_1 ... J_n`` and ``Q_n`` for the product of the mean parts, ``J_t = Q_t' + D_t``.
The telescoping sum grows with a layer on the right by ``(so far) J + Q D``, and so does
``P - Q``, because ``(Q + S)(B + D) - Q B = S (B + D) + Q D``. To first order in the rests, all
layers' rests scaled by e, the sum grows by ``(so far) B + Q D``: the coefficient of e in
``(Q + e S + e^2 R)(B + e D)``.
"""

import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, times
from proofs._symbols import matrices, one_replaced, product, product_of_sums, symbolic

SCOPE = f"{STEP}; any widths"


def arguments(depth: int) -> tuple:
    """Name the mean parts and the rests, the lowest layer first."""
    return matrices("B", depth), matrices("D", depth)


def replaced(depth: int, *, before: str, after: str) -> sp.Matrix:
    """Replace one layer after the other by its rest; what stands before and after is chosen."""
    means, rests = arguments(depth)
    chosen = {"mean": means, "whole": [mean + rest for mean, rest in zip(means, rests, strict=True)]}
    return sum(one_replaced(chosen[before], rests, chosen[after]), sp.zeros(width(2), width(2)))


def telescoping(depth: int) -> Equal:
    """State the exact change of the product."""
    means, rests = arguments(depth)
    change = product_of_sums(means, rests) - product(means)
    return Equal(change, replaced(depth, before="mean", after="whole"))


TELESCOPING = Statement("telescoping", SCOPE, telescoping, depths=(1, 2, 3), arguments=arguments)
TELESCOPING_MUTANTS = {
    "mean parts above, too": becomes(lambda depth: replaced(depth, before="mean", after="mean")),
    "whole Jacobians below, too": becomes(lambda depth: replaced(depth, before="whole", after="whole")),
    "subtracted": times(-1),
}


@settled("telescoping", TELESCOPING, TELESCOPING_MUTANTS)
def prove_telescoping() -> None:
    """Start from no layer, where nothing changes; add one layer on the right."""


def first_order(depth: int) -> Equal:
    """State that the printed sum is the derivative of the product in a common factor of the rests."""
    means, rests = arguments(depth)
    e = sp.Symbol("e")
    scaled = product_of_sums(means, [e * rest for rest in rests])
    slope = scaled.applyfunc(lambda entry: sp.diff(entry, e).subs(e, 0))
    return Equal(slope, replaced(depth, before="mean", after="mean"))


FIRST_ORDER = Statement(
    "app-DeltaA", f"{SCOPE}; to first order in the rests", first_order, depths=(1, 2, 3), arguments=arguments
)
FIRST_ORDER_MUTANTS = {
    "whole Jacobians above": becomes(lambda depth: replaced(depth, before="mean", after="whole")),
    "whole Jacobians below": becomes(lambda depth: replaced(depth, before="whole", after="mean")),
    "subtracted": times(-1),
}


@settled("app-DeltaA", FIRST_ORDER, FIRST_ORDER_MUTANTS)
def prove_app_delta_a(statement: Statement, steps: Steps) -> None:
    """Compare the terms with one rest, with one more layer on the right."""
    means, first, mean, rest, higher = symbolic("Q S B D R")
    e = sp.Symbol("e", real=True)
    product_so_far = means + e * first + e**2 * higher
    grown = first * mean + means * rest
    beyond = e**2 * (first * rest + higher * mean) + e**3 * higher * rest
    steps.identity("one more layer", product_so_far * (mean + e * rest), means * mean + e * grown + beyond)
    steps.base(statement, (1, 2))
