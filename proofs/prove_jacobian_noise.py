r"""Variance of a similarity under independent Jacobian noise: the formula, its bound, the printed shape.

The formula. Let ``u + x`` and ``w + y`` be the two gradients at layer l, x and y centred and
independent. ``beta - E beta = u'y + x'w + x'y``; any two of the three are uncorrelated, and
their variances are ``u'S_y u``, ``w'S_x w`` and ``tr S_x S_y``. One more independent direction of
x, ``r X`` with ``r = +-1``, adds ``(X'w)^2 + X'S_y X`` on both sides; every covariance is a sum of
such directions, and the formula sees covariances alone.

The bound. Write G for ``|g|^2``, ``m = |E h|^2`` and T for the trace of h's covariance at one
layer. A layer below, with ``|B|_2^2 <= r`` and ``|E D'D|_2 <= s`` (D centred and independent of h),
``m' <= r m`` and ``T' <= s (m + T) + r T``. With ``R = prod r``, ``V = prod (r + s)`` and
``E = V - R``, ``m <= R G`` and ``T <= E G`` carry over, and at layer l
``m_z T_j + m_j T_z + T_z T_j <= (2 R E + E^2) G_z G_j = (V^2 - R^2) G_z G_j``.

The printed shape, with fixed gradients and ``kappa = 2 R``, has the terms of first order in s.
"""

import itertools

import sympy as sp

from proofs._harness import STEP, AtMost, Equal, Statement, Steps, settled
from proofs._rewrites import becomes, each, plus, put, times
from proofs._symbols import (
    covariance,
    exchange,
    layers,
    monomials,
    numbers,
    one_replaced,
    product,
    product_of_sums,
    signs,
    total,
    vector,
)


def formula_arguments(depth: int) -> tuple:
    """Name both mean gradients, and the directions of the noise on each side."""
    return vector("u", 2), vector("w", 2), *layers("X Y", depth, 2)


def computed(u, w, Sx, Sy):
    """Write the variance by the covariances of the noise."""
    return sp.Trace(u.T * Sy * u) + sp.Trace(w.T * Sx * w) + sp.Trace(Sx * Sy)


def covariances(depth: int) -> list[sp.Matrix]:
    """Give both sides' covariances."""
    return [sum((v * v.T for v in side), sp.zeros(2, 2)) for side in formula_arguments(depth)[2:]]


def variance_of(values: list) -> sp.Expr:
    """Give the variance of equally likely values."""
    return covariance(values, values, [sp.Rational(1, len(values))] * len(values))


def formula(depth: int) -> Equal:
    """State the variance for noise along ``depth`` random directions on each side, in the plane."""
    u, w, X, Y = formula_arguments(depth)
    values = []
    for left, right in itertools.product(signs(depth), repeat=2):
        x = sum((s * v for s, v in zip(left, X, strict=True)), sp.zeros(2, 1))
        y = sum((s * v for s, v in zip(right, Y, strict=True)), sp.zeros(2, 1))
        values.append((u + x).dot(w + y))
    return Equal(variance_of(values), computed(u, w, *covariances(depth)).doit())


def noise_of_both(depth: int) -> sp.Expr:
    """Give the noise of both sides together."""
    Sx, Sy = covariances(depth)
    return (Sx * Sy).trace()


FORMULA = Statement(
    "jacobian-noise-variance",
    f"any widths; {STEP}; any laws with second moments; z and j independent",
    formula,
    depths=(1, 2),
    arguments=formula_arguments,
)
FORMULA_MUTANTS = {
    "without the noise of both": plus(lambda depth: -noise_of_both(depth)),
    "the noise of both halved": plus(lambda depth: -noise_of_both(depth) / 2),
    "means exchanged": put(exchange(vector("u", 2), vector("w", 2))),
    "one side's noise left out": each("w", 0),
}


@settled("jacobian-noise-variance", FORMULA, FORMULA_MUTANTS)
def prove_jacobian_noise_variance() -> None:
    """Take one direction on each side; add one more."""


def bound_arguments(depth: int) -> tuple:
    """Name the mean parts and the rests, and both gradients."""
    return *numbers("b d", depth), *sp.symbols("g h", real=True)


