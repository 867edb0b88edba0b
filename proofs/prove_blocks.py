r"""Certificates beyond chains, and what they promise: residual blocks, LayerNorm, and the least regret.

Residual. The gradient of ``h + f(h)`` is ``g + b`` with ``|b| <= F |g|``, in norms and a cosine.

LayerNorm. With ``y = gain g`` and the normalised input x, of mean 0 and ``|x|^2 = q <= d``, the backward step
is ``(y - mean(y) - x <x, y> / d) / sigma``: the squared norm falls by ``d mean^2`` and by
``<x, y>^2 (2 d - q) / d^2``. The entries of y are at most the largest gain's share of those of g.

Regret. Where signs differ, ``|v| + |w| = |v - w| <= e``.
"""

import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, settled, under, within
from proofs._rewrites import each, given, plus, times, without
from proofs._symbols import dot, one_where, total, vector

n, m, F = sp.symbols("n m F", nonnegative=True)
c, v, w = sp.symbols("c v w", real=True)
e = sp.Symbol("e", nonnegative=True)
SPREAD = r"$\sigma(x)^2$ is the variance of the entries of $x$ plus $\epsilon \ge 0$"


def residual(depth: int) -> AtMost:
    """State the factor of a residual block, squared."""
    return AtMost(n**2 + 2 * c * n * m + m**2, ((1 + F) * n) ** 2)


def bounded_branch(depth: int) -> tuple[AtMost, ...]:
    """State that c is a cosine, and F a bound."""
    words = "$F(x)$ bounds the norm of the backward step of the branch $f$ at $x$"
    return under(MEANING, within(1, c)) + under(words, (AtMost(m, F * n),))


def normalised(width: int) -> tuple:
    """Name a gradient, gains, an input of mean 0 and the largest gain; multiply gains and gradient."""
    g, k, free = vector("g", width), vector("k", width), vector("x", width - 1)
    x = sp.Matrix([*free, -total(free)])
    return g, k, x, sp.Symbol("G", nonnegative=True), g.multiply_elementwise(k)


def layer_norm(width: int) -> AtMost:
    """State that a LayerNorm's backward step stretches by no more than its largest gain, sigma apart."""
    g, _, x, G, y = normalised(width)
    mean, along = total(y) / width, x.dot(y) / sp.Integer(width)
    image = [a - mean - b * along for a, b in zip(y, x, strict=True)]
    return AtMost(dot(image, image), G**2 * g.dot(g))


def largest_gain(width: int) -> tuple[AtMost, ...]:
    """State that G is the largest gain, and that the input is normalised."""
    _, k, x, G, _ = normalised(width)
    return under(MEANING, within(G, *k)) + under(SPREAD, (AtMost(x.dot(x), width),))


def regret(depth: int) -> AtMost:
    """State one sample's part of the regret: its score where it is misjudged, else nothing."""
    return AtMost(sp.Max(v, 0) - sp.Piecewise((v, w > 0), (0, True)), sp.Max(e - abs(w), 0))


RESIDUAL = Statement("block-factors", "any widths", residual, given=bounded_branch)
RESIDUAL_MUTANTS = {
    "without the skip connection": each("F", lambda F: F - 1),
    "the branch squared": each("F", lambda F: F**2),
    "a cosine above one": without(MEANING),
}
LAYER_NORM = Statement(
    "block-factors",
    "any width; sigma divides both sides",
    layer_norm,
    given=largest_gain,
    depths=(2, 3),
)
LAYER_NORM_MUTANTS = {
    "an input that is not normalised": without(SPREAD),
    "the part along the input added": plus(
        lambda width: 4 * normalised(width)[2].dot(normalised(width)[4]) ** 2 / width, of="lhs"
    ),
    "without the gain": each("G", 1),
}
REGRET = Statement(
    "certified-regret",
    "any number of samples; the regret is a sum over them",
    regret,
    given=lambda depth: under(r"$|v_j - \hat v_j| \le \epsilon_j$ for every $j$", within(e, v - w)),
)
REGRET_MUTANTS = {
    "half of it": times(sp.Rational(1, 2)),
    "scores twice": each("w", lambda w: 2 * w),
    "errors bounded on one side": given(lambda r, depth: r if r.lhs == v - w else None),
}


@settled("block-factors", RESIDUAL, RESIDUAL_MUTANTS)
def prove_block_factors(statement: Statement, steps: Steps) -> None:
    """Write the slacks of the norm and of the cosine into the square."""
    u, v = sp.symbols("u v", nonnegative=True)
    # F n = m + u and c = 1 - v
    square = n**2 + 2 * (1 - v) * n * m + m**2
    bound = (n + m + u) ** 2
    shown = steps.nonnegative("the square", bound - square, [2 * n * u, 2 * m * u, u**2, 2 * n * m * v])
    steps.conclude(statement, lambda depth: shown.at({u: F * n - m, v: 1 - c}), depths=(1,))


@settled("block-factors", LAYER_NORM, LAYER_NORM_MUTANTS)
def prove_layer_norm(statement: Statement, steps: Steps) -> None:
    """Take what the two projections remove; then one entry of y against the largest gain."""
    d, (Y, m, p) = sp.Symbol("d", positive=True), sp.symbols("Y m p", real=True)
    g, (k, v, u) = sp.Symbol("g", real=True), sp.symbols("k v u", nonnegative=True)
    q, along = d - u, p / d
    # |y - m 1 - x a|^2 with <1, y> = d m, <1, x> = 0, <x, y> = p, |x|^2 = q
    square = Y - 2 * m * (d * m) - 2 * along * p + d * m**2 + along**2 * q
    removed = steps.nonnegative("both projections", Y - square, [d * m**2, p**2 / d, p**2 * u / d**2])
    one = steps.nonnegative("one entry", ((k + v) * g) ** 2 - (k * g) ** 2, [2 * k * v * g**2, v**2 * g**2])

    @steps.conclude(statement)
    def added_up(width: int):
        entries, gains, x, G, y = normalised(width)
        values = {d: width, Y: y.dot(y), m: total(y) / width, p: x.dot(y), u: width - x.dot(x)}
        pairs = zip(entries, map(abs, gains), strict=True)
        return removed.at(values) + total(one.at({g: a, k: b, v: G - b}) for a, b in pairs)


@settled("certified-regret", REGRET, REGRET_MUTANTS)
def prove_certified_regret(statement: Statement, steps: Steps) -> None:
    """Take a sample that is kept and hurts, and one that is dropped and helps; both attain the bound."""
    size, score, slack, rest = sp.symbols("s v u r", nonnegative=True)
    error = size + score + slack  # the distance of two numbers of opposite signs is the sum of their sizes
    shown = steps.nonnegative("the excess less what is lost", error - size - score, [slack])
    nothing = steps.nonnegative("a sample judged rightly loses nothing", rest, [rest])
    misjudged = one_where(((v > 0) & (w <= 0)) | ((v < 0) & (w > 0)))
    lost = shown.at({size: abs(w), score: abs(v), slack: (e - abs(v) - abs(w)) * misjudged})
    kept = nothing.at({rest: sp.Max(e - abs(w), 0) * (1 - misjudged)})
    steps.conclude(statement, lambda depth: lost + kept, depths=(1,))
