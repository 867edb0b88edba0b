r"""Scores along Adam's step: its direction, its derivative in a sample's weight, and Ghost under it.

Direction. Along ``t - e P g`` with P diagonal the validation loss has slope ``-<v, P g>``: P enters once.
Scaling both gradients by the root of P gives the same, scaling both by P gives P twice.

Derivative. Adam acts on each coordinate alone, and the validation loss's derivative is the sum over
coordinates: induction over coordinates is addition, and one coordinate is one derivative, taken by sympy
of the whole step in the sample's weight. ``r`` stands for the root of the corrected second moment. Clipping
mixes coordinates: with ``n`` the gradient's norm and ``y = g / n`` the derivative of ``c g / (n + d)`` along
``u`` is ``c u / (n + d) - c n y <y, u> / (n + d)^2``, which is symmetric.

Ghost. An entry of ``P`` multiplies one product ``g_i a_m h_i b_m``; one more entry is one more term.

Readouts. A readout's gradient is ``g a^T``; with a second moment ``r c^T`` each entry of Adam's direction is
a product of one output's and one input's, so that the double sum is a product of sums.

Second moment. Unrolled, a running mean of k batches weighs them ``(1 - d) d^(k - 1 - i)`` and its start
``d^k``, which add up to one: a constant stays what it is.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, under
from proofs._symbols import total, vector

SCOPE = "any number of parameters, any loss with a derivative, any diagonal"
DERIVATIVE_SCOPE = "any number of parameters, any step number; clipping inactive"
CLIPPING_SCOPE = "any number of parameters; clipping active"
GHOST_SCOPE = "any widths, any preconditioner with one factor an entry"
rate = sp.Symbol("eta", positive=True)


def direction(*, times: int = 1, sign: int = 1) -> Statement:
    """State the first-order decrease of a step along a diagonal times the gradient."""

    def claim(p: int) -> Equal:
        v, g, root = direction_arguments(p)
        step = sp.Matrix([-rate * y / r for y, r in zip(g, root, strict=True)])
        loss = v.dot(step) + sum((x * s**2 for x, s in zip(vector("s", p), step, strict=True)), sp.S.Zero)
        slope = -loss.diff(rate).subs(rate, 0)
        scaled = sp.Add(*(x * y / r**times for x, y, r in zip(v, g, root, strict=True)))
        return Equal(sign * scaled, slope)

    return Statement(
        slug="adam-direction",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=direction_arguments,
        parts={"times": times, "sign": sign},
    )


def direction_arguments(p: int) -> tuple:
    """Name the validation gradient, the sample's, and the divisors of Adam's step."""
    return vector("v", p), vector("g", p), vector("r", p, positive=True)


def direction_proof(statement: Statement, steps: Steps) -> None:
    """Find the slope for a diagonal of symbolic size, then one coordinate's power of the divisor."""
    part, p = statement.part, sp.Symbol("p", integer=True, positive=True)
    v, g = (sp.MatrixSymbol(name, p, 1) for name in "vg")
    scale = sp.MatrixSymbol("P", p, p)
    steps.identity("slope", sp.Trace(v.T * (-rate * scale * g)), -rate * sp.Trace(v.T * scale * g))
    x, y = sp.symbols("x y", real=True)
    r = sp.Symbol("r", positive=True)
    claimed = part.sign * x * y / r**part.times
    one = steps.identity("one coordinate", claimed, -sp.diff(x * (-rate * y / r), rate))
    steps.identity("a quarter power on both sides", (x / sp.sqrt(r)) * (y / sp.sqrt(r)), claimed)
    steps.conclude(
        statement,
        lambda p: total(one.at({x: a, y: b, r: c}) for a, b, c in zip(*direction_arguments(p), strict=True)),
    )


DIRECTION = direction()
DIRECTION_MUTANTS = {
    "the printed scaling, both sides": direction(times=2),
    "no scaling": direction(times=0),
    "the printed sign": direction(sign=-1),
}


