r"""Scores along Adam's step: its direction, and its derivative in a sample's weight.

Direction. Along ``t - e P g`` with P diagonal the validation loss has slope ``-<v, P g>``: P enters once.
Scaling both gradients by the root of P gives the same, scaling both by P gives P twice.

Derivative. Adam acts on each coordinate alone; ``r`` stands for the root of the corrected second moment.
Clipping mixes coordinates: with ``n`` the gradient's norm and ``y = g / n`` the derivative of
``c g / (n + d)`` along ``u`` is ``c u / (n + d) - c n y <y, u> / (n + d)^2``, which is symmetric.

Readouts. A readout's gradient is ``g a^T``; with a second moment ``r c^T`` each entry of Adam's direction is
a product of one output's and one input's, so that the double sum is a product of sums.

Second moment. Unrolled, a running mean of k batches weighs them ``(1 - d) d^(k - 1 - i)`` and its start
``d^k``, which add up to one: a constant stays what it is.
"""

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, settled, under
from proofs._rewrites import each, put, times
from proofs._symbols import dot, symbolic, total, vector

rate = sp.Symbol("eta", positive=True)


def direction(p: int) -> Equal:
    """State the first-order decrease of a step along a diagonal times the gradient."""
    v, g, root = direction_arguments(p)
    step = sp.Matrix([-rate * y / r for y, r in zip(g, root, strict=True)])
    loss = v.dot(step) + dot(vector("s", p), step, step)
    return Equal(dot(v, g, inverse(root)), -loss.diff(rate).subs(rate, 0))


def inverse(roots: sp.Matrix) -> sp.Matrix:
    """Divide 1 by each entry."""
    return roots.applyfunc(lambda root: 1 / root)


def direction_arguments(p: int) -> tuple:
    """Name the validation gradient, the sample's, and the divisors of Adam's step."""
    return vector("v", p), vector("g", p), vector("r", p, positive=True)


DIRECTION = Statement(
    "adam-direction",
    "any number of parameters, any loss with a derivative, any diagonal",
    direction,
    depths=(1, 2, 3),
    arguments=direction_arguments,
)
DIRECTION_MUTANTS = {
    "the printed scaling, both sides": each("r", lambda r: r**2, of="lhs"),
    "no scaling": each("r", 1, of="lhs"),
    "the printed sign": times(-1, of="lhs"),
}


@settled("adam-direction", DIRECTION, DIRECTION_MUTANTS)
def prove_adam_direction() -> None:
    """Find the slope for a diagonal of symbolic size, then one coordinate's power of the divisor."""


beta1, beta2, w, g_j, others, theta, m, slope = sp.symbols("beta1 beta2 w g_j o theta m a", real=True)
decay, step = sp.Symbol("decay", nonnegative=True), sp.Symbol("t", integer=True, positive=True)
eps, root = sp.Symbol("epsilon", positive=True), sp.Symbol("r", positive=True)


first_bias, second_bias = 1 - beta1**step, 1 - beta2**step
used = others + w * g_j + decay * theta
at = {w: sp.Symbol("w0", real=True)}


def derivative(depth: int) -> Equal:
    """State the derivative of one coordinate's step in the weight of a sample, per unit of the rate."""
    gradient = used.subs(at)
    # The second moment before the step is chosen such that at weight w0 its corrected root is r.
    before = (root**2 * second_bias - (1 - beta2) * gradient**2) / beta2
    mean = (beta1 * m + (1 - beta1) * used) / first_bias
    taken = mean / (sp.sqrt((beta2 * before + (1 - beta2) * used**2) / second_bias) + eps)
    scale = (1 - beta1) / (first_bias * (root + eps))
    curved = (1 - beta2) * gradient * mean.subs(at) / (second_bias * root * (root + eps) ** 2)
    return Equal(slope * (scale - curved) * g_j, slope * taken.diff(w).subs(at))


