r"""The one-step Shapley value against the inner product and the midpoint score.

Let samples arrive in a uniformly random order. Sample j's marginal is the integral over t in [0, 1] of
``eta <g_j, grad L(theta - eta D)>`` with ``D = sum_(i before j) g_i + t g_j``.

The order. With n samples, ``s (n - 1 - s)!... / n!`` weighs a set of s samples before j; summed over sets
with one given sample in them the weights give 1/2, with two given samples 1/3, for every n. So the
indicators of two samples have variance 1/4 and covariance 1/12, and t has mean 1/2 and variance 1/12.

Quadratics. A marginal is ``eta <g, grad L(theta)> - eta^2 <g, H D>``, linear in D, and ``E D = G / 2``:
exact, for matrices of symbolic size.

Any step. The same with F, the loss after the step as a function of the gradient it is given, in place of L;
an affine step (momentum, weight decay) of a quadratic loss is such an F.

First order. ``|grad L(theta - eta D) - grad L(theta)| <= lam eta |D|`` and ``E |D| <= sum |g_i| / 2``.

Midpoint. Expand about ``theta - eta G / 2``: the linear term has mean zero and the rest is at most
``mu eta^2 |D - G/2|^2 / 2`` (Taylor's inequality for a Lipschitz Hessian), where
``E |D - G/2|^2 = sum_(i != j) |g_i|^2 / 6 + |G - g_j|^2 / 12 + |g_j|^2 / 12`` from the variances above. For
a cubic in one parameter the rest is exactly that, so that the bound is attained.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps
from proofs._symbols import total, vector

SCOPE = "any number of samples and parameters, any quadratic validation loss"
STEP_SCOPE = (
    "any number of samples and parameters, any step after which the loss is quadratic in the gradient"
)
FIRST_SCOPE = (
    "any number of samples and parameters, any loss with a Lipschitz gradient; numbers on quadratics"
)
ERROR_SCOPE = "any number of samples and parameters, any loss with a Lipschitz Hessian"
rate = sp.Symbol("eta", positive=True)
summation = functools.cache(sp.summation)  # a statement and its mutants add up the same
HALF, QUARTER, EIGHTH, TWELFTH = (sp.Rational(1, k) for k in (2, 4, 8, 12))


def gradients(samples: int, p: int) -> list[sp.Matrix]:
    """Name the samples' gradients."""
    return [vector(f"g{i}", p) for i in range(samples)]


def shapley(loss, moves: list[sp.Matrix]) -> sp.Expr:
    """Average the first sample's marginal decrease over all orders."""
    value = sp.S.Zero
    orders = list(itertools.permutations(range(len(moves))))
    for order in orders:
        before = sum((moves[i] for i in order[: order.index(0)]), sp.zeros(moves[0].rows, 1))
        value += loss(-rate * before) - loss(-rate * (before + moves[0]))
    return value / len(orders)


def quadratic(displacement: sp.Matrix, p: int) -> sp.Expr:
    """Expand a quadratic loss about the parameters."""
    return vector("v", p).dot(displacement) + (displacement.T * _curvature(p) * displacement)[0] / 2


def _curvature(p: int) -> sp.Matrix:
    return sp.Matrix(p, p, lambda i, j: sp.Symbol(f"h_{min(i, j)}{max(i, j)}", real=True))


def midpoint(*, share: sp.Rational = HALF, scale: int = 1, whole: bool = True) -> Statement:
    """State that the first sample's value is its product with the gradient half a step ahead."""
    p = 2

    def claim(samples: int) -> Equal:
        moves = gradients(samples, p)
        value = shapley(lambda at: quadratic(at, p), moves)
        joined = sum(moves if whole else moves[1:], sp.zeros(p, 1))
        ahead = vector("v", p) + _curvature(p) * (-rate * share * joined)
        return Equal(scale * rate * moves[0].dot(ahead), value)

    return Statement(
        slug="midpoint",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda samples: (gradients(samples, p), vector("v", p), _curvature(p), rate),
        parts={"share": share, "scale": scale, "whole": whole},
    )


