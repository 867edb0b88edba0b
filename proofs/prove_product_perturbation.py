r"""What rests in the Jacobians do to their product: exactly, and to first order.

Write ``P_n = J_1 ... J_n`` and ``Q_n`` for the product of the mean parts, ``J_t = Q_t' + D_t``.
The telescoping sum grows with a layer on the right by ``(so far) J + Q D``, and so does
``P - Q``, because ``(Q + S)(B + D) - Q B = S (B + D) + Q D``. To first order in the rests, all
layers' rests scaled by e, the sum grows by ``(so far) B + Q D``: the coefficient of e in
``(Q + e S + e^2 R)(B + e D)``.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, width
from proofs._symbols import matrices, product

SCOPE = f"{STEP}; any widths"


def arguments(depth: int) -> tuple:
    """Name the mean parts and the rests, the lowest layer first."""
    return matrices("B", depth), matrices("D", depth)


def replaced(means, rests, *, before: str, after: str, sign: int) -> sp.Matrix:
    """Replace one layer after the other by its rest; what stands before and after is chosen."""
    whole = [mean + rest for mean, rest in zip(means, rests, strict=True)]
    chosen = {"mean": means, "whole": whole}
    terms = (product([*chosen[before][:t], rests[t], *chosen[after][t + 1 :]]) for t in range(len(means)))
    return sign * sum(terms, sp.zeros(width(2), width(2)))


def growth(*, before: str, after: str, sign: int):
    """Say how the sum grows with one more layer on the right."""

    def grow(so_far, means, mean, rest):
        above = mean + rest if after == "whole" else mean
        below = means if before == "mean" else means + so_far
        return so_far * above + sign * below * rest

    return grow


def telescoping(*, before: str = "mean", after: str = "whole", sign: int = 1) -> Statement:
    """State the exact change of the product."""

    def claim(depth: int) -> Equal:
        means, rests = arguments(depth)
        whole = product([mean + rest for mean, rest in zip(means, rests, strict=True)])
        chosen = replaced(means, rests, before=before, after=after, sign=sign)
        return Equal(whole - product(means), chosen)

    return Statement(
        slug="telescoping",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"grow": growth(before=before, after=after, sign=sign)},
    )


def symbols() -> tuple:
    """Name the product of the mean parts, the change so far, and the next layer."""
    width = sp.Symbol("d", integer=True, positive=True)
    return tuple(sp.MatrixSymbol(name, width, width) for name in ("Q", "S", "B", "D"))


def telescoping_proof(statement: Statement, steps: Steps) -> None:
    """Start from no layer, where nothing changes; add one layer on the right."""
    means, change, mean, rest = symbols()
    grown = statement.part.grow(change, means, mean, rest)
    steps.identity("one more layer", (means + change) * (mean + rest) - means * mean, grown)
    relation = statement.relations(1)[0]
    steps.identity("one layer", relation.lhs, relation.rhs)


TELESCOPING = telescoping()
TELESCOPING_MUTANTS = {
    "mean parts above, too": telescoping(after="mean"),
    "whole Jacobians below, too": telescoping(before="whole"),
    "subtracted": telescoping(sign=-1),
}


@pytest.mark.equation("telescoping")
def prove_telescoping(settle):
    """Show that the product changes by the telescoping sum, without remainder."""
    settle(TELESCOPING, telescoping_proof, TELESCOPING_MUTANTS)


def first_order(*, before: str = "mean", after: str = "mean", sign: int = 1) -> Statement:
    """State that the printed sum is the derivative of the product in a common factor of the rests."""

    def claim(depth: int) -> Equal:
        means, rests = arguments(depth)
        e = sp.Symbol("e")
        scaled = product([mean + e * rest for mean, rest in zip(means, rests, strict=True)])
        slope = scaled.applyfunc(lambda entry: sp.diff(entry, e).subs(e, 0))
        return Equal(slope, replaced(means, rests, before=before, after=after, sign=sign))

    return Statement(
        slug="app-DeltaA",
        scope=f"{SCOPE}; to first order in the rests",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"grow": growth(before=before, after=after, sign=sign)},
    )


def first_order_proof(statement: Statement, steps: Steps) -> None:
    """Compare the terms with one rest, with one more layer on the right."""
    means, first, mean, rest = symbols()
    e, higher = sp.Symbol("e", real=True), sp.MatrixSymbol("R", *means.shape)
    product_so_far = means + e * first + e**2 * higher
    grown = statement.part.grow(first, means, mean, rest)
    beyond = e**2 * (first * rest + higher * mean) + e**3 * higher * rest
    steps.identity("one more layer", product_so_far * (mean + e * rest), means * mean + e * grown + beyond)
    relation = statement.relations(1)[0]
    steps.identity("one layer", relation.lhs, relation.rhs)


FIRST_ORDER = first_order()
FIRST_ORDER_MUTANTS = {
    "whole Jacobians above": first_order(after="whole"),
    "whole Jacobians below": first_order(before="whole"),
    "subtracted": first_order(sign=-1),
}


@pytest.mark.equation("app-DeltaA")
def prove_app_delta_a(settle):
    """Show that the printed sum is the first-order part of the change."""
    settle(FIRST_ORDER, first_order_proof, FIRST_ORDER_MUTANTS)
