r"""Whose row is it: two backward passes with different weights tell, for almost all weights.

Losses are added one by one. A loss whose gradient reaches row i with D and whose weight is w adds D to the
first gradient and w D to the second, hence (w - w_i) D to what is left of ``second - w_i first``: nothing
where it is sample i's own, whatever its gradient. Moving one other loss's weight by s moves what is left by
s D: two weightings that differ there alone cannot both hide it, so that the weightings that hide it are a
proper subspace. Of two losses either can hide the other, at one ratio of gradients.
"""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp

from proofs._harness import Equal, Statement, Steps
from proofs._symbols import matrix, vector

SCOPE = "any number of samples, rows of any width; numbers on rows of two"


def arguments(depth: int) -> tuple[sp.Matrix, sp.Matrix]:
    """Name the gradients of all losses at row 0, one each, and their weights."""
    return matrix("D", depth, 2), vector("w", depth)


def residual(gradients: sp.Matrix, weights: Any, *, own: int = 1, first: int = 1) -> sp.Matrix:
    """Take what is left of the second gradient of row 0 beside its own weight times the first."""
    count = gradients.shape[0]
    once, second = sp.zeros(1, 2), sp.zeros(1, 2)
    for k in range(count):
        once += gradients[k, :]
        second += weights[k] * gradients[k, :]
    return own * second - weights[0] ** first * once


def ownership(
    *, own: int = 1, first: int = 1, sign: int = 1, others: bool = True, hides: int = 1
) -> Statement:
    """State what is left, how it moves with one weight, and how two losses hide each other."""
    s = sp.Symbol("s", real=True)

    def claim(depth: int) -> tuple[Equal, ...]:
        D, w = arguments(depth)
        rest = residual(D, w, own=own, first=first)
        foreign = sum(((w[k] + sign * -w[0]) * D[k, :] for k in range(1, depth)), sp.zeros(1, 2))
        relations = [Equal(rest, foreign)]
        if depth > 1:
            shifted = sp.Matrix(w)
            shifted[depth - 1 if others else 0] += s
            change = residual(D, shifted) - residual(D, w)
            relations.append(Equal(change, s * D[depth - 1, :]))
        if depth > 2:
            hidden = sp.Matrix(D)
            hidden[1, :] = (w[2] - w[0]) * D[1, :]
            hidden[2, :] = -hides * (w[1] - w[0]) * D[1, :]
            alone = sum(((w[k] - w[0]) * D[k, :] for k in range(3, depth)), sp.zeros(1, 2))
            relations.append(Equal(residual(hidden, w), alone))
        return tuple(relations)

    return Statement(
        slug="sample-ownership",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3, 4),
        arguments=arguments,
        parts={"own": own, "first": first, "sign": sign, "others": others, "hides": hides},
    )


def ownership_proof(statement: Statement, steps: Steps) -> None:
    """Add a loss, its own or another; move one weight; let two losses cancel."""
    part = statement.part
    F, S, d, w, w0, s = sp.symbols("F S d w w_0 s", real=True)  # both gradients so far, in one coordinate

    def left(once: Any, second: Any) -> Any:
        return part.own * second - w0**part.first * once

    steps.identity("its own loss", left(F + d, S + w0 * d), left(F, S))
    foreign = (w + part.sign * -w0) * d
    steps.identity("another loss", left(F + d, S + w * d), left(F, S) + foreign)
    change = (w + s - w0) * d - (w - w0) * d if part.others else -s * F
    steps.identity("another loss's weight", change, s * d)
    other = sp.Symbol("v", real=True)
    pair = (w - w0) * (other - w0) * d - part.hides * (other - w0) * (w - w0) * d
    steps.identity("two losses that cancel", pair, 0)
    steps.base(statement, statement.depths)


OWNERSHIP = ownership()
OWNERSHIP_MUTANTS = {
    "the own weight squared": ownership(first=2),
    "the second gradient doubled": ownership(own=2),
    "weights added": ownership(sign=-1),
    "the row's own weight moved": ownership(others=False),
    "two losses of one sign": ownership(hides=-1),
}


@pytest.mark.equation("sample-ownership")
def prove_sample_ownership(settle):
    settle(OWNERSHIP, ownership_proof, OWNERSHIP_MUTANTS)