def midpoint_proof(statement: Statement, steps: Steps) -> None:
    """Average over orders for any number of samples, then the marginal for matrices of any size."""
    part, (half_curvature, hessian, vectors, loss) = statement.part, half_before(steps)
    v, g, before, rest, _ = vectors

    def slope(ahead: sp.MatrixExpr) -> sp.Expr:
        return rate * sp.Trace(g.T * (v - rate * hessian * ahead))

    marginal = loss(-rate * before) - loss(-rate * (before + g))
    steps.identity("marginal", marginal, slope(before + g / 2))
    # With half the others before on average: E before = rest / 2.
    joined = rest + g if part.whole else rest
    mean = steps.identity("the mean", part.scale * slope(part.share * joined), slope(rest / 2 + g / 2))

    def of_the_samples(samples: int):
        (own, *others), gradient, curvature, _ = statement.arguments(samples)
        before = sum(others, sp.zeros(*own.shape))
        return mean.at({g: own, rest: before, v: gradient, half_curvature: curvature / 2})

    steps.conclude(statement, of_the_samples, depths=statement.depths)


def half_before(steps: Steps) -> tuple[sp.MatrixExpr, sp.MatrixExpr, list[sp.MatrixSymbol], Callable]:
    """Show that half of the other samples come before one on average; name what any quadratic loss needs.

    Its curvature is a sum with its own transpose, so that it is any symmetric matrix of any size.
    """
    n, s = sp.symbols("n s", integer=True, positive=True)
    arrivals(steps)
    steps.identity("one given sample before", summation(s / (n * (n - 1)), (s, 1, n - 1)), HALF)
    p = sp.Symbol("p", integer=True, positive=True)
    half_curvature = sp.MatrixSymbol("B", p, p)
    hessian = half_curvature + half_curvature.T
    vectors = [sp.MatrixSymbol(name, p, 1) for name in ("v", "g", "d", "r", "a")]

    def loss(at: sp.MatrixExpr) -> sp.Expr:
        return sp.Trace(vectors[0].T * at) + sp.Trace(at.T * hessian * at) / 2

    return half_curvature, hessian, vectors, loss


def arrivals(steps: Steps) -> None:
    """Reduce the weights of sets with one and with two given samples in them."""
    n, s = sp.symbols("n s", integer=True, positive=True)
    weight = sp.factorial(s) * sp.factorial(n - 1 - s) / sp.factorial(n)
    one = sp.binomial(n - 2, s - 1) * weight
    two = sp.binomial(n - 3, s - 2) * weight
    steps.identity("sets with one given sample", sp.combsimp(one), s / (n * (n - 1)))
    steps.identity("sets with two given samples", sp.combsimp(two), s * (s - 1) / (n * (n - 1) * (n - 2)))


MIDPOINT = midpoint()
MIDPOINT_MUTANTS = {
    "at the start of the step": midpoint(share=sp.S.Zero),
    "at its end": midpoint(share=sp.S.One),
    "without the sample's own part": midpoint(whole=False),
    "twice": midpoint(scale=2),
}


@pytest.mark.equation("midpoint")
def prove_midpoint(settle):
    """Show that the one-step Shapley value of a quadratic is the midpoint score."""
    settle(MIDPOINT, midpoint_proof, MIDPOINT_MUTANTS)


def step_midpoint(*, share: sp.Rational = HALF, sign: int = -1, whole: bool = True) -> Statement:
    """State the same of a loss that is quadratic in the gradient an optimizer is given, whatever its step."""
    p = 2

    def claim(samples: int) -> Equal:
        moves = gradients(samples, p)
        value = shapley(lambda at: quadratic(-at / rate, p), moves)  # F of what has come, not of the step
        joined = sum(moves if whole else moves[1:], sp.zeros(p, 1))
        return Equal(sign * moves[0].dot(vector("v", p) + _curvature(p) * (share * joined)), value)

    return Statement(
        slug="step-midpoint",
        scope=STEP_SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda samples: (gradients(samples, p), vector("v", p), _curvature(p)),
        parts={"share": share, "sign": sign, "whole": whole},
    )