@pytest.mark.equation("adam-direction")
def prove_adam_direction(settle):
    """Show that Adam's scale enters the score once."""
    settle(DIRECTION, direction_proof, DIRECTION_MUTANTS)


beta1, beta2, w, g_j, others, theta, m, v_after, slope = sp.symbols(
    "beta1 beta2 w g_j o theta m u a", real=True
)
decay, step = sp.Symbol("decay", nonnegative=True), sp.Symbol("t", integer=True, positive=True)
eps, root = sp.Symbol("epsilon", positive=True), sp.Symbol("r", positive=True)


def derivative(*, second: int = 1, decayed: int = 1, corrected: bool = True, sign: int = 1) -> Statement:
    """State the derivative of one coordinate's step in the weight of a sample, per unit of the rate."""
    first_bias, second_bias = 1 - beta1**step, 1 - beta2**step
    used = others + w * g_j + decay * theta
    # The second moment before the step is chosen such that at weight w0 its corrected root is r.
    at = {w: sp.Symbol("w0", real=True)}
    before = (root**2 * second_bias - (1 - beta2) * used.subs(at) ** 2) / beta2
    mean = (beta1 * m + (1 - beta1) * used) / first_bias
    taken = mean / (sp.sqrt((beta2 * before + (1 - beta2) * used**2) / second_bias) + eps)

    def claim(depth: int) -> Equal:
        gradient = (others + w * g_j + decayed * decay * theta).subs(at)
        scale = (1 - beta1) / ((first_bias if corrected else 1) * (root + eps))
        curved = (1 - beta2) * gradient * mean.subs(at) / (second_bias * root * (root + eps) ** 2)
        return Equal(sign * slope * (scale - second * curved) * g_j, slope * taken.diff(w).subs(at))

    return Statement(
        slug="adam-derivative",
        scope=DERIVATIVE_SCOPE,
        claim=claim,
        given=lambda depth: under(
            r"$0 < \beta_1, \beta_2 < 1$",
            (AtMost(0, q, strict=True) for b in (beta1, beta2) for q in (b, 1 - b)),
        ),
        sample=_decays,
        arguments=lambda depth: (slope, g_j, theta, others, at[w], m, root, beta1, beta2, eps, decay, step),
        parts={"second": second, "decayed": decayed, "corrected": corrected, "sign": sign},
    )


def _decays(draw, depth: int) -> dict:
    """Draw decays inside (0, 1)."""
    return {b: sp.Rational(draw.randint(1, 9), 10) for b in (beta1, beta2)}


def derivative_proof(statement: Statement, steps: Steps) -> None:
    """Differentiate mean over root by the quotient and chain rules, with symbols for the parts."""
    part = statement.part
    x, rest1, rest2 = sp.symbols("x R1 R2", real=True)
    bias1, bias2 = sp.symbols("B1 B2", positive=True)
    mean = (rest1 + (1 - beta1) * x) / bias1
    taken = mean / (sp.sqrt((rest2 + (1 - beta2) * x**2) / bias2) + eps)
    at = {rest2: root**2 * bias2 - (1 - beta2) * x**2}
    scale = (1 - beta1) / ((bias1 if part.corrected else 1) * (root + eps))
    curved = (1 - beta2) * x * mean / (bias2 * root * (root + eps) ** 2)
    slopes = steps.identity(
        "in the gradient", part.sign * (scale - part.second * curved), taken.diff(x).subs(at)
    )
    weighted = others + w * g_j + decay * theta
    steps.identity("in the weight", weighted.diff(w), g_j)
    steps.identity("the gradient it is taken at", weighted, others + w * g_j + part.decayed * decay * theta)
    taken_at = weighted.subs(w, sp.Symbol("w0", real=True))
    values = {x: taken_at, rest1: beta1 * m, bias1: 1 - beta1**step, bias2: 1 - beta2**step}
    steps.conclude(statement, lambda depth: slopes.at(values) * slope * g_j, depths=(1,))


