r"""How large the change of a product of Jacobians can be, and what the printed bound bounds.

With ``a`` the norm of the change so far, ``m`` that of the mean parts' product, and ``j``, ``k``
those of the next mean part and rest, the telescoping step and the norm's triangle inequality
and submultiplicativity give ``a' <= a (j + k) + m k``. The bound ``P - R``, with
``P = prod(rho + delta)`` and ``R = prod rho``, grows by exactly that; the printed sum F grows by
``F rho + R delta`` alone, which is what the first-order part needs, and no more.
Every certificate is an expansion whose monomials have no negative sign.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import AtMost, Statement, Steps
from proofs._symbols import monomials, product, total

SCOPE = "any depth, any widths, any submultiplicative norm"


def arguments(depth: int) -> tuple:
    """Name the mean parts and the rests of layers of one unit, of any sign."""
    return tuple(list(sp.symbols(f"{name}:{depth}", real=True)) for name in "bd")


def change(means, rests):
    """Give the change of the product."""
    return product([b + d for b, d in zip(means, rests, strict=True)]) - product(means)


def first(means, rests, start: int = 0):
    """Give the terms with one rest."""
    places = range(start, len(means))
    return total(product([*means[:t], rests[t], *means[t + 1 :]]) for t in places)


def sizes(depth: int) -> tuple:
    """Give the absolute values of the mean parts and the rests."""
    return tuple([sp.Abs(x) for x in side] for side in arguments(depth))


def norm(*, kept=lambda P, R, F: P - R) -> Statement:
    """State the bound on the change; ``kept`` makes it from both products and the printed sum."""

    def claim(depth: int) -> AtMost:
        gains, rests = sizes(depth)
        both = product([gain + rest for gain, rest in zip(gains, rests, strict=True)])
        bound = kept(both, product(gains), first(gains, rests))
        return AtMost(sp.Abs(change(*arguments(depth))), bound)

    return Statement(
        slug="perturbation-norm",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"kept": kept},
    )


def norm_proof(statement: Statement, steps: Steps) -> None:
    """Split the change with one more layer; compare the norms with the bound's growth."""
    kept = statement.part.kept
    width = sp.Symbol("d", integer=True, positive=True)
    Q, S, B, D = (sp.MatrixSymbol(name, width, width) for name in ("Q", "S", "B", "D"))
    steps.identity("split", (Q + S) * (B + D) - Q * B, S * B + S * D + Q * D)

    names = ("R", "E", "F", "rho", "delta", "a", "m", "j", "k", "x", "y", "p", "q")
    R, E, F, rho, delta, a, m, j, k, x, y, p, q = sp.symbols(names, nonnegative=True)
    steps.nonnegative(
        "norms below their bounds give no more",
        (a + x) * (j + p + k + q) + (m + y) * (k + q) - (a * (j + k) + m * k),
        monomials((a + x) * (j + p + k + q) + (m + y) * (k + q) - (a * (j + k) + m * k)),
    )
    slack = kept(rho + delta, rho, delta) - delta
    one = steps.nonnegative("one layer", slack, monomials(slack))
    P = R + E
    grown = kept(P * (rho + delta), R * rho, F * rho + R * delta)
    slack = grown - kept(P, R, F) * (rho + delta) - R * delta
    more = steps.nonnegative("one more layer", slack, monomials(slack))
    rest = sp.Symbol("t", nonnegative=True)
    triangle = steps.nonnegative("what the triangle inequality leaves", rest, [rest])

    def one_layer_more(depth: int):
        (*means, mean), (*changes, last) = arguments(depth)
        gain, size = abs(mean), abs(last)
        if depth == 1:
            return one.at({rho: gain, delta: size})
        below, whole = change(means, changes), product(means)
        gains, others = sizes(depth - 1)
        products = {R: product(gains), E: sp.expand(change(gains, others)), F: first(gains, others)}
        left = abs(below) * (gain + size) + abs(whole) * size - abs(below * (mean + last) + whole * last)
        so_far = steps.hypothesis(statement, depth - 1) * (gain + size)
        return so_far + more.at({rho: gain, delta: size, **products}) + triangle.at({rest: left})

    steps.conclude(statement, one_layer_more, depths=statement.depths)


