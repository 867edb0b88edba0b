r"""With gains of one Ghost is LAI plus noise, and varies more where the noise does not oppose it.

``Var(A b + y) = A^2 Var b + Var y + 2 A Cov(b, y)``, over any law with finitely many outcomes; ``Var y``
is a sum of squares of differences of outcomes, each with the product of two chances.
"""

from dataclasses import replace

from proofs._harness import MEANING, AtMost, Equal, Statement, settled, under, width
from proofs._rewrites import becomes, given, plus
from proofs._symbols import combined, covariance, numbers, total

OUTCOMES = 3


def law(depth: int) -> tuple:
    """Name alphas, the signal's and each layer's noise's values, and the chances of the outcomes."""
    (alpha,), (shared,) = numbers("a", depth), numbers("b", width(OUTCOMES))
    rests = [numbers(f"e{layer}_", width(OUTCOMES))[0] for layer in range(depth)]
    (free,) = numbers("p", width(OUTCOMES) - 1, positive=True)
    return alpha, shared, rests, [*free, 1 - total(free)]


SIGNS = r"for the sign also $(\sum_l \alpha^{(l)}) \Cov(\beta^\star, Y) \ge 0$"


def moments(depth: int, gain: int = 1) -> tuple:
    """Give the difference of the variances, the noise's variance, and LAI's covariance with the noise."""
    alpha, shared, rests, chances = law(depth)
    noise = combined(alpha, rests)
    lai = [total(alpha) * b for b in shared]
    ghost = [gain * x + y for x, y in zip(lai, noise, strict=True)]
    varied = covariance(ghost, ghost, chances) - covariance(lai, lai, chances)
    return varied, covariance(noise, noise, chances), total(alpha) * covariance(shared, noise, chances)


def statement(depth: int) -> tuple[Equal, AtMost]:
    """State the difference of the variances, and its sign."""
    difference, noise, together = moments(depth)
    return Equal(difference, noise + 2 * together), AtMost(0, difference)


def not_opposed(depth: int) -> tuple[AtMost, ...]:
    """State that the noise does not oppose the signal, and that the last outcome has a chance."""
    together, rest = moments(depth)[2], law(depth)[3][-1]
    return under(SIGNS, (AtMost(0, together),)) + under(MEANING, (AtMost(0, rest, strict=True),))


STATEMENT = Statement(
    "unit-gain-variance",
    "any depth, any law with finitely many outcomes (three here), alphas numbers",
    statement,
    given=not_opposed,
    depths=(1, 2),
)
MUTANTS = {
    "gains of two": becomes(lambda depth: moments(depth, 2)[0], only=0, of="lhs"),
    "the covariance once": plus(lambda depth: -moments(depth)[2], only=0),
    "noise that opposes": given(lambda r, depth: replace(r, lhs=r.rhs, rhs=r.lhs) if r.of == SIGNS else r),
}


@settled("unit-gain-variance", STATEMENT, MUTANTS)
def prove_unit_gain_variance() -> None:
    """Expand the variance of the sum; the variance of the noise is a sum of squares."""