def decays(depth: int) -> tuple[AtMost, ...]:
    """State that both decays lie between 0 and 1."""
    ends = (AtMost(0, q, strict=True) for b in (beta1, beta2) for q in (b, 1 - b))
    return under(r"$0 < \beta_1, \beta_2 < 1$", ends)


DERIVATIVE = Statement(
    "adam-derivative",
    "any number of parameters, any step number; clipping inactive",
    derivative,
    given=decays,
    arguments=lambda depth: (slope, g_j, theta, others, at[w], m, root, beta1, beta2, eps, decay, step),
)
DERIVATIVE_MUTANTS = {
    "the second moment held fixed": put({1 - beta2: sp.S.Zero}, of="lhs"),
    "the decay left out of the gradient": each("decay", 0, of="lhs"),
    "no correction of the start": put({1 - beta1**step: sp.S.One}, of="lhs"),
    "the second term added": put({1 - beta2: beta2 - 1}, of="lhs"),
    "the other sign": times(-1, of="lhs"),
}


@settled("adam-derivative", DERIVATIVE, DERIVATIVE_MUTANTS)
def prove_adam_derivative() -> None:
    """Differentiate mean over root by the quotient and chain rules, with symbols for the parts."""


norm, limit, pad = sp.symbols("n c d", positive=True)


def clipping(p: int) -> Equal:
    """State the derivative of ``c g / (|g| + d)`` along u, paired with a cotangent."""
    u, x, y = clipping_arguments(p)
    unit, e = on_the_sphere(y), sp.Symbol("e")
    moved = norm * unit + e * x
    # The norm's derivative is that of its square over twice the norm.
    slope = sp.expand(moved.dot(moved)).diff(e).subs(e, 0) / (2 * norm)
    exact = limit * (x / (norm + pad) - norm * unit * slope / (norm + pad) ** 2)
    radial = limit * norm * unit.dot(u) * unit.dot(x) / (norm + pad) ** 2
    return Equal(limit / (norm + pad) * u.dot(x) - radial, u.dot(exact))


def on_the_sphere(y: sp.Matrix) -> sp.Matrix:
    """Give a rational point of the unit sphere, of one dimension more."""
    square = y.dot(y)
    return sp.Matrix([*(2 * y / (square + 1)), (square - 1) / (square + 1)])


def clipping_arguments(p: int) -> tuple:
    """Name the cotangent, the sample's gradient and where the batch gradient points."""
    return vector("u", p + 1), vector("x", p + 1), vector("y", p)


CLIPPING = Statement("adam-derivative", "any number of parameters; clipping active", clipping, depths=(1, 2))
CLIPPING_MUTANTS = {
    "a constant factor": put({(norm + pad) ** -2: sp.S.Zero}, of="lhs"),
    "the radial part added": put({(norm + pad) ** -2: -((norm + pad) ** -2)}, of="lhs"),
    "the norm once": put({(norm + pad) ** -2: 1 / (norm + pad)}, of="lhs"),
}


@settled("adam-derivative", CLIPPING, CLIPPING_MUTANTS)
def prove_clipping(statement: Statement, steps: Steps) -> None:
    """Differentiate the factor in the norm, for vectors of symbolic size."""
    n, c, d = norm, limit, pad
    e, along, square = sp.symbols("e s q", real=True)
    moved = sp.sqrt(n**2 + 2 * e * n * along + e**2 * square)  # |n y + e x| with s = <y, x>, |y| = 1
    steps.identity("slope of the norm", moved.diff(e).subs(e, 0), along)
    u, x, y = symbolic("u x y")
    alone, radial = sp.symbols("a b", real=True)  # <u, x> and <u, y>
    factor = c / (moved + d)
    exact = (factor * (e * alone + n * radial)).diff(e).subs(e, 0)
    claimed = c / (n + d) * alone - c * n * radial * along / (n + d) ** 2
    clipped = steps.identity("slope of the clipped gradient", claimed, exact)
    steps.identity("paired", sp.Trace(u.T * (e * x + n * y)), e * sp.Trace(u.T * x) + n * sp.Trace(u.T * y))

    @steps.conclude(statement)
    def paired(p: int):
        u, x, y = clipping_arguments(p)
        unit = on_the_sphere(y)
        return clipped.at({alone: u.dot(x), radial: u.dot(unit), along: unit.dot(x)})


