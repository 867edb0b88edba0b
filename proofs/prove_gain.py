r"""The gain of a layer: which multiple of the identity is nearest to its operator.

With ``q = tr M'M`` and ``tau = tr M``, the squared distance from M to ``c I`` is
``q - 2 c tau + c^2 d_L``, for M of symbolic size; it is ``d_L (c - tau/d_L)^2`` above its value
at ``tau / d_L``. Dividing the trace by d_l instead leaves the trace ``(1 - d_L/d_l) tau``.
"""

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled, width
from proofs._rewrites import plus, times
from proofs._symbols import matrix, total

ROWS = 2


def operator(depth: int) -> sp.Matrix:
    """Name the mean operator A, ``d_l = 2`` rows and ``d_L = depth`` columns."""
    return matrix("A", width(ROWS), depth)


def squares(A: sp.Matrix) -> sp.Expr:
    """Give tr A'A as a sum over entries."""
    return total(entry**2 for entry in A)


c = sp.Symbol("c", real=True)


def away(depth: int) -> sp.Expr:
    """Give how far c is from the gain."""
    return c - squares(operator(depth)) / depth


def nearest(depth: int) -> tuple[Equal, ...]:
    """State how far a multiple of the identity is from M, and that the gain is a sum of squares."""
    A, one = operator(depth), sp.eye(depth)
    M, gain = A.T * A, squares(A) / depth
    distance = ((M - c * one).T * (M - c * one)).trace()
    least = ((M - gain * one).T * (M - gain * one)).trace()
    return Equal(distance, least + depth * away(depth) ** 2), Equal(M.trace() / depth, gain)


NEAREST = Statement(
    "trace-gain", "any widths", nearest, depths=(1, 2, 3), arguments=lambda depth: (operator(depth), c)
)
NEAREST_MUTANTS = {
    "over d_l, as printed": times(lambda depth: sp.Rational(depth, width(ROWS)), only=1),
    "over both": times(lambda depth: sp.Rational(1, width(ROWS)), only=1),
    "distance of first order": plus(lambda depth: depth * (away(depth) - away(depth) ** 2), only=0),
    "twice the distance": plus(lambda depth: depth * away(depth) ** 2, only=0),
}


@settled("trace-gain", NEAREST, NEAREST_MUTANTS)
def prove_trace_gain() -> None:
    """Expand the squared distance in symbolic size; complete the square."""


def printed(depth: int) -> tuple[Equal, ...]:
    """State what the printed gain is, beside the nearest one, and which trace it leaves."""
    A, below, last = operator(depth), sp.Integer(width(ROWS)), sp.Integer(depth)
    M, gain = A.T * A, squares(A) / below
    rest = (M - gain * sp.eye(depth)).trace()
    return Equal(gain, last / below * (M.trace() / last)), Equal(rest, (1 - last / below) * M.trace())


PRINTED = Statement(
    "isotropic-gain", "any widths", printed, depths=(1, 2, 3), arguments=lambda depth: (operator(depth),)
)
PRINTED_MUTANTS = {
    "no trace left, as a projection would": times(0, only=1),
    "ratio of widths inverted": times(lambda depth: sp.Rational(width(ROWS), depth) ** 2, only=0),
    "trace left with the other sign": times(-1, only=1),
}


@settled("isotropic-gain", PRINTED, PRINTED_MUTANTS)
def prove_isotropic_gain(statement: Statement, steps: Steps) -> None:
    """Take the trace in symbolic size."""
    below, last = sp.symbols("d_l d_L", integer=True, positive=True)
    tau = sp.Symbol("tau", real=True)
    gain = tau / below
    beside = steps.identity("beside the nearest", gain, last / below * (tau / last))
    steps.identity("trace of c I", sp.Trace(gain * sp.Identity(last)).doit(), gain * last)
    left = steps.identity("trace left", tau - gain * last, (1 - last / below) * tau)

    @steps.conclude(statement)
    def of_the_operator(depth: int) -> list:
        values = {tau: squares(operator(depth)), last: depth, below: width(ROWS)}
        return [lemma.at(values) for lemma in (beside, left)]