def step_midpoint_proof(statement: Statement, steps: Steps) -> None:
    """Average over orders; then that an affine step of a quadratic loss is such an F, for any matrices."""
    part, (half_curvature, hessian, vectors, loss) = statement.part, half_before(steps)
    v, g, before, rest, start = vectors

    def slope(ahead: sp.MatrixExpr) -> sp.Expr:
        return sp.Trace(g.T * v) + sp.Trace(g.T * hessian * ahead)

    steps.identity("marginal", loss(before) - loss(before + g), -slope(before + g / 2))
    joined = rest + g if part.whole else rest
    mean = steps.identity("the mean", part.sign * slope(part.share * joined), -slope(rest / 2 + g / 2))

    def of_the_samples(samples: int):
        (own, *others), gradient, curvature = statement.arguments(samples)
        joined_others = sum(others, sp.zeros(*own.shape))
        return mean.at({g: own, rest: joined_others, v: gradient, half_curvature: curvature / 2})

    steps.conclude(statement, of_the_samples, depths=statement.depths)
    scale = sp.MatrixSymbol("M", *hessian.shape)  # an affine step, as momentum and weight decay make it
    moved = [start - scale * at for at in (before, before + g)]
    pulled = sp.Trace(g.T * scale.T * v) + sp.Trace(g.T * scale.T * hessian * (moved[0] + moved[1])) / 2
    steps.identity("an affine step", loss(moved[0]) - loss(moved[1]), pulled)


STEP_MIDPOINT = step_midpoint()
STEP_MIDPOINT_MUTANTS = {
    "at the start of the step": step_midpoint(share=sp.S.Zero),
    "at its end": step_midpoint(share=sp.S.One),
    "without the sample's own part": step_midpoint(whole=False),
    "the other sign": step_midpoint(sign=1),
}


@pytest.mark.equation("step-midpoint")
def prove_step_midpoint(settle):
    """Show that half of the gradient is the right place for any step that keeps the loss quadratic."""
    settle(STEP_MIDPOINT, step_midpoint_proof, STEP_MIDPOINT_MUTANTS)


def first_order(*, factor: sp.Rational = HALF, lipschitz: bool = True, whole: bool = True) -> Statement:
    """State the bound on the value's distance from the inner product, per unit rate.

    Norms are sizes ``a_i >= 0`` with signs; the curvature is ``lam (1 - k^2) / (1 + k^2)``, within the
    smoothness, and both inequalities are stated.
    """
    lam, k = sp.Symbol("lambda", positive=True), sp.Symbol("k", real=True)
    curvature = lam * ((1 - k**2) / (1 + k**2) if lipschitz else 1 + k**2)

    def claim(samples: int) -> tuple[AtMost, ...]:
        sizes = first_order_sizes(samples)
        relations = []
        for signs in itertools.product((1, -1), repeat=samples - 1):
            moves = [sp.Matrix([x * sign]) for x, sign in zip(sizes, (1, *signs), strict=True)]
            value = shapley(lambda at: curvature * at[0] ** 2 / 2, moves) / rate
            bound = lam * rate * factor * sizes[0] * sum(sizes if whole else sizes[1:])
            relations += [AtMost(value, bound), AtMost(-value, bound)]
        return tuple(relations)

    return Statement(
        slug="shapley-first-order",
        scope=FIRST_SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda samples: (list(first_order_sizes(samples)), lam, rate),
        parts={"factor": factor, "lam": lam, "k": k, "lipschitz": lipschitz, "whole": whole},
    )


