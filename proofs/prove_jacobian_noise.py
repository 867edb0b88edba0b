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

from __future__ import annotations

import itertools

import pytest
import sympy as sp

from proofs._harness import STEP, AtMost, Equal, Statement, Steps
from proofs._symbols import mean, monomials, product, signs, total, vector


def formula(*, z=1, j=1, both=1, exchanged: bool = False) -> Statement:
    """State the variance for noise along ``depth`` random directions on each side, in the plane."""

    def arguments(depth: int) -> tuple:
        directions = [[vector(f"{name}{k}_", 2) for k in range(depth)] for name in "XY"]
        return vector("u", 2), vector("w", 2), *directions

    def computed(u, w, Sx, Sy):
        u, w = (w, u) if exchanged else (u, w)
        return z * sp.Trace(u.T * Sy * u) + j * sp.Trace(w.T * Sx * w) + both * sp.Trace(Sx * Sy)

    def claim(depth: int) -> Equal:
        u, w, X, Y = arguments(depth)
        values = []
        for left, right in itertools.product(signs(depth), repeat=2):
            x = sum((s * v for s, v in zip(left, X, strict=True)), sp.zeros(2, 1))
            y = sum((s * v for s, v in zip(right, Y, strict=True)), sp.zeros(2, 1))
            values.append((u + x).dot(w + y))
        weight = sp.Rational(1, len(values))
        square = mean([(value**2, weight) for value in values])
        variance = square - mean([(value, weight) for value in values]) ** 2
        Sx, Sy = (sum((v * v.T for v in side), sp.zeros(2, 2)) for side in (X, Y))
        return Equal(variance, computed(u, w, Sx, Sy).doit())

    return Statement(
        slug="jacobian-noise-variance",
        scope=f"any widths; {STEP}; any laws with second moments; z and j independent",
        claim=claim,
        depths=(1, 2),
        arguments=arguments,
        parts={"computed": computed},
    )


def formula_proof(statement: Statement, steps: Steps) -> None:
    """Take one direction on each side; add one more."""
    relation = statement.relations(1)[0]
    steps.identity("one direction each", relation.lhs, relation.rhs)
    size = sp.Symbol("d", integer=True, positive=True)
    u, w, x, y, X = (sp.MatrixSymbol(name, size, 1) for name in "uwxyX")
    Sx, Sy = (sp.MatrixSymbol(name, size, size) for name in ("P", "Q"))
    steps.identity("three terms", (u + x).T * (w + y) - u.T * w, u.T * y + x.T * w + x.T * y)
    computed = statement.part.computed
    more = computed(u, w, Sx + X * X.T, Sy) - computed(u, w, Sx, Sy)
    # The new direction's own variance: (X'w)^2, and the mean of (X'y)^2.
    steps.identity("one more direction", sp.Trace(w.T * X * X.T * w) + sp.Trace(X.T * Sy * X), more)


FORMULA = formula()
FORMULA_MUTANTS = {
    "without the noise of both": formula(both=0),
    "the noise of both halved": formula(both=sp.Rational(1, 2)),
    "means exchanged": formula(exchanged=True),
    "one side's noise left out": formula(j=0),
}


@pytest.mark.equation("jacobian-noise-variance")
def prove_jacobian_noise_variance(settle):
    """Show that the variance is u'S_j u + w'S_z w + tr S_z S_j."""
    settle(FORMULA, formula_proof, FORMULA_MUTANTS)


def bound(*, kept=lambda R, E: E**2 + 2 * R * E) -> Statement:
    """State that the bound is the variance for layers of one unit with noise of either sign."""

    def arguments(depth: int) -> tuple:
        names = [list(sp.symbols(f"{name}:{depth}", real=True)) for name in "bd"]
        return *names, *sp.symbols("g h", real=True)

    def claim(depth: int) -> Equal:
        means, rests, g, h = arguments(depth)
        values = []
        for left, right in itertools.product(signs(depth), repeat=2):
            sides = (
                product([b + s * d for b, d, s in zip(means, rests, side, strict=True)])
                for side in (left, right)
            )
            values.append(g * h * product(sides))
        weight = sp.Rational(1, len(values))
        square = mean([(value**2, weight) for value in values])
        variance = square - mean([(value, weight) for value in values]) ** 2
        R = product([b**2 for b in means])
        V = product([b**2 + d**2 for b, d in zip(means, rests, strict=True)])
        return Equal(variance, kept(R, V - R) * g**2 * h**2)

    return Statement(
        slug="jacobian-noise-bound",
        scope="any depth, any widths, any laws with second moments; equality tried for one unit",
        claim=claim,
        depths=(1, 2),
        arguments=arguments,
        parts={"kept": kept},
    )