DERIVATIVE = derivative()
DERIVATIVE_MUTANTS = {
    "the second moment held fixed": derivative(second=0),
    "the decay left out of the gradient": derivative(decayed=0),
    "no correction of the start": derivative(corrected=False),
    "the second term added": derivative(second=-1),
    "the other sign": derivative(sign=-1),
}


@pytest.mark.equation("adam-derivative")
def prove_adam_derivative(settle):
    """Show the derivative of one Adam step, both terms."""
    settle(DERIVATIVE, derivative_proof, DERIVATIVE_MUTANTS)


def clipping(*, radial: int = 1, power: int = 2, sign: int = -1) -> Statement:
    """State the derivative of ``c g / (|g| + d)`` along u, paired with a cotangent."""
    norm, limit, pad = sp.symbols("n c d", positive=True)

    def claim(p: int) -> Equal:
        u, x, y = clipping_arguments(p)
        unit = on_the_sphere(y)
        e = sp.Symbol("e")
        moved = norm * unit + e * x
        # The norm's derivative is that of its square over twice the norm.
        slope = sp.expand(moved.dot(moved)).diff(e).subs(e, 0) / (2 * norm)
        exact = limit * (x / (norm + pad) - norm * unit * slope / (norm + pad) ** 2)
        claimed = limit / (norm + pad) * u.dot(x)
        claimed += sign * radial * limit * norm * unit.dot(u) * unit.dot(x) / (norm + pad) ** power
        return Equal(claimed, u.dot(exact))

    return Statement(
        slug="adam-derivative",
        scope=CLIPPING_SCOPE,
        claim=claim,
        depths=(1, 2),
        parts={"radial": radial, "power": power, "sign": sign, "n": norm, "c": limit, "d": pad},
    )


def on_the_sphere(y: sp.Matrix) -> sp.Matrix:
    """Give a rational point of the unit sphere, of one dimension more."""
    square = y.dot(y)
    return sp.Matrix([*(2 * y / (square + 1)), (square - 1) / (square + 1)])


def clipping_arguments(p: int) -> tuple:
    """Name the cotangent, the sample's gradient and where the batch gradient points."""
    return vector("u", p + 1), vector("x", p + 1), vector("y", p)


def clipping_proof(statement: Statement, steps: Steps) -> None:
    """Differentiate the factor in the norm, for vectors of symbolic size."""
    part, p = statement.part, sp.Symbol("p", integer=True, positive=True)
    n, c, d = part.n, part.c, part.d
    e, along, square = sp.symbols("e s q", real=True)
    norm = sp.sqrt(n**2 + 2 * e * n * along + e**2 * square)  # |n y + e x| with s = <y, x>, |y| = 1
    steps.identity("slope of the norm", norm.diff(e).subs(e, 0), along)
    u, x, y = (sp.MatrixSymbol(name, p, 1) for name in "uxy")
    alone, radial = sp.symbols("a b", real=True)  # <u, x> and <u, y>
    factor = c / (norm + d)
    exact = (factor * (e * alone + n * radial)).diff(e).subs(e, 0)
    claimed = c / (n + d) * alone + part.sign * part.radial * c * n * radial * along / (n + d) ** part.power
    clipped = steps.identity("slope of the clipped gradient", claimed, exact)
    steps.identity("paired", sp.Trace(u.T * (e * x + n * y)), e * sp.Trace(u.T * x) + n * sp.Trace(u.T * y))

    def paired(p: int):
        u, x, y = clipping_arguments(p)
        unit = on_the_sphere(y)
        return clipped.at({alone: u.dot(x), radial: u.dot(unit), along: unit.dot(x)})

    steps.conclude(statement, paired)


CLIPPING = clipping()
CLIPPING_MUTANTS = {
    "a constant factor": clipping(radial=0),
    "the radial part added": clipping(sign=1),
    "the norm once": clipping(power=1),
}


@pytest.mark.equation("adam-derivative")
def prove_clipping(settle):
    """Show the derivative of clipping by the norm."""
    settle(CLIPPING, clipping_proof, CLIPPING_MUTANTS)


