r"""Certificates beyond chains, and what they promise: residual blocks, LayerNorm, and the least regret.

Residual. The gradient of ``h + f(h)`` is ``g + b`` with ``|b| <= F |g|``, in norms and a cosine.

LayerNorm. With ``y = gain g`` and the normalised input x, of mean 0 and ``|x|^2 = q <= d``, the backward step
is ``(y - mean(y) - x <x, y> / d) / sigma``: the squared norm falls by ``d mean^2`` and by
``<x, y>^2 (2 d - q) / d^2``. The entries of y are at most the largest gain's share of those of g.

Regret. Where signs differ, ``|v| + |w| = |v - w| <= e``.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, Steps, under
from proofs._symbols import one_where, total, vector


def residual(*, skip: int = 1, squared: bool = False, cosine: bool = True) -> Statement:
    """State the factor of a residual block, squared."""
    n, m, F = sp.symbols("n m F", nonnegative=True)
    c = sp.Symbol("c", real=True)

    def claim(depth: int) -> AtMost:
        return AtMost(n**2 + 2 * c * n * m + m**2, ((skip + (F**2 if squared else F)) * n) ** 2)

    def given(depth: int) -> tuple[AtMost, ...]:
        angle = under(MEANING, (AtMost(c, 1), AtMost(-c, 1))) if cosine else ()
        bounded = "$F(x)$ bounds the norm of the backward step of the branch $f$ at $x$"
        return (*angle, *under(bounded, (AtMost(m, F * n),)))

    def sample(draw: random.Random, depth: int) -> dict:
        values = {x: sp.Rational(draw.randint(0, 6), 4) for x in (n, F)}
        values[m] = values[n] * values[F] * draw.choice((1, 1, sp.Rational(1, 2)))
        values[c] = draw.choice((1, 1, -1, 0)) if cosine else draw.choice((1, 3))
        return values

    parts = {"skip": skip, "squared": squared, "cosine": cosine, "symbols": (n, m, F, c)}
    return Statement(
        slug="block-factors", scope="any widths", claim=claim, given=given, sample=sample, parts=parts
    )


def residual_proof(statement: Statement, steps: Steps) -> None:
    """Write the slacks of the norm and of the cosine into the square."""
    part = statement.part
    n, m, u = sp.symbols("n m u", nonnegative=True)
    v = sp.Symbol("v", **{"nonnegative" if part.cosine else "real": True})
    # F n = m + u and c = 1 - v
    reach = m + u if not part.squared else (m + u) ** 2 / (n + 1)
    square = n**2 + 2 * (1 - v) * n * m + m**2
    bound = (part.skip * n + reach) ** 2
    shown = steps.nonnegative("the square", bound - square, [2 * n * u, 2 * m * u, u**2, 2 * n * m * v])
    size, other, F, cosine = part.symbols
    values = {n: size, m: other, u: F * size - other, v: 1 - cosine}
    steps.conclude(statement, lambda depth: shown.at(values), depths=(1,))


def layer_norm(*, short: bool = True, sign: int = 1, gain: bool = True) -> Statement:
    """State that a LayerNorm's backward step stretches by no more than its largest gain, sigma apart."""

    def names(width: int) -> tuple:
        return (
            vector("g", width),
            vector("k", width),
            vector("x", width - 1),
            sp.Symbol("G", nonnegative=True),
        )

    def parts_of(width: int) -> tuple:
        g, k, free, G = names(width)
        x = sp.Matrix([*free, -total(free)])
        return g, k, x, G, sp.Matrix([a * b for a, b in zip(g, k, strict=True)])

    def claim(width: int) -> AtMost:
        g, _, x, G, y = parts_of(width)
        mean, along = total(y) / width, sign * x.dot(y) / sp.Integer(width)
        image = [a - mean - b * along for a, b in zip(y, x, strict=True)]
        return AtMost(total(a**2 for a in image), (G**2 if gain else 1) * g.dot(g))

    def given(width: int) -> tuple[AtMost, ...]:
        _, k, x, G, _ = parts_of(width)
        largest = under(MEANING, (AtMost(sign * a, G) for a in k for sign in (1, -1)))
        spread = r"$\sigma(x)^2$ is the variance of the entries of $x$ plus $\epsilon \ge 0$"
        return (*largest, *under(spread, (AtMost(x.dot(x), width),))) if short else largest

    def sample(draw: random.Random, width: int) -> dict:
        g, k, free, G = names(width)
        values = {symbol: sp.Rational(draw.randint(-3, 3), 2) for symbol in (*g, *k)}
        values |= {symbol: sp.Rational(draw.randint(-2, 2), 2) * (1 if short else 4) for symbol in free}
        return values | {G: max(abs(values[a]) for a in k)}

    return Statement(
        slug="block-factors",
        scope="any width; sigma divides both sides",
        claim=claim,
        given=given,
        depths=(2, 3),
        sample=sample,
        parts={"short": short, "sign": sign, "gain": gain, "names": parts_of},
    )


