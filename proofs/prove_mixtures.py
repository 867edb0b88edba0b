"""Mixture weights of sources: the derivative in a share, what errors do to contrasts, and how far to move."""

from collections.abc import Sequence

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, settled, width
from proofs._relations import under
from proofs._rewrites import becomes, plus, put, times
from proofs._symbols import dot, matrix, numbers, total, vector

rate, w, other = sp.symbols("eta w v", positive=True)


def names(n: int) -> tuple:
    """Name a source's gradients, the other sources' mean, the validation gradient and the scaling."""
    d = width(2)
    half = matrix("D", d, d)
    return matrix("g", n, d), vector("h", d), vector("p", d), half + half.T


def share(n: int) -> Equal:
    """State the derivative of the next validation loss in a source's share, for n samples of that source."""
    rows, rest, gradient, scaling = names(n)
    mean = (sp.ones(1, n) * rows).T / n
    step = -rate * scaling * (w * mean + other * rest)
    return Equal(gradient.dot(step.diff(w)), -rate * total(rows * scaling * gradient) / n)


def expected(coefficients: Sequence[sp.Expr], variances: Sequence[sp.Expr]) -> sp.Expr:
    """Expect the square of a linear form of independent errors with mean 0."""
    return dot(coefficients, coefficients, variances)


def variances_of(count: int) -> list:
    """Name the variances of the means."""
    return numbers("v", count, positive=True)[0]


def contrast(count: int) -> Equal:
    """State the variance of one mean's difference from the mean over K sources."""
    variances, share = variances_of(count), sp.Rational(1, count)
    printed = variances[0] * (1 - sp.Rational(2, count)) + total(variances) / count**2
    return Equal(expected([int(k == 0) - share for k in range(count)], variances), printed)


t, v = sp.symbols("t v", positive=True)
factor = sp.Symbol("x", real=True)
best = t / (t + v)


def squared_error(x: sp.Expr) -> sp.Expr:
    """Give the mean squared error of a factor."""
    return (1 - x) ** 2 * t + x**2 * v


def shrinkage(depth: int) -> tuple:
    """State that t / (t + v) has the smallest mean squared error of all factors."""
    least = squared_error(best)
    return AtMost(least, squared_error(factor)), Equal(least, t * v / (t + v))


def q_of(weights: Sequence[sp.Expr], power: int = 1) -> sp.Expr:
    """Expect the squares of what a weighted mean leaves, with a power of the precisions."""
    (precisions,) = numbers("p", len(weights), positive=True)
    rests = ([int(i == k) - w / total(weights) for i, w in enumerate(weights)] for k in range(len(weights)))
    variances = [1 / p for p in precisions]
    return total(p**power * expected(rest, variances) for p, rest in zip(precisions, rests, strict=True))


def cochran(count: int) -> Equal:
    """State the expectation of Cochran's Q for sources of one true mean."""
    return Equal(q_of(sp.symbols(f"p:{count}", positive=True)), count - 1)


a, h, e = sp.symbols("a h e", positive=True)


def bound(root: sp.Expr) -> sp.Expr:
    """Give Hedge's bound by the root of its step."""
    return a**2 / root**2 + root**2 * h**2


floor = sp.Symbol("f", real=True)


def mixture(updates: int) -> tuple:
    """Name the floor, the prior up to a factor, and the factor of each source in each update."""
    count = width(2)
    (prior,) = numbers("p", count, positive=True)
    return floor, prior, sp.Matrix(updates, count, lambda t, k: sp.Symbol(f"u{t}_{k}", positive=True))


def bounded(source: Sequence[int]) -> AtMost:
    """State the bound for a sequence of sources, against the product of the mixture's own factors."""
    _, prior, factors = mixture(len(source))
    shares = [one / total(prior) for one in prior]
    weights, whole, along = shares, sp.S.One, shares[source[0]]
    for t, k in enumerate(source):
        mixed = dot(weights, factors[t, :])
        whole, along = sp.cancel(whole * mixed), along * factors[t, k]
        weights = [
            (1 - floor) * w * u / mixed + floor * p
            for w, u, p in zip(weights, factors[t, :], shares, strict=True)
        ]
        if t:
            along *= 1 - floor * (1 - shares[k]) if k == source[t - 1] else floor * shares[k]
    return AtMost(along, whole)


def regret(updates: int) -> tuple:
    """State the bound for one source, and for a change to another at the last update."""
    return bounded([0] * updates), bounded([0] * (updates - 1) + [1])