def first_order_sizes(samples: int) -> tuple:
    """Name the gradients' norms."""
    return sp.symbols(f"a_:{samples}", nonnegative=True)


def first_order_proof(statement: Statement, steps: Steps) -> None:
    """Bound the expected length of D, then the marginal's integrand, each by its certificate."""
    part = statement.part
    arrivals(steps)
    n, s = sp.symbols("n s", integer=True, positive=True)
    t = sp.Symbol("t")
    steps.identity("a sample comes before", summation(s / (n * (n - 1)), (s, 1, n - 1)), HALF)
    steps.identity("its own part", sp.integrate(t, (t, 0, 1)), HALF)
    own, others = sp.symbols("a o", nonnegative=True)  # |g_j| and the others' norms together
    expected = others / 2 + own / 2
    bound = part.lam * rate * part.factor * own * (others + (own if part.whole else 0))
    steps.identity("the bound", part.lam * rate * own * expected, bound)
    u = (1 - part.k**2) / (1 + part.k**2) if part.lipschitz else 1 + part.k**2
    scale = part.lam * rate * own * others / 2  # of the samples whose steps have one sign
    fair = 2 * scale / (1 + part.k**2)
    along = steps.nonnegative("within the smoothness", scale * (1 + u), [fair])
    against = steps.nonnegative("within the smoothness, opposed", scale * (1 - u), [fair * part.k**2])

    def all_signs(samples: int) -> list:
        sizes, found = first_order_sizes(samples), []
        for signs in itertools.product((1, -1), repeat=samples - 1):
            pairs = list(zip(sizes, (1, *signs), strict=True))
            same, other = (total(x for x, sign in pairs if sign == chosen) for chosen in (1, -1))
            for ends in ((same, other), (other, same)):
                lemmas = zip((along, against), ends, strict=True)
                found.append(total(lemma.at({own: sizes[0], others: end}) for lemma, end in lemmas))
        return found

    steps.conclude(statement, all_signs, depths=statement.depths)


FIRST = first_order()
FIRST_MUTANTS = {
    "half of it": first_order(factor=QUARTER),
    "no Lipschitz constant": first_order(lipschitz=False),
    "the others alone": first_order(whole=False),
}


@pytest.mark.equation("shapley-first-order")
def prove_shapley_first_order(settle):
    """Show how far the inner product can be from the value."""
    settle(FIRST, first_order_proof, FIRST_MUTANTS)


def error(
    *,
    covariance: sp.Rational = TWELFTH,
    simple: sp.Rational = EIGHTH,
    lipschitz: bool = True,
) -> Statement:
    """State the midpoint score's error on a cubic, its bound, and the simple bound above it."""
    mu, k = sp.Symbol("mu", positive=True), sp.Symbol("k", real=True)
    third = mu * ((1 - k**2) / (1 + k**2) if lipschitz else 1 + k**2)

    def spread(moves: list[sp.Expr]) -> sp.Expr:
        own, *rest = moves
        squares = sum((x**2 for x in rest), sp.S.Zero)
        return (QUARTER - covariance) * squares + covariance * sum(rest) ** 2 + own**2 / 12

    def claim(samples: int) -> tuple[AtMost, ...]:
        sizes = first_order_sizes(samples)
        relations = []
        for signs in itertools.product((1, -1), repeat=samples - 1):
            moves = [x * sign for x, sign in zip(sizes, (1, *signs), strict=True)]
            value = shapley(lambda at: third * at[0] ** 3 / 6, [sp.Matrix([x]) for x in moves]) / rate
            missed = value - sizes[0] * third * (rate * sum(moves) / 2) ** 2 / 2
            bound = mu * rate**2 / 2 * sizes[0] * spread(moves)
            coarse = mu * rate**2 * simple * sizes[0] * sum(sizes) ** 2
            relations += [AtMost(missed, bound), AtMost(-missed, bound), AtMost(bound, coarse)]
        return tuple(relations)

    return Statement(
        slug="midpoint-error",
        scope=ERROR_SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=lambda samples: (list(first_order_sizes(samples)), mu, rate),
        parts={
            "covariance": covariance,
            "simple": simple,
            "mu": mu,
            "k": k,
            "lipschitz": lipschitz,
            "spread": spread,
        },
    )


