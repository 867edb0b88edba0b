r"""Scores with error bars: their variance from parts, and a false discovery rate.

The variance is unbiased for parts of any sizes.

Of the false discovery rate (Benjamini and Yekutieli, "The control of the false discovery rate in multiple
testing under dependency", Annals of Statistics 29, 2001, Theorem 1.3) everything is proved. There p_ik is the
probability that the p-value of one sample that does no harm lies between the limits i - 1 and i while k
samples are dropped.
"""

from dataclasses import replace

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, settled, under
from proofs._rewrites import becomes, given, times
from proofs._symbols import dot, numbers, total

s = sp.Symbol("s", positive=True)


def names(depth: int) -> tuple:
    """Name the parts' sizes and errors."""
    return *numbers("n", depth, positive=True), *numbers("e", depth)


def expected(depth: int, expression: sp.Expr) -> sp.Expr:
    """Expect an expression: errors are independent, that of a part of size n_i has mean 0, variance n_i s."""
    pairs = zip(*names(depth), strict=True)
    return total(sp.diff(expression, error, 2) / 2 * n * s for n, error in pairs)


def rests(depth: int) -> list:
    """Give the parts' deviations from their shares of the sum."""
    sizes, errors = names(depth)
    return [e - n / total(sizes) * total(errors) for n, e in zip(sizes, errors, strict=True)]


def spread(depth: int) -> tuple[Equal, ...]:
    """State that the variance from parts is unbiased, and deviations uncorrelated with the sum."""
    sizes, errors = names(depth)
    estimate = total(rest**2 / n for n, rest in zip(sizes, rests(depth), strict=True)) / (depth - 1)
    unrelated = (Equal(expected(depth, total(errors) * rest), 0) for rest in rests(depth))
    return (Equal(expected(depth, estimate), s), *unrelated)


def equal_share(depth: int) -> sp.Expr:
    """Correlate the sum with the first part's deviation from an equal share of it."""
    _, errors = names(depth)
    return expected(depth, total(errors) * (errors[0] - total(errors) / depth))


q = sp.Symbol("q", positive=True)
UNIFORM = r"the probability that $p_j \le x$ is at most $x$ for each of the $n_0$ samples that do no harm"


def chances_of(depth: int) -> dict:
    """Name the chances of p-values between two limits while so many samples are dropped."""
    pairs = [(i, k) for i in range(1, depth + 1) for k in range(i, depth + 1)]
    return {(i, k): sp.Symbol(f"p{i}_{k}", nonnegative=True) for i, k in pairs}


def limit(index: int, depth: int) -> sp.Expr:
    """Give the p-value that the sample may have to be among `index` that are dropped."""
    return q * sp.Integer(index) / (depth * sp.harmonic(depth))


def uniform(depth: int) -> tuple[AtMost, ...]:
    """State that a sample that does no harm has no p-value too small."""
    reached = (
        total(p for (i, _), p in chances_of(depth).items() if i <= most) for most in range(1, depth + 1)
    )
    return under(UNIFORM, (AtMost(x, limit(index, depth)) for index, x in enumerate(reached, 1)))


STATEMENT = Statement(
    "part-variance", "any number of parts, any sizes, any law with a variance", spread, depths=(2, 3)
)
MUTANTS = {
    "as many degrees of freedom as parts": times(
        lambda depth: sp.Rational(depth - 1, depth), only=0, of="lhs"
    ),
    "parts of different sizes weighed alike": becomes(
        lambda depth: expected(depth, dot(rests(depth), rests(depth))) / (depth - 1), only=0, of="lhs"
    ),
    "each part takes the same share of the sum": becomes(equal_share, only=1, of="lhs"),
}
# One sample that does no harm adds at most q / n to the false discovery rate.
DISCOVERIES = Statement(
    "false-discovery-rate",
    "any number of samples, any dependence",
    lambda depth: AtMost(total(p / k for (_, k), p in chances_of(depth).items()), q / depth),
    given=uniform,
    depths=(1, 2, 3),
)
DISCOVERIES_MUTANTS = {
    "without the harmonic number": given(lambda r, depth: replace(r, rhs=r.rhs * sp.harmonic(depth))),
    "half the rate": times(sp.Rational(1, 2)),
    "limits that grow as squares": given(lambda r, depth: replace(r, rhs=r.rhs**2 / limit(1, depth))),
}


@settled("part-variance", STATEMENT, MUTANTS)
def prove_part_variance() -> None:
    """Expand one part's square, add all parts up, and take the mean."""


@settled("false-discovery-rate", DISCOVERIES, DISCOVERIES_MUTANTS)
def prove_false_discovery_rate() -> None:
    """Count fewer drops than there are, sum by parts, and use that p-values are not too small."""