def ghost(*, power: int = 1, both: bool = False, transposed: bool = False) -> Statement:
    """State Ghost's product under an entrywise preconditioner, and its factors where P has rank one."""

    def claim(width: int) -> tuple[Equal, Equal]:
        a, b, g, h, scale = ghost_arguments(width)
        used = scale.applyfunc(lambda entry: entry**power)
        used = used.T if transposed else used
        product = (g.multiply_elementwise(h).T * used * a.multiply_elementwise(b))[0]
        built = sp.Add(*(scale[i, k] * g[i] * a[k] * h[i] * b[k] for i in range(width) for k in range(width)))
        r, c = vector("r", width), vector("c", width)
        outer = r * c.T
        alone = (g.multiply_elementwise(h).T * outer * a.multiply_elementwise(b))[0]
        beta = g.dot(h.multiply_elementwise(r))
        alpha = a.dot(b if both else b.multiply_elementwise(c))
        return Equal(product, built), Equal(alpha * beta, alone)

    return Statement(
        slug="preconditioned-ghost",
        scope=GHOST_SCOPE,
        claim=claim,
        depths=(1, 2),
        arguments=ghost_arguments,
        parts={"power": power, "both": both, "transposed": transposed},
    )


def ghost_arguments(width: int) -> tuple:
    """Name both samples' inputs and output gradients, and the preconditioner."""
    scale = sp.Matrix(width, width, sp.symbols(f"P_:{width * width}", real=True))
    return *(vector(name, width) for name in "abgh"), scale


def ghost_proof(statement: Statement, steps: Steps) -> None:
    """Add one more entry, and one more row or column of a table of rank one."""
    part = statement.part
    so_far, scale, g, h, a, b, r, c, alpha, beta = sp.symbols("s P g h a b r c alpha beta", real=True)
    one = (g * h) * scale**part.power * (a * b)
    steps.identity("one more entry", so_far + one, so_far + scale * (g * a) * (h * b))
    column = alpha + a * b * (1 if part.both else c)
    steps.identity("one more column of rank one", column * beta, alpha * beta + beta * c * a * b)
    steps.identity("one more row of rank one", alpha * (beta + g * r * h), alpha * beta + alpha * g * r * h)
    steps.base(statement, (1, 2))


GHOST = ghost()
GHOST_MUTANTS = {
    "applied twice": ghost(power=2),
    "rows for columns": ghost(transposed=True),
    "the feedback alone scaled, as printed": ghost(both=True),
}


@pytest.mark.equation("preconditioned-ghost")
def prove_preconditioned_ghost(settle):
    """Show Ghost's form under an entrywise preconditioner."""
    settle(GHOST, ghost_proof, GHOST_MUTANTS)


def readouts(*, inputs: bool = True, times: int = 1, mixed: bool = False) -> Statement:
    """State the slope of Adam's direction on virtual readouts whose second moments are products r c^T."""
    width = 2

    def names(depth: int) -> tuple:
        layers = [
            (vector(f"a{k}_", width), vector(f"b{k}_", width), vector(f"c{k}_", width, positive=True))
            for k in range(depth)
        ]
        return layers, vector("g", width), vector("h", width), vector("r", width, positive=True)

    def claim(depth: int) -> Equal:
        layers, g, h, r = names(depth)  # r and c are the square roots of the second moments
        slope = total(
            g[i] * a[k] * (h[i] * b[k] / (r[i] * c[k]))
            for a, b, c in layers
            for i in range(2)
            for k in range(2)
        )
        beta = total(g[i] * h[i] / r[i] ** times for i in range(2))
        alphas = (a[k] * b[k] / (c[k] if inputs else 1) for a, b, c in layers for k in range(2))
        return Equal(total(alphas) * (beta + g[0] * h[1] if mixed else beta), slope)

    return Statement(
        slug="adam-readouts",
        scope="one and two layers and the step to one more, any widths; Adam without momentum",
        claim=claim,
        depths=(1, 2),
        parts={"inputs": inputs, "times": times, "mixed": mixed},
    )


