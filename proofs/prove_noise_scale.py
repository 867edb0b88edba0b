r"""The gradient noise scale from the norms of one batch's rows, and Fieller's interval.

Rows have one expectation and errors that are uncorrelated between rows; what errors of two coordinates of one
row have in common does not enter.

Of the interval it is cited that the mean of ``x - rho y`` over its standard error has Student's law where the
pairs are normal, with ``rho`` the ratio of the expectations (Fieller, "Some problems in interval estimation",
Journal of the Royal Statistical Society B 16, 1954). That the ratios it does not refute lie between, or
beyond, the two ends that are computed is proved. There ``r`` is the root of ``b^2 - a c``.
"""

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, times
from proofs._symbols import dot, matrix, numbers, total, vector


def names(n: int) -> tuple:
    """Name the expectation, the rows' errors and the coordinates' variances."""
    d = width(2)
    return vector("G", d), matrix("e", n, d), numbers("s", d)[0]


def expected(n: int, expression: sp.Expr) -> sp.Expr:
    """Expect a quadratic in the errors, which have mean 0 and are uncorrelated."""
    _, errors, variances = names(n)
    still = expression.subs(dict.fromkeys(errors, 0), simultaneous=True)
    places = [(j, k) for j in range(n) for k in range(len(variances))]
    return still + total(sp.diff(expression, errors[j, k], 2) / 2 * variances[k] for j, k in places)


def squares(n: int) -> tuple[sp.Expr, sp.Expr]:
    """Give the summed squares of the rows' gradients, and the square of their sum."""
    mean, errors, _ = names(n)
    rows = [sp.Matrix(mean).T + errors[j, :] for j in range(n)]
    return total(dot(row, row) for row in rows), dot(*[sum(rows, sp.zeros(1, len(mean)))] * 2)


def noise_of(n: int, freedom: int | None = None) -> sp.Expr:
    """Estimate the trace of the covariance."""
    q, square = squares(n)
    return (q - square / n) / (n - 1 if freedom is None else freedom)


def signal_of(n: int) -> sp.Expr:
    """Estimate the squared length of the expectation."""
    q, square = squares(n)
    return (square - q) / (n * (n - 1))


def unbiased(n: int) -> tuple[Equal, Equal]:
    """State that both estimates are unbiased."""
    mean, _, variances = names(n)
    return Equal(expected(n, noise_of(n)), total(variances)), Equal(
        expected(n, signal_of(n)), dot(mean, mean)
    )


NOISE = Statement(
    "gradient-noise", "any number of rows above one, any number of parameters", unbiased, depths=(2, 3)
)
NOISE_MUTANTS = {
    "as many degrees of freedom as rows": becomes(lambda n: expected(n, noise_of(n, n)), only=0, of="lhs"),
    "the squared mean gradient as the signal": becomes(
        lambda n: expected(n, squares(n)[1] / n**2), only=1, of="lhs"
    ),
    "the mean square as the noise": becomes(lambda n: expected(n, squares(n)[0] / n), only=0, of="lhs"),
    "pairs counted once": times(2, only=1, of="lhs"),
}


@settled("gradient-noise", NOISE, NOISE_MUTANTS)
def prove_gradient_noise() -> None:
    """Expect the squares of the rows and of their sum; each estimate solves for one of two unknowns."""


rho, k, a, b, r = sp.symbols("rho k a b r", real=True)


def pairs(n: int) -> tuple[list, list]:
    """Name the pairs, and their number."""
    x, y = numbers("x y", n)
    return list(x), list(y)


def rests(values: list) -> list:
    """Give the deviations from the mean."""
    return [value - total(values) / len(values) for value in values]


def distance(n: int) -> sp.Expr:
    """Give the squared mean of x - rho y, minus k = t^2 times its squared standard error."""
    x, y = pairs(n)
    left = [one - rho * other for one, other in zip(x, y, strict=True)]
    return (total(left) / n) ** 2 - k / (n * (n - 1)) * dot(rests(left), rests(left))


def coefficients(n: int) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Give what multiplies the square of the ratio, minus twice the ratio, and one."""
    x, y = pairs(n)
    return tuple(
        total(one) * total(other) / n**2 - k / (n * (n - 1)) * dot(rests(one), rests(other))
        for one, other in ((y, y), (x, y), (x, x))
    )


def factored(low: sp.Expr, high: sp.Expr) -> sp.Expr:
    """Write a quadratic by its roots."""
    return a * (rho - low) * (rho - high)


def interval(n: int) -> tuple[Equal, Equal]:
    """State which quadratic the ratios solve, and its roots; c = (b^2 - r^2) / a."""
    square, mixed, constant = coefficients(n)
    c = (b**2 - r**2) / a
    return (
        Equal(distance(n), square * rho**2 - 2 * mixed * rho + constant),
        Equal(a * rho**2 - 2 * b * rho + c, factored(c / (b + r), (b + r) / a)),
    )


FIELLER = Statement("fieller-interval", "any number of pairs above one", interval, depths=(2, 3))
FIELLER_MUTANTS = {
    "the mixed term once": becomes(
        lambda n: (lambda s, m, c: s * rho**2 - m * rho + c)(*coefficients(n)), only=0
    ),
    "x and y exchanged": becomes(
        lambda n: (lambda s, m, c: c * rho**2 - 2 * m * rho + s)(*coefficients(n)), only=0
    ),
    "the other root": becomes(lambda n: factored((b**2 - r**2) / a / (b - r), (b + r) / a), only=1),
    "the second end without its half": becomes(
        lambda n: factored((b**2 - r**2) / a / (b + r), (b + 2 * r) / a), only=1
    ),
}


@settled("fieller-interval", FIELLER, FIELLER_MUTANTS)
def prove_fieller_interval(statement: Statement, steps: Steps) -> None:
    """Expand the squares of one pair and of the means; then multiply the roots out."""
    n = sp.Symbol("n", positive=True)
    X, Y, P, Q, R = sp.symbols("X Y P Q R", real=True)  # sums of x and y; of the squared rests, and mixed
    u, v = sp.symbols("u v", real=True)
    steps.identity("one pair", (u - rho * v) ** 2, u**2 - 2 * rho * u * v + rho**2 * v**2)
    left = ((X - rho * Y) / n) ** 2 - k / (n * (n - 1)) * (P - 2 * rho * R + rho**2 * Q)
    scale = k / (n * (n - 1))
    right = (
        (Y**2 / n**2 - scale * Q) * rho**2 - 2 * (X * Y / n**2 - scale * R) * rho + X**2 / n**2 - scale * P
    )
    expanded = steps.identity("the squares", left, right)
    c = (b**2 - r**2) / a
    roots = steps.identity("the roots", a * rho**2 - 2 * b * rho + c, factored(c / (b + r), (b + r) / a))

    @steps.conclude(statement)
    def both(count: int) -> list:
        x, y = pairs(count)
        dx, dy = rests(x), rests(y)
        sums = {X: total(x), Y: total(y), P: dot(dx, dx), Q: dot(dy, dy), R: dot(dx, dy)}
        return [expanded.at({n: count} | sums), roots]