NORM = norm()
NORM_MUTANTS = {
    "the printed sum": norm(kept=lambda P, R, F: F),
    "twice the mean parts subtracted": norm(kept=lambda P, R, F: P - 2 * R),
    "half": norm(kept=lambda P, R, F: (P - R) / 2),
}


@pytest.mark.equation("perturbation-norm")
def prove_perturbation_norm(settle):
    """Show that the change of the product is at most prod(rho + delta) - prod rho."""
    settle(NORM, norm_proof, NORM_MUTANTS)


def printed(*, bounded: str = "first", start: int = 0, factor: int = 1) -> Statement:
    """State what the printed sum bounds, and that it is no more than the bound that holds."""

    def claim(depth: int) -> tuple[AtMost, ...]:
        means, rests = arguments(depth)
        gains, sizes_of_rests = sizes(depth)
        left = {"first": first, "whole": change}[bounded](means, rests)
        right = first(gains, sizes_of_rests, start)
        return AtMost(sp.Abs(left), right), AtMost(factor * right, change(gains, sizes_of_rests))

    return Statement(
        slug="app-DeltaA-bound",
        scope=f"{SCOPE}; the first-order part of the change",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"bounded": bounded, "start": start, "factor": factor},
    )


def printed_proof(statement: Statement, steps: Steps) -> None:
    """Grow the first-order part, the printed sum and the bound that holds, layer by layer."""
    part = statement.part
    names = ("R", "F", "H", "rho", "delta")
    R, F, H, rho, delta = sp.symbols(names, nonnegative=True)
    base = delta if part.start == 0 else sp.Integer(0)
    one = steps.nonnegative("one layer", base - delta, monomials(base - delta))
    growth = F * rho + R * delta + (F * delta if part.bounded == "whole" else 0)
    slack = F * rho + R * delta - growth
    steps.nonnegative("one more layer", slack, monomials(slack))
    rest = sp.Symbol("t", nonnegative=True)
    triangle = steps.nonnegative("what the triangle inequality leaves", rest, [rest])
    # H: how far the bound that holds, P - R, is above the printed sum.
    P, scaled = R + part.factor * F + H, part.factor * (F * rho + R * delta)
    excess = P * (rho + delta) - R * rho - scaled
    above = steps.nonnegative("below the bound that holds", excess, monomials(excess))

    def one_layer_more(depth: int) -> list:
        (*means, mean), (*changes, last) = arguments(depth)
        gain, size = abs(mean), abs(last)
        gains, others = sizes(depth - 1)
        printed, whole = first(gains, others), product(gains)
        beyond = sp.expand(change(gains, others) - printed)
        held = above.at({R: whole, F: printed, H: beyond, rho: gain, delta: size})
        if depth == 1:
            return [one.at({delta: size}), held]
        below = first(means, changes)
        left = abs(below) * gain + whole * size - abs(below * mean + product(means) * last)
        so_far = steps.hypothesis(statement, depth - 1) * gain
        return [so_far + triangle.at({rest: left}), held]

    steps.conclude(statement, one_layer_more, depths=statement.depths)


PRINTED = printed()
PRINTED_MUTANTS = {
    "the whole change, as printed": printed(bounded="whole"),
    "from layer l + 2": printed(start=1),
    "twice the sum below the bound that holds": printed(factor=2),
}


@pytest.mark.equation("app-DeltaA-bound")
def prove_app_delta_a_bound(settle):
    """Show that the printed sum bounds the first-order part of the change, and only that."""
    settle(PRINTED, printed_proof, PRINTED_MUTANTS)