def readouts_proof(statement: Statement, steps: Steps) -> None:
    """Add one entry of an input, of whatever layer, and one output."""
    part = statement.part
    alpha, beta, a, b, g, h, other = sp.symbols("alpha beta a b g h w", real=True)
    r, c = sp.symbols("r c", positive=True)
    scale = c if part.inputs else 1
    more = alpha + a * b / scale
    steps.identity("one more input", more * beta, alpha * beta + beta * a * b / c)
    one = g * h / r**part.times + (g * other if part.mixed else 0)
    steps.identity("one more output", alpha * (beta + one), alpha * beta + alpha * g * h / r)
    steps.base(statement, (1, 2))


READOUTS = readouts()
READOUTS_MUTANTS = {
    "the outputs alone scaled": readouts(inputs=False),
    "outputs scaled twice, as printed": readouts(times=2),
    "outputs that mix": readouts(mixed=True),
}


@pytest.mark.equation("adam-readouts")
def prove_adam_readouts(settle):
    """Show that factors on both sides are Adam's direction on the virtual readouts."""
    settle(READOUTS, readouts_proof, READOUTS_MUTANTS)


def running_mean(*, newest: int = 0, started: int = 1) -> Statement:
    """State the running mean unrolled, and that its weights add up to one."""
    keep = sp.Symbol("gamma", real=True)

    def claim(batches: int) -> tuple[Equal, Equal]:
        start, means = moment_arguments(batches)
        value = start
        for mean in means:
            value = keep * value + (1 - keep) * mean
        weights = [(1 - keep) * keep ** (batches - 1 - i + newest) for i in range(batches)]
        unrolled = started * keep**batches * start
        unrolled += sp.Add(*(weight * mean for weight, mean in zip(weights, means, strict=True)))
        return Equal(value, unrolled), Equal(keep**batches + sp.Add(*weights), sp.S.One)

    return Statement(
        slug="second-moment",
        scope="any number of batches, any decay",
        claim=claim,
        depths=(1, 2, 4),
        arguments=lambda batches: (keep, *moment_arguments(batches)),
        parts={"newest": newest, "started": started, "gamma": keep},
    )


def moment_arguments(batches: int) -> tuple:
    """Name one entry's start and its batch means."""
    return sp.Symbol("D", nonnegative=True), list(sp.symbols(f"q_:{batches}", nonnegative=True))


def running_mean_proof(statement: Statement, steps: Steps) -> None:
    """Take one more batch: all earlier weights shrink by the decay, and the sum stays one."""
    part = statement.part
    keep, start, so_far, newest = part.gamma, *sp.symbols("D S q", real=True)
    power = sp.Symbol("P", real=True)  # keep to the number of batches so far
    value = power * start + so_far
    unrolled = part.started * keep * power * start + keep * so_far + (1 - keep) * keep**part.newest * newest
    more = steps.identity("one more batch", keep * value + (1 - keep) * newest, unrolled)
    steps.identity("the sum of weights", keep * 1 + (1 - keep) * keep**part.newest, sp.S.One)

    def unrolled_once_more(batches: int) -> list:
        first, means = moment_arguments(batches)
        earlier = total((1 - keep) * keep ** (batches - 2 - i) * means[i] for i in range(batches - 1))
        at = {start: first, power: keep ** (batches - 1), so_far: earlier, newest: means[-1]}
        return [more.at(at), None]

    steps.conclude(statement, unrolled_once_more)
    steps.base(statement, (1, 2), relations=(1,))


MOMENT = running_mean()
MOMENT_MUTANTS = {
    "every weight one power lower": running_mean(newest=1),
    "the start forgotten": running_mean(started=0),
}


@pytest.mark.equation("second-moment")
def prove_second_moment(settle):
    """Show that the running mean is well posed: a weighted mean of all it has seen."""
    settle(MOMENT, running_mean_proof, MOMENT_MUTANTS)