def bound_proof(statement: Statement, steps: Steps) -> None:
    """Carry the bounds on mean and spread down a layer; combine both sides at layer l."""
    kept = statement.part.kept
    R, E, G, H, r, s = sp.symbols("R E G H r s", nonnegative=True)
    m, T, y, x = sp.symbols("m T y x", nonnegative=True)
    # R G = m + y and E G = T + x; E' = E (r + s) + R s, because V' - R' = (R + E)(r + s) - R r.
    steps.identity("excess of a layer more", (R + E) * (r + s) - R * r, E * (r + s) + R * s)
    slack = (T + x) * (r + s) + s * (m + y) - (s * (m + T) + r * T)
    steps.nonnegative("spread of a layer more", slack, monomials(slack))
    n, U, v, w = sp.symbols("n U v w", nonnegative=True)
    whole = (m + y) * (U + w) + (n + v) * (T + x) + (T + x) * (U + w)
    slack = whole - (m * U + n * T + T * U)
    steps.nonnegative("less mean and spread give no more", slack, monomials(slack))
    largest = (R * G) * (E * H) + (R * H) * (E * G) + (E * G) * (E * H)
    both = steps.identity("both sides at their largest", largest, kept(R, E) * G * H)

    def of_one_unit(depth: int):
        means, rests, g, h = statement.arguments(depth)
        least = product([b**2 for b in means])
        most = product([b**2 + d**2 for b, d in zip(means, rests, strict=True)])
        return both.at({R: least, E: sp.expand(most - least), G: g**2, H: h**2})

    steps.conclude(statement, of_one_unit)


BOUND = bound()
BOUND_MUTANTS = {
    "the mean parts left out": bound(kept=lambda R, E: E**2),
    "first order in the excess": bound(kept=lambda R, E: 2 * R * E),
    "twice the mean parts": bound(kept=lambda R, E: (R + E) ** 2 - 2 * R**2),
    "not squared": bound(kept=lambda R, E: E),
}


@pytest.mark.equation("jacobian-noise-bound")
def prove_jacobian_noise_bound(settle):
    """Show that the variance is at most (V^2 - R^2) |g_z|^2 |g_j|^2, with equality for one unit."""
    settle(BOUND, bound_proof, BOUND_MUTANTS)


def shape(*, kappa: int = 2, start: int = 0, order: int = 1) -> Statement:
    """State that the printed sum, with kappa = 2 R, is the first order of V^2 - R^2, and below it."""

    def arguments(depth: int) -> tuple:
        return tuple(list(sp.symbols(f"{name}:{depth}", nonnegative=True)) for name in ("rho", "sigma"))

    def claim(depth: int) -> tuple:
        rho, sigma = arguments(depth)
        R = product([x**2 for x in rho])
        places = range(start, depth)
        printed = (
            kappa
            * R**order
            * total(sigma[t] ** 2 * product([x**2 for k, x in enumerate(rho) if k != t]) for t in places)
        )
        e = sp.Symbol("e", nonnegative=True)
        exact = product([x**2 + e * y**2 for x, y in zip(rho, sigma, strict=True)]) ** 2 - R**2
        return AtMost(printed, exact.subs(e, 1)), Equal(sp.diff(exact, e).subs(e, 0), printed)

    return Statement(
        slug="app-var-beta",
        scope="any depth; fixed gradients, layers of one unit, first order in the noise energies",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"kappa": kappa, "start": start, "order": order},
    )


def shape_proof(statement: Statement, steps: Steps) -> None:
    """Grow V to first order, and what it has beyond, layer by layer; square it."""
    part = statement.part
    R, S, H, r, s = sp.symbols("R S H r s", nonnegative=True)
    e = sp.Symbol("e", nonnegative=True)
    first = s if part.start == 0 else sp.Integer(0)
    steps.identity("one layer", s, first)
    grown = R * r + e * (S * r + R * s) + e**2 * S * s
    steps.identity("first order of a layer more", (R + e * S) * (r + e * s), grown)
    beyond = (R + S + H) * (r + s) - R * r - (S * r + R * s)
    steps.nonnegative("beyond it", beyond, monomials(beyond))
    exact = (R + e * S + e**2 * H) ** 2 - R**2
    printed = part.kappa * R**part.order * S
    square = steps.identity("first order of the square", sp.diff(exact, e).subs(e, 0), printed)
    slack = exact.subs(e, 1) - printed
    never = steps.nonnegative("never more", slack, monomials(slack))

    def all_layers(depth: int) -> list:
        rho, sigma = ([x**2 for x in side] for side in statement.arguments(depth))
        whole = product([a + b for a, b in zip(rho, sigma, strict=True)])
        one = total(product([*rho[:t], sigma[t], *rho[t + 1 :]]) for t in range(depth))
        values = {R: product(rho), S: one, H: sp.expand(whole - product(rho) - one)}
        return [lemma.at(values) for lemma in (never, square)]

    steps.conclude(statement, all_layers)


SHAPE = shape()
SHAPE_MUTANTS = {
    "kappa = R": shape(kappa=1),
    "kappa = 4 R": shape(kappa=4),
    "from layer l + 2": shape(start=1),
    "kappa = 2": shape(order=0),
}


@pytest.mark.equation("app-var-beta")
def prove_app_var_beta(settle):
    """Show that the printed shape is the exact variance's first order, and so no upper bound."""
    settle(SHAPE, shape_proof, SHAPE_MUTANTS)
