r"""The gain of a layer: which multiple of the identity is nearest to its operator.

With ``q = tr M'M`` and ``tau = tr M``, the squared distance from M to ``c I`` is
``q - 2 c tau + c^2 d_L``, for M of symbolic size; it is ``d_L (c - tau/d_L)^2`` above its value
at ``tau / d_L``. Dividing the trace by d_l instead leaves the trace ``(1 - d_L/d_l) tau``.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import Equal, Statement, Steps, width
from proofs._symbols import matrix, total

ROWS = 2


def operator(depth: int) -> sp.Matrix:
    """Name the mean operator A, ``d_l = 2`` rows and ``d_L = depth`` columns."""
    return matrix("A", width(ROWS), depth)


def squares(A: sp.Matrix) -> sp.Expr:
    """Give tr A'A as a sum over entries."""
    return total(entry**2 for entry in A)


def nearest(*, divisor=lambda below, last: last, power: int = 2, factor: int = 1) -> Statement:
    """State how far a multiple of the identity is from M, and that the gain is a sum of squares."""

    def arguments(depth: int) -> tuple:
        return operator(depth), sp.Symbol("c", real=True)

    def claim(depth: int) -> tuple[Equal, ...]:
        A, c = arguments(depth)
        M, one = A.T * A, sp.eye(depth)
        gain = squares(A) / divisor(width(ROWS), depth)
        distance = ((M - c * one).T * (M - c * one)).trace()
        least = ((M - gain * one).T * (M - gain * one)).trace()
        above = factor * depth * (c - gain) ** power
        return Equal(distance, least + above), Equal(M.trace() / depth, gain)

    return Statement(
        slug="trace-gain",
        scope="any widths",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"divisor": divisor, "power": power, "factor": factor},
    )


def nearest_proof(statement: Statement, steps: Steps) -> None:
    """Expand the squared distance in symbolic size; complete the square."""
    part = statement.part
    below, last = sp.symbols("d_l d_L", integer=True, positive=True)
    M, one = sp.MatrixSymbol("M", last, last), sp.Identity(last)
    c, q, tau = sp.symbols("c q tau", real=True)
    squared = sp.Trace((M - c * one).T * (M - c * one))
    steps.identity("distance", squared, sp.Trace(M.T * M) - 2 * c * sp.Trace(M) + c**2 * last)

    def distance(x):
        return q - 2 * x * tau + x**2 * last

    gain = tau / part.divisor(below, last)
    above = part.factor * last * (c - gain) ** part.power
    completed = steps.identity("completed square", distance(c), distance(gain) + above)

    def of_the_operator(depth: int) -> list:
        A = operator(depth)
        M = A.T * A
        values = {q: (M.T * M).trace(), tau: M.trace(), last: depth, below: width(ROWS)}
        return [completed.at(values), None]

    steps.conclude(statement, of_the_operator)
    steps.base(statement, (1, 2), relations=(1,))


NEAREST = nearest()
NEAREST_MUTANTS = {
    "over d_l, as printed": nearest(divisor=lambda below, last: below),
    "over both": nearest(divisor=lambda below, last: below * last),
    "distance of first order": nearest(power=1),
    "twice the distance": nearest(factor=2),
}


@pytest.mark.equation("trace-gain")
def prove_trace_gain(settle):
    """Show that tr M / d_L is the gain nearest to the operator, and the only one."""
    settle(NEAREST, nearest_proof, NEAREST_MUTANTS)


def printed(*, left=lambda below, last: 1 - last / below, inverse: bool = False) -> Statement:
    """State what the printed gain is, beside the nearest one, and which trace it leaves."""

    def ratio(below, last):
        return below / last if inverse else last / below

    def arguments(depth: int) -> tuple:
        return (operator(depth),)

    def claim(depth: int) -> tuple[Equal, ...]:
        (A,) = arguments(depth)
        M, below, last = A.T * A, sp.Integer(width(ROWS)), sp.Integer(depth)
        gain = squares(A) / below
        rest = (M - gain * sp.eye(depth)).trace()
        return (
            Equal(gain, ratio(below, last) * M.trace() / last),
            Equal(rest, left(below, last) * M.trace()),
        )

    return Statement(
        slug="isotropic-gain",
        scope="any widths",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"left": left, "ratio": ratio},
    )


def printed_proof(statement: Statement, steps: Steps) -> None:
    """Take the trace in symbolic size."""
    part = statement.part
    below, last = sp.symbols("d_l d_L", integer=True, positive=True)
    tau = sp.Symbol("tau", real=True)
    gain = tau / below
    beside = steps.identity("beside the nearest", gain, part.ratio(below, last) * tau / last)
    steps.identity("trace of c I", sp.Trace(gain * sp.Identity(last)).doit(), gain * last)
    left = steps.identity("trace left", tau - gain * last, part.left(below, last) * tau)

    def of_the_operator(depth: int) -> list:
        values = {tau: squares(operator(depth)), last: depth, below: width(ROWS)}
        return [lemma.at(values) for lemma in (beside, left)]

    steps.conclude(statement, of_the_operator)


PRINTED = printed()
PRINTED_MUTANTS = {
    "no trace left, as a projection would": printed(left=lambda below, last: 0),
    "ratio of widths inverted": printed(inverse=True),
    "trace left with the other sign": printed(left=lambda below, last: last / below - 1),
}


@pytest.mark.equation("isotropic-gain")
def prove_isotropic_gain(settle):
    """Show that the printed gain is d_L/d_l times the nearest one, and leaves a trace."""
    settle(PRINTED, printed_proof, PRINTED_MUTANTS)