def layer_norm_proof(statement: Statement, steps: Steps) -> None:
    """Take what the two projections remove; then one entry of y against the largest gain."""
    part = statement.part
    d, (Y, m, p) = sp.Symbol("d", positive=True), sp.symbols("Y m p", real=True)
    u = sp.Symbol("u", **{"nonnegative" if part.short else "real": True})
    q = d - u
    along = part.sign * p / d
    # |y - m 1 - x a|^2 with <1, y> = d m, <1, x> = 0, <x, y> = p, |x|^2 = q
    square = Y - 2 * m * (d * m) - 2 * along * p + d * m**2 + along**2 * q
    removed = steps.nonnegative("both projections", Y - square, [d * m**2, p**2 / d, p**2 * u / d**2])
    g, (k, v) = sp.Symbol("g", real=True), sp.symbols("k v", nonnegative=True)
    largest = (k + v) if part.gain else sp.Integer(1)
    one = steps.nonnegative("one entry", (largest * g) ** 2 - (k * g) ** 2, [2 * k * v * g**2, v**2 * g**2])

    def added_up(width: int):
        entries, gains, x, G, y = part.names(width)
        values = {d: width, Y: y.dot(y), m: total(y) / width, p: x.dot(y), u: width - x.dot(x)}
        pairs = zip(entries, map(abs, gains), strict=True)
        return removed.at(values) + total(one.at({g: a, k: b, v: G - b}) for a, b in pairs)

    steps.conclude(statement, added_up)


def regret(*, half: bool = False, times: int = 1, shared: bool = True) -> Statement:
    """State one sample's part of the regret: its score where it is misjudged, else nothing."""
    v, w = sp.symbols("v w", real=True)
    e = sp.Symbol("e", nonnegative=True)

    def claim(depth: int) -> tuple[AtMost, ...]:
        excess = sp.Max(e - times * abs(w), 0) / (2 if half else 1)
        lost = sp.Max(v, 0) - sp.Piecewise((v, w > 0), (0, True))
        return (AtMost(lost, excess),)

    def given(depth: int) -> tuple[AtMost, ...]:
        within = (AtMost(v - w, e), AtMost(w - v, e)) if shared else (AtMost(v - w, e),)
        return under(r"$|v_j - \hat v_j| \le \epsilon_j$ for every $j$", within)

    def sample(draw: random.Random, depth: int) -> dict:
        values = {w: sp.Rational(draw.randint(-4, 4), 2), e: sp.Rational(draw.randint(0, 6), 2)}
        reach = draw.choice((1, -1, sp.Rational(1, 2), 0) if shared else (1, -1, -3))
        return values | {v: values[w] + reach * values[e]}

    return Statement(
        slug="certified-regret",
        scope="any number of samples; the regret is a sum over them",
        claim=claim,
        given=given,
        sample=sample,
        parts={"half": half, "times": times, "shared": shared, "symbols": (v, w, e)},
    )


def regret_proof(statement: Statement, steps: Steps) -> None:
    """Take a sample that is kept and hurts, and one that is dropped and helps; both attain the bound."""
    part = statement.part
    size, score, u = sp.symbols("s v u", nonnegative=True)
    slack = u if part.shared else sp.Symbol("u", real=True)
    e = size + score + slack  # the distance of two numbers of opposite signs is the sum of their sizes
    excess = (e - part.times * size) / (2 if part.half else 1)
    shown = steps.nonnegative("the excess less what is lost", excess - score, [slack])
    rest = sp.symbols("r", nonnegative=True)
    nothing = steps.nonnegative("a sample judged rightly loses nothing", rest, [rest])
    value, approximate, error = part.symbols
    misjudged = one_where(((value > 0) & (approximate <= 0)) | ((value < 0) & (approximate > 0)))
    room = (error - abs(value) - abs(approximate)) * misjudged
    lost = shown.at({size: abs(approximate), score: abs(value), u: room})
    kept = nothing.at({rest: sp.Max(error - abs(approximate), 0) * (1 - misjudged)})
    steps.conclude(statement, lambda depth: lost + kept, depths=(1,))


RESIDUAL = residual()
RESIDUAL_MUTANTS = {
    "without the skip connection": residual(skip=0),
    "the branch squared": residual(squared=True),
    "a cosine above one": residual(cosine=False),
}
LAYER_NORM = layer_norm()
LAYER_NORM_MUTANTS = {
    "an input that is not normalised": layer_norm(short=False),
    "the part along the input added": layer_norm(sign=-1),
    "without the gain": layer_norm(gain=False),
}
REGRET = regret()
REGRET_MUTANTS = {
    "half of it": regret(half=True),
    "scores twice": regret(times=2),
    "errors bounded on one side": regret(shared=False),
}


@pytest.mark.equation("block-factors")
def prove_block_factors(settle):
    settle(RESIDUAL, residual_proof, RESIDUAL_MUTANTS)
    settle(LAYER_NORM, layer_norm_proof, LAYER_NORM_MUTANTS)


@pytest.mark.equation("certified-regret")
def prove_certified_regret(settle):
    settle(REGRET, regret_proof, REGRET_MUTANTS)
