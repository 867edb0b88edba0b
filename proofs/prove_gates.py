r"""Gate-corrected LAI: the mean over column directions, and the error of one step.

The mean. A layer's similarity is ``sum_i s_i t_i <W_i, g> <W_i, h>``, with W_i the columns above it
and s, t the slopes of both samples. If a column points in no preferred direction,
``E W_i W_i' = (|W_i|^2 / d) I`` with d its length, and each summand is ``s_i t_i |W_i|^2 / d <g, h>`` on
average. Numbers try the directions of all axes, either way. Independent from layer to layer,
the factors multiply: the mean of one layer is its factor times the mean of the layer above.

The error. ``<g, N h> - gamma <g, h> = <g, (N - gamma I) h>`` with ``N = W Diag(s t) W'`` and
``gamma = tr N / d``, so that the rest has no trace; by Lagrange's identity
``|g|^2 |E h|^2 - <g, E h>^2`` is a square in the plane, where ``E h`` is ``lambda |h|`` long for a symmetric
traceless E. In any width ``|E h| <= |E|_2 |h|`` is what the spectral norm means.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, width
from proofs._symbols import matrix, total, vector

UNITS = 2


def mean_over_directions(
    *, over_rows: bool = True, power: int = 2, other: bool = True, gates: int = 1
) -> Statement:
    """State the mean similarity; ``depth`` is the length of the columns."""

    def arguments(depth: int) -> tuple:
        sizes, slopes, others = (vector(name, width(UNITS)) for name in "rst")
        return sizes, slopes, others, vector("g", depth), vector("h", depth)

    def factor(size, slope, other_slope):
        return size**power * (slope * (other_slope if other else slope)) ** gates

    def claim(depth: int) -> Equal:
        sizes, slopes, others, g, h = arguments(depth)
        axes = [sign * sp.eye(depth)[:, k] for k in range(depth) for sign in (1, -1)]
        average = total(
            slopes[i] * others[i] * (sizes[i] * axis).dot(g) * (sizes[i] * axis).dot(h) / len(axes)
            for i in range(width(UNITS))
            for axis in axes
        )
        divisor = depth if over_rows else width(UNITS)
        gamma = total(factor(sizes[i], slopes[i], others[i]) for i in range(width(UNITS))) / divisor
        return Equal(average, gamma * g.dot(h))

    return Statement(
        slug="gate-corrected",
        scope="any depth, any widths; columns without preferred direction, independent between layers",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"factor": factor, "over_rows": over_rows},
    )


def mean_proof(statement: Statement, steps: Steps) -> None:
    """Take one column of symbolic length; add columns; add layers."""
    part = statement.part
    rows, columns = sp.symbols("d m", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, rows, 1) for name in "gh")
    r, s, t, gamma, beta, upper = sp.symbols("r s t gamma beta lambda", real=True)
    divisor = rows if part.over_rows else columns
    moment = (r**2 / rows) * sp.Identity(rows)
    one = part.factor(r, s, t) / divisor
    column = steps.identity("one column", s * t * g.T * moment * h, one * g.T * h)
    steps.identity("one more column", gamma * beta + one * beta, (gamma + one) * beta)
    steps.identity("one more layer", gamma * (upper * beta), (gamma * upper) * beta)

    def all_columns(depth: int):
        *units, up, other = statement.arguments(depth)
        units = zip(*units, strict=True)
        return total(column.at({r: a, s: b, t: c, g: up, h: other}) for a, b, c in units)

    steps.conclude(statement, all_columns)


MEAN = mean_over_directions()
MEAN_MUTANTS = {
    "over the number of columns": mean_over_directions(over_rows=False),
    "norms not squared": mean_over_directions(power=1),
    "one sample's slopes twice": mean_over_directions(other=False),
    "slopes left out": mean_over_directions(gates=0),
}


@pytest.mark.equation("gate-corrected")
def prove_gate_corrected(settle):
    """Show that the gate factors are the mean gains over column directions."""
    settle(MEAN, mean_proof, MEAN_MUTANTS)


def step(*, share: int = 2, size: sp.Rational | int = 1, power: int = 2) -> Statement:
    """State the error of one step in the plane: two rows, two units."""

    def arguments(depth: int) -> tuple:
        return (
            matrix("W", 2, width(UNITS)),
            vector("s", width(UNITS)),
            vector("t", width(UNITS)),
            vector("g", 2),
            vector("h", 2),
        )

    def claim(depth: int) -> AtMost:
        weight, slopes, others, g, h = arguments(depth)
        gates = sp.diag(*(s * t for s, t in zip(slopes, others, strict=True)))
        operator = weight * gates * weight.T
        rest = operator - operator.trace() / share * sp.eye(2)
        error = (g.T * rest * h)[0, 0]
        # A symmetric 2 x 2 matrix without trace has the eigenvalues +-sqrt(-det).
        half = operator - operator.trace() / 2 * sp.eye(2)
        return AtMost(error**2, size * -half.det() * (g.dot(g) * h.dot(h)) ** (power // 2))

    return Statement(
        slug="gate-step-error",
        scope="identity: any widths; inequality: two rows, beyond which it is the spectral norm's meaning",
        claim=claim,
        arguments=arguments,
        parts={"share": share, "size": size, "power": power},
    )


def step_proof(statement: Statement, steps: Steps) -> None:
    """Write the error as a form of the rest, which has no trace; complete it to a square."""
    part = statement.part
    rows = sp.Symbol("d", integer=True, positive=True)
    N = sp.MatrixSymbol("N", rows, rows)
    g, h = (sp.MatrixSymbol(name, rows, 1) for name in "gh")
    gamma = sp.Symbol("gamma", real=True)
    steps.identity("error", g.T * N * h - gamma * g.T * h, g.T * (N - gamma * sp.Identity(rows)) * h)
    a, b, x, y, u, v, tau = sp.symbols("a b x y u v tau", real=True)
    # The operator in the plane: its traceless part (a, b; b, -a), and half its trace tau.
    off = tau / 2 - tau / part.share
    rest = sp.Matrix([[a + off, b], [b, off - a]])
    steps.identity("no trace", rest.trace(), sp.Integer(0))
    p, q = sp.Matrix([x, y]), sp.Matrix([u, v])
    image = rest * q
    steps.identity("length of the image", image.dot(image), (a**2 + b**2) * q.dot(q))
    bound = part.size * (a**2 + b**2) * (p.dot(p) * q.dot(q)) ** (part.power // 2)
    square = (x * image[1] - y * image[0]) ** 2
    plane = steps.nonnegative("Lagrange", bound - (p.T * image)[0, 0] ** 2, [square])

    def of_the_layer(depth: int):
        weight, slopes, others, up, other = statement.arguments(depth)
        layer = weight * sp.diag(*slopes.multiply_elementwise(others)) * weight.T
        traceless = layer - layer.trace() / 2 * sp.eye(2)
        values = {a: traceless[0, 0], b: traceless[0, 1], tau: layer.trace()}
        return plane.at(values | dict(zip((x, y, u, v), (*up, *other), strict=True)))

    steps.conclude(statement, of_the_layer, depths=(1,))


STEP = step()
STEP_MUTANTS = {
    "the whole trace subtracted": step(share=1),
    "half of the bound": step(size=sp.Rational(1, 2)),
    "lengths to the fourth power": step(power=4),
}


@pytest.mark.equation("gate-step-error")
def prove_gate_step_error(settle):
    """Show that one gate factor's error is within the norm of the operator's traceless part."""
    settle(STEP, step_proof, STEP_MUTANTS)
