r"""Means and rests: why there is one way to split, and what four parts a layer's gradient has.

The mean of ``v - c`` is ``S - T c``, with S the weighted sum of the outcomes and T the sum of
the weights, which grows outcome by outcome and ends at T = 1: it vanishes for ``c = E v`` alone.
The four parts are ``(A + D)(g + xi)`` multiplied out, D the exact change of the operator.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import Equal, Statement, Steps, width
from proofs._symbols import matrices, matrix, product, total, vector


def split(slug: str, columns: int, *, weighted: bool = True, whole: bool = True, sign: int = 1) -> Statement:
    """State that the rest about c has the mean ``E v - c``; ``depth`` counts outcomes."""

    def arguments(depth: int) -> tuple:
        outcomes = [matrix(f"v{index}_", width(2), columns) for index in range(depth)]
        return (
            outcomes,
            list(sp.symbols(f"p:{depth}", real=True))[: depth - whole],
            matrix("c", width(2), columns),
        )

    def claim(depth: int) -> Equal:
        outcomes, weights, centre = arguments(depth)
        weights = [*weights, 1 - total(weights)] if whole else weights
        pairs = list(zip(outcomes, weights, strict=True))
        nothing = sp.zeros(width(2), columns)
        average = sum(((p if weighted else sp.Rational(1, depth)) * v for v, p in pairs), nothing)
        return Equal(sum((p * (v - centre) for v, p in pairs), nothing), average - sign * centre)

    return Statement(
        slug=slug,
        scope="any finite number of outcomes, any widths",
        claim=claim,
        depths=(2, 3),
        arguments=arguments,
        parts={"weighted": weighted, "whole": whole, "sign": sign},
    )


def split_proof(statement: Statement, steps: Steps) -> None:
    """Add one outcome; weights that sum to 1 leave the mean minus the centre."""
    part = statement.part
    rows, columns = sp.symbols("m n", integer=True, positive=True)
    S, v, c = (sp.MatrixSymbol(name, rows, columns) for name in "Svc")
    T, p = sp.symbols("T p", real=True)
    count = sp.Symbol("N", positive=True)
    more = steps.identity("one more outcome", (S - T * c) + p * (v - c), (S + p * v) - (T + p) * c)
    steps.identity("the mean grows as the sum", p * v, (p if part.weighted else 1 / count) * v)
    steps.identity("all outcomes", S - (1 if part.whole else T) * c, S - part.sign * c)

    def one_outcome_more(depth: int):
        (*outcomes, last), weights, centre = statement.arguments(depth)
        before = sum((w * x for w, x in zip(weights, outcomes, strict=True)), sp.zeros(*centre.shape))
        known = total(weights)
        return more.at({S: before, v: last, c: centre, T: known, p: 1 - known})

    steps.conclude(statement, one_outcome_more)


def split_mutants(slug: str, columns: int) -> dict[str, Statement]:
    """Change the mean, the weights, the sign."""
    return {
        "outcomes not weighted": split(slug, columns, weighted=False),
        "weights of any sum": split(slug, columns, whole=False),
        "centre added": split(slug, columns, sign=-1),
    }


JACOBIANS = split("jacobian-split", 2)
FLUCTUATIONS = split("output-fluctuation", 1)


@pytest.mark.equation("jacobian-split")
def prove_jacobian_split(settle):
    """Show that the rest of a Jacobian is centred about its mean, and about nothing else."""
    settle(JACOBIANS, split_proof, split_mutants("jacobian-split", 2))


@pytest.mark.equation("output-fluctuation")
def prove_output_fluctuation(settle):
    """Show that the fluctuation of an output gradient is centred about its mean, and about nothing else."""
    settle(FLUCTUATIONS, split_proof, split_mutants("output-fluctuation", 1))


def parts(*, exact: bool = True, noise: int = 1, sign: int = 1) -> Statement:
    """State that a layer's gradient is the sum of its four parts."""

    def arguments(depth: int) -> tuple:
        return matrices("B", depth), matrices("D", depth), vector("g", width(2)), vector("x", width(2))

    def rest(means, rests):
        if exact:
            return product([b + d for b, d in zip(means, rests, strict=True)]) - product(means)
        terms = [product([*means[:t], rests[t], *means[t + 1 :]]) for t in range(len(means))]
        result = terms[0]
        for term in terms[1:]:
            result = result + term
        return result

    def four(A, D, g, xi):
        return A * g + A * xi + sign * D * g + noise * D * xi

    def claim(depth: int) -> Equal:
        means, rests, g, xi = arguments(depth)
        whole = product([b + d for b, d in zip(means, rests, strict=True)])
        return Equal(whole * (g + xi), four(product(means), rest(means, rests), g, xi))

    return Statement(
        slug="app-g-l-decomp",
        scope="any depth, any widths, with the exact change of the operator",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"rest": rest, "four": four},
    )


def parts_proof(statement: Statement, steps: Steps) -> None:
    """Multiply out; the change of the operator is the exact one also for two layers."""
    part = statement.part
    width = sp.Symbol("d", integer=True, positive=True)
    A, D, B, C = (sp.MatrixSymbol(name, width, width) for name in "ADBC")
    g, xi = (sp.MatrixSymbol(name, width, 1) for name in ("g", "x"))
    four = steps.identity("four parts", (A + D) * (g + xi), part.four(A, D, g, xi))
    steps.identity("a layer more", (A + B) * (C + D) - A * C, part.rest([A, C], [B, D]))

    def whole(depth: int):
        means, rests, gradient, noise = statement.arguments(depth)
        mean = product(means)
        changed = product([b + d for b, d in zip(means, rests, strict=True)])
        return four.at({A: mean, D: changed - mean, g: gradient, xi: noise})

    steps.conclude(statement, whole)


PARTS = parts()
PARTS_MUTANTS = {
    "the printed first-order change": parts(exact=False),
    "noise through the rest left out": parts(noise=0),
    "rest subtracted": parts(sign=-1),
}


@pytest.mark.equation("app-g-l-decomp")
def prove_app_g_l_decomp(settle):
    """Show that a layer's gradient is the sum of its four parts, with the exact change of the operator."""
    settle(PARTS, parts_proof, PARTS_MUTANTS)
