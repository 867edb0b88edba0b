r"""Gate-corrected LAI: the mean over column directions, and the error of one step.

The mean. A layer's similarity is ``sum_i s_i t_i <W_i, g> <W_i, h>``, with W_i the columns above it
and s, t the slopes of both samples. If a column points in no preferred direction,
``E W_i W_i' = (|W_i|^2 / d) I`` with d its length, and each summand is ``s_i t_i |W_i|^2 / d <g, h>`` on
average. Numbers try the directions of all axes, either way. Independent from layer to layer, the factors
multiply: the mean of one layer is its factor times the mean of the layer above. Only the mean of one step is
compared with numbers; its size is the length of the columns, and no product over layers is evaluated.

The error. ``<g, N h> - gamma <g, h> = <g, (N - gamma I) h>`` with ``N = W Diag(s t) W'`` and
``gamma = tr N / d``, so that the rest has no trace; by Lagrange's identity
``|g|^2 |E h|^2 - <g, E h>^2`` is a square in the plane, where ``E h`` is ``lambda |h|`` long for a symmetric
traceless E. In any width ``|E h| <= |E|_2 |h|`` is what the spectral norm means.
"""

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, each, every, put, times
from proofs._symbols import dot, matrix, symbolic, total, vector

UNITS = 2


def mean_over_directions_arguments(depth: int) -> tuple:
    """Name the columns' lengths, both samples' slopes, and their gradients above."""
    return *(vector(name, width(UNITS)) for name in "rst"), vector("g", depth), vector("h", depth)


def mean_over_directions(depth: int) -> Equal:
    """State the mean similarity; ``depth`` is the length of the columns."""
    sizes, slopes, others, g, h = mean_over_directions_arguments(depth)
    axes = [sign * sp.eye(depth)[:, k] for k in range(depth) for sign in (1, -1)]
    units = list(zip(sizes, slopes, others, strict=True))
    average = total(s * t * (r * axis).dot(g) * (r * axis).dot(h) for r, s, t in units for axis in axes)
    return Equal(average / len(axes), dot(sizes, sizes, slopes, others) / depth * g.dot(h))


MEAN = Statement(
    "gate-corrected",
    "one gate step: columns of any length and number, without preferred direction; that the steps' factors "
    "multiply over independent layers is shown, not compared",
    mean_over_directions,
    depths=(1, 2, 3),
    arguments=mean_over_directions_arguments,
)
MEAN_MUTANTS = {
    "over the number of columns": times(lambda depth: sp.Rational(depth, width(UNITS))),
    "norms not squared": put(lambda depth: {r**2: r for r in vector("r", width(UNITS))}),
    "one sample's slopes twice": put(
        lambda depth: dict(zip(vector("t", width(UNITS)), vector("s", width(UNITS)), strict=True))
    ),
    "slopes left out": every(each("s", 1), each("t", 1)),
}


@settled("gate-corrected", MEAN, MEAN_MUTANTS)
def prove_gate_corrected(statement: Statement, steps: Steps) -> None:
    """Take one column of symbolic length; add columns; add layers."""
    g, h = symbolic("g h")
    rows = g.rows
    r, s, t, gamma, beta, upper = sp.symbols("r s t gamma beta lambda", real=True)
    moment = (r**2 / rows) * sp.Identity(rows)
    one = r**2 * (s * t) / rows
    column = steps.identity("one column", s * t * g.T * moment * h, one * g.T * h)
    steps.identity("one more column", gamma * beta + one * beta, (gamma + one) * beta)
    steps.identity("one more layer", gamma * (upper * beta), (gamma * upper) * beta)

    @steps.conclude(statement)
    def all_columns(depth: int):
        *units, up, other = statement.arguments(depth)
        units = zip(*units, strict=True)
        return total(column.at({r: a, s: b, t: c, g: up, h: other}) for a, b, c in units)


def step_arguments(depth: int) -> tuple:
    """Name the weight, both samples' slopes, and their gradients above."""
    units = width(UNITS)
    return matrix("W", 2, units), *(vector(name, units) for name in "st"), vector("g", 2), vector("h", 2)


def rest(depth: int, share: int = 2) -> sp.Matrix:
    """Give what is left of the operator beside its mean gain."""
    weight, slopes, others, *_ = step_arguments(depth)
    operator = weight * sp.diag(*slopes.multiply_elementwise(others)) * weight.T
    return operator - operator.trace() / share * sp.eye(2)


def error(depth: int, share: int = 2) -> sp.Expr:
    """Give the error of one gate factor."""
    *_, g, h = step_arguments(depth)
    return (g.T * rest(depth, share) * h)[0, 0]


def step(depth: int) -> AtMost:
    """State the error of one step in the plane: two rows, two units."""
    *_, g, h = step_arguments(depth)
    # A symmetric 2 x 2 matrix without trace has the eigenvalues +-sqrt(-det).
    return AtMost(error(depth) ** 2, -rest(depth).det() * (g.dot(g) * h.dot(h)))


STEP = Statement(
    "gate-step-error",
    "identity: any widths; inequality: two rows, beyond which it is the spectral norm's meaning",
    step,
    arguments=step_arguments,
)
STEP_MUTANTS = {
    "the whole trace subtracted": becomes(lambda depth: error(depth, share=1) ** 2, of="lhs"),
    "half of the bound": times(sp.Rational(1, 2)),
    "lengths to the fourth power": times(
        lambda depth: vector("g", 2).dot(vector("g", 2)) * vector("h", 2).dot(vector("h", 2))
    ),
}


@settled("gate-step-error", STEP, STEP_MUTANTS)
def prove_gate_step_error(statement: Statement, steps: Steps) -> None:
    """Write the error as a form of the rest, which has no trace; complete it to a square."""
    N, g, h = symbolic("N g h")
    gamma = sp.Symbol("gamma", real=True)
    steps.identity("error", g.T * N * h - gamma * g.T * h, g.T * (N - gamma * sp.Identity(N.rows)) * h)
    a, b, x, y, u, v = sp.symbols("a b x y u v", real=True)
    p, q = sp.Matrix([x, y]), sp.Matrix([u, v])
    image = sp.Matrix([[a, b], [b, -a]]) * q  # the operator's traceless part in the plane
    steps.identity("length of the image", image.dot(image), (a**2 + b**2) * q.dot(q))
    bound = (a**2 + b**2) * (p.dot(p) * q.dot(q))
    square = (x * image[1] - y * image[0]) ** 2
    plane = steps.nonnegative("Lagrange", bound - (p.T * image)[0, 0] ** 2, [square])

    @steps.conclude(statement, depths=(1,))
    def of_the_layer(depth: int):
        *_, up, other = statement.arguments(depth)
        traceless = rest(depth)
        values = dict(zip((x, y, u, v), (*up, *other), strict=True))
        return plane.at({a: traceless[0, 0], b: traceless[0, 1], **values})