def proportion(updates: int) -> sp.Expr:
    """Give the first source's share of the prior."""
    prior = mixture(updates)[1]
    return prior[0] / total(prior)


SHARE = Statement(
    "share-derivative",
    "any number of samples, any number of parameters; the chain rule is cited",
    share,
    depths=(1, 2, 3),
)
SHARE_MUTANTS = {
    "sign": times(-1),
    "sum of the scores": times(lambda n: n),
    "without the preconditioner": becomes(lambda n: -rate * total(names(n)[0] * names(n)[2]) / n),
}
CONTRAST = Statement(
    "contrast-variance",
    "any number of sources, any laws with a variance",
    contrast,
    depths=(1, 2, 3),
    arguments=variances_of,
)
CONTRAST_MUTANTS = {
    "once": plus(lambda count: variances_of(count)[0] / count),
    "thrice": plus(lambda count: -variances_of(count)[0] / count),
    "power": plus(lambda count: total(variances_of(count)) * sp.Rational(count - 1, count**2)),
}
SHRINKAGE = Statement(
    "contrast-shrinkage",
    "any factor, any signal and error variance",
    shrinkage,
    arguments=lambda depth: (t, v, factor),
)
SHRINKAGE_MUTANTS = {
    "signal": becomes(squared_error(2 * best), of="lhs"),
    "power": put({(1 - factor) ** 2: (1 - factor) ** 4}, only=0),
    "least": becomes(t * v, only=1),
}
COCHRAN = Statement("cochran-q", "any number of sources, any laws with a variance", cochran, depths=(2, 3))
COCHRAN_MUTANTS = {
    "freedom": plus(1),
    "plain mean": becomes(lambda count: q_of([sp.S.One] * count), of="lhs"),
    "power": becomes(lambda count: q_of(sp.symbols(f"p:{count}", positive=True), 2), of="lhs"),
}
# Hedge's best step; l is log K, and all are squares: l = a^2, H = h^2, eta = e^2.
STEP = Statement(
    "hedge-step",
    "any number of sources, any horizon",
    lambda depth: (AtMost(2 * a * h, bound(e)), Equal(bound(sp.sqrt(a / h)), 2 * a * h)),
    arguments=lambda depth: (a, h, e),
)
STEP_MUTANTS = {
    "factor": times(sp.Rational(3, 2), only=0, of="lhs"),
    "smaller": times(sp.Rational(1, 2), only=1),
    "inverse": becomes(bound(sp.sqrt(h / a)), only=1, of="lhs"),
}
REGRET = Statement(
    "mixture-regret",
    "two sources or three, factors of any size; one source, and a change to another at the last update",
    regret,
    given=lambda updates: under(r"$0 \le f \le 1$", (AtMost(0, floor), AtMost(floor, 1))),
    depths=(1, 2),
    arguments=mixture,
)
REGRET_MUTANTS = {
    "update": times(lambda updates: 1 / (1 - floor * (1 - proportion(updates))), only=0, of="lhs"),
    "start": times(lambda updates: 1 / proportion(updates), only=0, of="lhs"),
    "change": times(lambda updates: 1 / floor if updates > 1 else 1, only=1, of="lhs"),
}


@settled("share-derivative", SHARE, SHARE_MUTANTS)
def prove_share_derivative() -> None:
    """Compare one entry of the gradient at a time: the step is linear in the share, the scaling symmetric."""


@settled("contrast-variance", CONTRAST, CONTRAST_MUTANTS)
def prove_contrast_variance() -> None:
    """Expand the square: the source's own variance, twice its covariance with the mean, the mean's."""


@settled("contrast-shrinkage", SHRINKAGE, SHRINKAGE_MUTANTS)
def prove_contrast_shrinkage() -> None:
    """Complete the square in the factor."""


@settled("cochran-q", COCHRAN, COCHRAN_MUTANTS)
def prove_cochran_q() -> None:
    """Each source gives p (1/p) = 1; the weighted mean takes back total / total = 1."""


@settled("hedge-step", STEP, STEP_MUTANTS)
def prove_hedge_step() -> None:
    """Take the difference of the two terms' roots, squared."""


@settled("mixture-regret", REGRET, REGRET_MUTANTS)
def prove_mixture_regret() -> None:
    """Bound each new weight by its own part and by the floor's, update by update."""
