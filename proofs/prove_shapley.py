r"""The one-step Shapley value against the inner product and the midpoint score.

Let samples arrive in a uniformly random order. Sample j's marginal is the integral over t in [0, 1] of
``eta <g_j, grad L(theta - eta D)>`` with ``D = sum_(i before j) g_i + t g_j``.

The order. With n samples, ``s (n - 1 - s)!... / n!`` weighs a set of s samples before j; summed over sets
with one given sample in them the weights give 1/2, for every n, and t has mean 1/2.

Quadratics. A marginal is ``eta <g, grad L(theta)> - eta^2 <g, H D>``, linear in D, and ``E D = G / 2``:
exact, for matrices of symbolic size.

Any step. The same with F, the loss after the step as a function of the gradient it is given, in place of L;
an affine step (momentum, weight decay) of a quadratic loss is such an F.

First order. ``|grad L(theta - eta D) - grad L(theta)| <= lam eta |D|`` and ``E |D| <= sum |g_i| / 2``.
"""

import functools
import itertools
from collections.abc import Callable, Iterator

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, settled, within
from proofs._rewrites import becomes, plus, times
from proofs._symbols import layers, signs, symmetric, vector

SCOPE = "any number of samples and parameters, any quadratic validation loss"
STEP_SCOPE = (
    "any number of samples and parameters, any step after which the loss is quadratic in the gradient"
)
rate = sp.Symbol("eta", positive=True)
summation = functools.cache(sp.summation)  # a statement and its mutants add up the same
HALF = sp.Rational(1, 2)


def gradients(samples: int) -> list[sp.Matrix]:
    """Name the samples' gradients."""
    return layers("g", samples, 2)[0]


def shapley(loss: Callable, moves: list, step: sp.Expr = rate) -> sp.Expr:
    """Average the first sample's marginal decrease over all orders."""
    value = sp.S.Zero
    orders = list(itertools.permutations(range(len(moves))))
    for order in orders:
        before = sum((moves[i] for i in order[: order.index(0)]), 0 * moves[0])
        value += loss(-step * before) - loss(-step * (before + moves[0]))
    return value / len(orders)


def quadratic(displacement: sp.Matrix) -> sp.Expr:
    """Expand a quadratic loss about the parameters."""
    return vector("v", 2).dot(displacement) + (displacement.T * symmetric("h", 2) * displacement)[0] / 2


def score(samples: int, step: sp.Expr, share: sp.Expr = HALF, start: int = 0) -> sp.Expr:
    """Multiply the first sample's gradient with the validation loss's, a share of the step ahead."""
    moves = gradients(samples)
    joined = sum(moves[start:], sp.zeros(2, 1))
    return step * moves[0].dot(vector("v", 2) + symmetric("h", 2) * (-step * share * joined))


def midpoint(slug: str, scope: str, step: sp.Expr) -> Statement:
    """State that the first sample's value is its product with the gradient half a step ahead.

    A step of -1 stands for any: the loss is then quadratic in the gradient that an optimizer is given.
    """

    def claim(samples: int) -> Equal:
        return Equal(score(samples, step), shapley(quadratic, gradients(samples), step))

    def arguments(samples: int) -> tuple:
        return gradients(samples), vector("v", 2), symmetric("h", 2), *step.free_symbols

    return Statement(slug, scope, claim, depths=(1, 2, 3), arguments=arguments, parts={"step": step})


def other_points(step: sp.Expr) -> dict:
    """List what takes the gradient elsewhere."""
    return {
        "at the start of the step": becomes(lambda samples: score(samples, step, sp.S.Zero), of="lhs"),
        "at its end": becomes(lambda samples: score(samples, step, sp.S.One), of="lhs"),
        "without the sample's own part": becomes(lambda samples: score(samples, step, start=1), of="lhs"),
    }


MIDPOINT = midpoint("midpoint", SCOPE, rate)
MIDPOINT_MUTANTS = other_points(rate) | {"twice": times(2, of="lhs")}
STEP_MIDPOINT = midpoint("step-midpoint", STEP_SCOPE, sp.S.NegativeOne)
STEP_MIDPOINT_MUTANTS = other_points(sp.S.NegativeOne) | {"the other sign": times(-1, of="lhs")}


@settled("midpoint", MIDPOINT, MIDPOINT_MUTANTS)
@settled("step-midpoint", STEP_MIDPOINT, STEP_MIDPOINT_MUTANTS)
def prove_midpoint() -> None:
    """Average over orders for any number of samples, then the marginal for matrices of any size."""


lam, mu, k = *sp.symbols("lambda mu", positive=True), sp.Symbol("k", real=True)
INSIDE, OUTSIDE = (1 - k**2) / (1 + k**2), 1 + k**2


def first_order(samples: int) -> tuple[AtMost, ...]:
    """State the bound on the value's distance from the inner product, per unit rate.

    Norms are sizes ``a_i >= 0`` with signs; the curvature is ``lam (1 - k^2) / (1 + k^2)``, within the
    smoothness, and both inequalities are stated.
    """
    sizes, relations = first_order_sizes(samples), []
    bound = lam * rate * HALF * sizes[0] * sum(sizes)
    for moves in directions(samples):
        relations += within(bound, shapley(lambda at: lam * INSIDE * at**2 / 2, moves) / rate)
    return tuple(relations)


def directions(samples: int) -> Iterator[list[sp.Expr]]:
    """Give gradients in one parameter: the first sample's is positive, the others' have either sign."""
    for others in signs(samples - 1):
        yield [x * sign for x, sign in zip(first_order_sizes(samples), (1, *others), strict=True)]


def first_order_sizes(samples: int) -> tuple:
    """Name the gradients' norms."""
    return sp.symbols(f"a_:{samples}", nonnegative=True)


FIRST = Statement(
    "shapley-first-order",
    "any number of samples and parameters, any loss with a Lipschitz gradient; numbers on quadratics",
    first_order,
    depths=(1, 2, 3),
    arguments=lambda samples: (list(first_order_sizes(samples)), lam, rate),
)
FIRST_MUTANTS = {
    "half of it": times(HALF),
    "no Lipschitz constant": times(OUTSIDE / INSIDE, of="lhs"),
    "the others alone": plus(lambda samples: -lam * rate * HALF * first_order_sizes(samples)[0] ** 2),
}


@settled("shapley-first-order", FIRST, FIRST_MUTANTS)
def prove_shapley_first_order() -> None:
    """Bound the expected length of D, then the marginal's integrand, each by its certificate."""
