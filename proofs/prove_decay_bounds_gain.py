r"""Gradient decay bounds the gains of the noise model: rho near 0 and gains near 1 exclude each other.

The backward operator from the last layer to one k layers below is ``A = B + D`` with a mean B and
noise D of mean zero, independent of the gradients g. A1 says ``|A g|^2 <= rho^(2k) |g|^2`` for all
of them. Then ``E |A g|^2 = |B g|^2 + E |D g|^2`` bounds ``|B g|^2``, and summed over gradients of
second moment S that is ``tr(B'B S) <= rho^(2k) tr S``; for S proportional to the identity the gain
``tr(B'B)/d`` is at most ``rho^(2k)``.

In numbers, the noise is D or -D with equal chances, and gradients are the axes: S is the identity.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import AtMost, Statement, Steps, under, width
from proofs._symbols import matrix, total

SCOPE = "any depth, any widths, any noise of mean zero, any second moment of the gradients"
WIDTH = 2
RHO = sp.symbols("rho", nonnegative=True)


def statement(*, extra: int = 0, centred: bool = True, decays: bool = True, whole: int = 1) -> Statement:
    """State that the gain is at most rho^(2k); the arguments make mutants."""

    def parts() -> tuple[sp.Matrix, sp.Matrix]:
        return matrix("B", width(WIDTH), width(WIDTH)), matrix("D", width(WIDTH), width(WIDTH))

    def claim(depth: int) -> AtMost:
        mean, _ = parts()
        return AtMost(whole * (mean.T * mean).trace() / width(WIDTH), RHO ** (2 * depth + extra))

    def given(depth: int) -> tuple[AtMost, ...]:
        mean, noise = parts()
        operators = (mean + noise, mean - noise) if centred else (mean + noise,)
        lengths = [(a.T * a)[i, i] for a in operators for i in range(width(WIDTH))]
        decay = (AtMost(length, RHO ** (2 * depth)) for length in lengths)
        return under("A1 for every gradient", decay) if decays else ()

    return Statement(
        slug="decay-bounds-gain",
        scope=SCOPE,
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda depth: (RHO, *parts()),
        parts={
            "slacks": (
                sp.symbols("u", **{"nonnegative" if decays else "real": True}),
                sp.symbols("v", **{"nonnegative" if decays and centred else "real": True}),
            ),
            "whole": whole,
        },
    )


def proof(statement: Statement, steps: Steps) -> None:
    """Expand ``|(B + D) g|^2``; the mixed part has mean zero; then sum over gradients."""
    part = statement.part
    d = sp.symbols("d", integer=True, positive=True)
    B, D = (sp.MatrixSymbol(name, d, d) for name in "BD")
    S = sp.MatrixSymbol("S", d, d)
    whole = sp.Trace((B + D).T * (B + D) * S) + sp.Trace((B - D).T * (B - D) * S)
    steps.identity("noise of both signs", whole, 2 * sp.Trace(B.T * B * S) + 2 * sp.Trace(D.T * D * S))
    noise, kept = sp.symbols("N g", nonnegative=True)
    u, v = part.slacks
    mean = ((kept - u) + (kept - v)) / 2 - noise  # |B g|^2, by what A1 leaves of both signs of the noise
    left = steps.nonnegative("what A1 leaves", kept - part.whole * mean, [u / 2, v / 2, noise])
    trace = sp.Trace(B.T * B * sp.Identity(d))
    steps.identity("isotropic gradients", trace, sp.Trace(B.T * B))

    def over_the_axes(depth: int):
        rho, mean, rest = statement.arguments(depth)
        bound = rho ** (2 * depth)

        def below(operator: sp.Matrix, axis: int) -> sp.Expr:
            return bound - (operator.T * operator)[axis, axis]

        return total(
            left.at(
                {
                    kept: bound,
                    u: below(mean + rest, axis),
                    v: below(mean - rest, axis),
                    noise: (rest.T * rest)[axis, axis],
                }
            )
            for axis in range(width(WIDTH))
        ) / width(WIDTH)

    steps.conclude(statement, over_the_axes)


STATEMENT = statement()
MUTANTS = {
    "one power more": statement(extra=1),
    "noise that is not centred": statement(centred=False),
    "norms that do not decay": statement(decays=False),
    "twice the gain": statement(whole=2),
}


@pytest.mark.equation("decay-bounds-gain")
def prove_decay_bounds_gain(settle):
    settle(STATEMENT, proof, MUTANTS)