def readouts(depth: int) -> Equal:
    """State the slope of Adam's direction on virtual readouts whose second moments are products r c^T."""
    # r and c are the square roots of the second moments
    g, h, r = vector("g", 2), vector("h", 2), vector("r", 2, positive=True)
    a, b = (vector(name, 2 * depth) for name in "ab")
    c = vector("c", 2 * depth, positive=True)
    slope = total(g[i] * a[k] * (h[i] * b[k] / (r[i] * c[k])) for k in range(2 * depth) for i in range(2))
    return Equal(dot(a, b, inverse(c)) * dot(g, h, inverse(r)), slope)


READOUTS = Statement(
    "adam-readouts",
    "one and two layers and the step to one more, any widths; Adam without momentum",
    readouts,
    depths=(1, 2),
)
READOUTS_MUTANTS = {
    "the outputs alone scaled": each("c", 1, of="lhs"),
    "outputs scaled twice, as printed": each("r", lambda r: r**2, of="lhs"),
    "outputs that mix": put(dict(zip(vector("h", 2), reversed(vector("h", 2)), strict=True)), of="lhs"),
}


@settled("adam-readouts", READOUTS, READOUTS_MUTANTS)
def prove_adam_readouts() -> None:
    """Add one entry of an input, of whatever layer, and one output."""


keep = sp.Symbol("gamma", real=True)


def running_mean(batches: int) -> tuple[Equal, Equal]:
    """State the running mean unrolled, and that its weights add up to one."""
    _, start, means = moment_arguments(batches)
    value = start
    for mean in means:
        value = keep * value + (1 - keep) * mean
    weights = [(1 - keep) * keep ** (batches - 1 - i) for i in range(batches)]
    unrolled = keep**batches * start + dot(weights, means)
    return Equal(value, unrolled), Equal(keep**batches + total(weights), sp.S.One)


def moment_arguments(batches: int) -> tuple:
    """Name the decay, one entry's start and its batch means."""
    return keep, sp.Symbol("D", nonnegative=True), list(sp.symbols(f"q_:{batches}", nonnegative=True))


MOMENT = Statement(
    "second-moment",
    "any number of batches, any decay",
    running_mean,
    depths=(1, 2, 4),
    arguments=moment_arguments,
)
MOMENT_MUTANTS = {
    "every weight one power lower": each("q", lambda q: keep * q, only=0),
    "the start forgotten": each("D", 0, only=0),
}


@settled("second-moment", MOMENT, MOMENT_MUTANTS)
def prove_second_moment(statement: Statement, steps: Steps) -> None:
    """Take one more batch: all earlier weights shrink by the decay, and the sum stays one."""
    start, so_far, newest = sp.symbols("D S q", real=True)
    power = sp.Symbol("P", real=True)  # keep to the number of batches so far
    value = power * start + so_far
    unrolled = keep * power * start + keep * so_far + (1 - keep) * newest
    more = steps.identity("one more batch", keep * value + (1 - keep) * newest, unrolled)
    steps.identity("the sum of weights", keep * 1 + (1 - keep), sp.S.One)

    def unrolled_once_more(batches: int) -> list:
        _, first, means = moment_arguments(batches)
        earlier = total((1 - keep) * keep ** (batches - 2 - i) * means[i] for i in range(batches - 1))
        at = {start: first, power: keep ** (batches - 1), so_far: earlier, newest: means[-1]}
        return [more.at(at), None]

    steps.conclude(statement, unrolled_once_more)
    steps.base(statement, (1, 2), relations=(1,))