def attained(depth: int, form=lambda R, E: E**2 + 2 * R * E) -> sp.Expr:
    """Write the bound by the product of the means' squares and what is beyond it."""
    means, rests, g, h = bound_arguments(depth)
    squares, energies = ([x**2 for x in side] for side in (means, rests))
    R = product(squares)
    return form(R, product_of_sums(squares, energies) - R) * g**2 * h**2


def bound(depth: int) -> Equal:
    """State that the bound is the variance for layers of one unit with noise of either sign."""
    means, rests, g, h = bound_arguments(depth)
    values = []
    for both in itertools.product(signs(depth), repeat=2):
        sides = ([s * d for s, d in zip(side, rests, strict=True)] for side in both)
        values.append(g * h * product(product_of_sums(means, side) for side in sides))
    return Equal(variance_of(values), attained(depth))


BOUND = Statement(
    "jacobian-noise-bound",
    "any depth, any widths, any laws with second moments; equality tried for one unit",
    bound,
    depths=(1, 2),
    arguments=bound_arguments,
)
BOUND_MUTANTS = {
    "the mean parts left out": becomes(lambda depth: attained(depth, lambda R, E: E**2)),
    "first order in the excess": becomes(lambda depth: attained(depth, lambda R, E: 2 * R * E)),
    "twice the mean parts": becomes(lambda depth: attained(depth, lambda R, E: (R + E) ** 2 - 2 * R**2)),
    "not squared": becomes(lambda depth: attained(depth, lambda R, E: E)),
}


@settled("jacobian-noise-bound", BOUND, BOUND_MUTANTS)
def prove_jacobian_noise_bound() -> None:
    """Carry the bounds on mean and spread down a layer; combine both sides at layer l."""


def shape_arguments(depth: int) -> tuple:
    """Name the bounds of the mean parts and of the noise."""
    return numbers("rho sigma", depth, nonnegative=True)


def shape(depth: int) -> tuple:
    """State that the printed sum, with kappa = 2 R, is the first order of V^2 - R^2, and below it."""
    squares, noise = ([x**2 for x in side] for side in shape_arguments(depth))
    R = product(squares)
    printed = 2 * R * total(one_replaced(squares, noise))
    e = sp.Symbol("e", nonnegative=True)
    exact = product_of_sums(squares, [e * y for y in noise]) ** 2 - R**2
    return AtMost(printed, exact.subs(e, 1)), Equal(sp.diff(exact, e).subs(e, 0), printed)


SHAPE = Statement(
    "app-var-beta",
    "any depth; fixed gradients, layers of one unit, first order in the noise energies",
    shape,
    depths=(1, 2, 3),
    arguments=shape_arguments,
)
SHAPE_MUTANTS = {
    "kappa = R": times(sp.Rational(1, 2), only=1),
    "kappa = 4 R": times(2, only=1),
    "from layer l + 2": put({sp.Symbol("sigma0", nonnegative=True): sp.S.Zero}, only=1),
    "kappa = 2": times(lambda depth: 1 / product([x**2 for x in shape_arguments(depth)[0]]), only=1),
}


@settled("app-var-beta", SHAPE, SHAPE_MUTANTS)
def prove_app_var_beta(statement: Statement, steps: Steps) -> None:
    """Grow V to first order, and what it has beyond, layer by layer; square it."""
    R, S, H, r, s = sp.symbols("R S H r s", nonnegative=True)
    e = sp.Symbol("e", nonnegative=True)
    grown = R * r + e * (S * r + R * s) + e**2 * S * s
    steps.identity("first order of a layer more", (R + e * S) * (r + e * s), grown)
    beyond = (R + S + H) * (r + s) - R * r - (S * r + R * s)
    steps.nonnegative("beyond it", beyond, monomials(beyond))
    exact = (R + e * S + e**2 * H) ** 2 - R**2
    square = steps.identity("first order of the square", sp.diff(exact, e).subs(e, 0), 2 * R * S)
    slack = exact.subs(e, 1) - 2 * R * S
    never = steps.nonnegative("never more", slack, monomials(slack))

    @steps.conclude(statement)
    def all_layers(depth: int) -> list:
        rho, sigma = ([x**2 for x in side] for side in statement.arguments(depth))
        whole, one = product_of_sums(rho, sigma), total(one_replaced(rho, sigma))
        values = {R: product(rho), S: one, H: sp.expand(whole - product(rho) - one)}
        return [lemma.at(values) for lemma in (never, square)]
