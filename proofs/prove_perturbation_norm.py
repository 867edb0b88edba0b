r"""How large the change of a product of Jacobians can be, and what the printed bound bounds.

With ``a`` the norm of the change so far, ``m`` that of the mean parts' product, and ``j``, ``k``
those of the next mean part and rest, the telescoping step and the norm's triangle inequality
and submultiplicativity give ``a' <= a (j + k) + m k``. The bound ``P - R``, with
``P = prod(rho + delta)`` and ``R = prod rho``, grows by exactly that; the printed sum F grows by
``F rho + R delta`` alone, which is what the first-order part needs, and no more.
Every certificate is an expansion whose monomials have no negative sign.
"""

import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, settled, under
from proofs._rewrites import becomes, plus, times
from proofs._symbols import monomials, numbers, one_replaced, product, product_of_sums, total

SCOPE = "any depth, any widths, any submultiplicative norm"


def arguments(depth: int) -> tuple:
    """Name the mean parts and the rests of layers of one unit, of any sign."""
    return numbers("b d", depth)


def change(means, rests):
    """Give the change of the product."""
    return product_of_sums(means, rests) - product(means)


def first(means, rests, start: int = 0):
    """Give the terms with one rest."""
    return total(one_replaced(means, rests)[start:])


def sizes(depth: int) -> tuple:
    """Give the absolute values of the mean parts and the rests."""
    return tuple([sp.Abs(x) for x in side] for side in arguments(depth))


def norms(depth: int) -> tuple:
    """Name the norms of the mean parts and the rests, of the change so far and of the product so far."""
    return numbers("b d f h", depth, nonnegative=True)


def norm(depth: int) -> tuple[AtMost, AtMost]:
    """State the bound for layers of one unit, and for the norms that a norm's axioms leave of matrices.

    For matrices, ``(Q + S)(B + D) - Q B`` is ``S (B + D) + Q D``: what is given are the triangle inequality
    and submultiplicativity, layer by layer.
    """
    gains, rests, changes, _ = norms(depth)
    scalar = AtMost(sp.Abs(change(*arguments(depth))), change(*sizes(depth)))
    return scalar, AtMost(changes[-1], change(gains, rests))


def axioms(depth: int) -> tuple[AtMost, ...]:
    """State the triangle inequality and submultiplicativity."""
    gains, rests, changes, products = norms(depth)
    found = [AtMost(changes[0], rests[0]), AtMost(products[0], gains[0])]
    for t in range(1, depth):
        split = changes[t - 1] * gains[t] + changes[t - 1] * rests[t] + products[t - 1] * rests[t]
        found += [AtMost(changes[t], split), AtMost(products[t], products[t - 1] * gains[t])]
    return under(MEANING, found)


NORM = Statement("perturbation-norm", SCOPE, norm, given=axioms, depths=(1, 2, 3), arguments=arguments)
NORM_MUTANTS = {
    "the printed sum": becomes(lambda depth: first(*sizes(depth)), only=0),
    "twice the mean parts subtracted": plus(lambda depth: -product(norms(depth)[0]), only=1),
    "half": times(sp.Rational(1, 2)),
}


@settled("perturbation-norm", NORM, NORM_MUTANTS)
def prove_perturbation_norm() -> None:
    """Split the change with one more layer; compare the norms with the bound's growth."""


def printed(depth: int) -> tuple[AtMost, ...]:
    """State what the printed sum bounds, and that it is no more than the bound that holds."""
    most = first(*sizes(depth))
    return AtMost(sp.Abs(first(*arguments(depth))), most), AtMost(most, change(*sizes(depth)))


PRINTED = Statement(
    "app-DeltaA-bound",
    f"{SCOPE}; the first-order part of the change",
    printed,
    depths=(1, 2, 3),
    arguments=arguments,
)
PRINTED_MUTANTS = {
    "the whole change, as printed": becomes(
        lambda depth: sp.Abs(change(*arguments(depth))), only=0, of="lhs"
    ),
    "from layer l + 2": becomes(lambda depth: first(*sizes(depth), 1), only=0),
    "twice the sum below the bound that holds": times(2, only=1, of="lhs"),
}


@settled("app-DeltaA-bound", PRINTED, PRINTED_MUTANTS)
def prove_app_delta_a_bound(statement: Statement, steps: Steps) -> None:
    """Grow the first-order part, the printed sum and the bound that holds, layer by layer."""
    R, F, H, rho, delta, rest = sp.symbols("R F H rho delta t", nonnegative=True)
    triangle = steps.nonnegative("what the triangle inequality leaves", rest, [rest])
    # H: how far the bound that holds, P - R, is above the printed sum.
    excess = (R + F + H) * (rho + delta) - R * rho - (F * rho + R * delta)
    above = steps.nonnegative("below the bound that holds", excess, monomials(excess))

    @steps.conclude(statement, depths=statement.depths)
    def one_layer_more(depth: int) -> list:
        (*means, mean), (*changes, last) = arguments(depth)
        gain, size = abs(mean), abs(last)
        gains, others = sizes(depth - 1)
        printed, whole = first(gains, others), product(gains)
        beyond = sp.expand(change(gains, others) - printed)
        held = above.at({R: whole, F: printed, H: beyond, rho: gain, delta: size})
        if depth == 1:
            return [triangle.at({rest: 0}), held]
        below = first(means, changes)
        left = abs(below) * gain + whole * size - abs(below * mean + product(means) * last)
        so_far = steps.hypothesis(statement, depth - 1) * gain
        return [so_far + triangle.at({rest: left}), held]