def error_proof(statement: Statement, steps: Steps) -> None:
    """Find the moments of the order, then those of ``D - G/2``, then certify both bounds."""
    part = statement.part
    arrivals(steps)
    n, s = sp.symbols("n s", integer=True, positive=True)
    both = summation(s * (s - 1) / (n * (n - 1) * (n - 2)), (s, 1, n - 1))
    steps.identity("covariance of two samples before", both - QUARTER, part.covariance)
    time = sp.Symbol("t")
    steps.identity("variance of t", sp.integrate((time - HALF) ** 2, (time, 0, 1)), TWELFTH)
    squares, square = sp.symbols("Q S", real=True)  # of the others: squares added up, and the sum squared
    pairs = squares * QUARTER + part.covariance * (square - squares)
    claimed = (QUARTER - part.covariance) * squares + part.covariance * square
    steps.identity("the others' spread", pairs, claimed)
    u = (1 - part.k**2) / (1 + part.k**2) if part.lipschitz else 1 + part.k**2
    fair = 2 * part.mu / (1 + part.k**2)
    lemmas = (
        steps.nonnegative("within the Lipschitz constant", part.mu * (1 - u), [fair * part.k**2]),
        steps.nonnegative("within it, opposed", part.mu * (1 + u), [fair]),
    )
    coarse = _simple_bound(part.mu, part.simple, steps)

    def all_signs(samples: int) -> list:
        sizes, found = first_order_sizes(samples), []
        for signs in itertools.product((1, -1), repeat=samples - 1):
            moves = [x * sign for x, sign in zip(sizes, (1, *signs), strict=True)]
            half = rate**2 / 2 * sizes[0] * part.spread(moves)
            found += [*(lemma * half for lemma in lemmas), coarse(sizes[0], sizes[1:], moves[1:])]
        return found

    steps.conclude(statement, all_signs, depths=statement.depths)


def _simple_bound(mu: sp.Symbol, simple: sp.Rational, steps: Steps) -> Callable[..., Any]:
    """Compare with the norms alone: the others' squares, and their sum's, are at most ``T^2``."""
    norms, one_more, own, below, shorter = sp.symbols("T x g a b", nonnegative=True)
    grown = (norms + one_more) ** 2 - (norms**2 - below + one_more**2)
    steps.nonnegative("squares, one more sample", grown, [below, 2 * norms * one_more])
    spread = (norms**2 - below) / 6 + (norms**2 - shorter) / 12 + own**2 / 12
    scale = mu * rate**2 * own
    slack = scale * (simple * (norms + own) ** 2 - spread / 2)
    terms = [below / 12, shorter / 24, norms * own / 4, own**2 / 12]
    lemma = steps.nonnegative("the simple bound", slack, [scale * term for term in terms])

    def of(first: sp.Expr, sizes: Sequence[sp.Expr], moves: Sequence[sp.Expr]) -> Any:
        whole = total(sizes)
        squares = sp.expand(whole**2 - total(x**2 for x in sizes))
        sums = sp.expand(whole**2 - total(moves) ** 2)
        return lemma.at({norms: whole, own: first, below: squares, shorter: sums})

    return of


ERROR = error()
ERROR_MUTANTS = {
    "samples taken for independent": error(covariance=sp.S.Zero),
    "a smaller constant": error(simple=sp.Rational(1, 32)),
    "no Lipschitz constant": error(lipschitz=False),
}


@pytest.mark.equation("midpoint-error")
def prove_midpoint_error(settle):
    """Show how far the midpoint score can be from the value."""
    settle(ERROR, error_proof, ERROR_MUTANTS)
