r"""Ghost against LAI: which varies more, relative to its mean too.

Order. ``sd(S + a b) <= sd S + a sd b``: the square of the right side less the variance is
``2 a n``, where ``n = sd S sd b - Cov >= 0`` by Cauchy and Schwarz. Term by term, no layer's deviation
above the last one's.

Conditional mean. The laws tried have ``beta_l = c_l b + e_l`` with a centred sign in front of all
e, so that ``E[beta_l | b] = c_l b``. For any such law ``E Y = 0`` and ``Cov(b, Y) = 0`` by the law of
total covariance, which is all that the proofs use: ``Var Ghost = m^2 V + n``, ``E Ghost = m mu``,
with ``m = sum a c``, ``A = sum a``, and LAI's ``A^2 V`` and ``A mu``.
"""

import itertools
import operator
from collections.abc import Callable

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, settled, under
from proofs._rewrites import Rewrite, becomes, each, exchanged, signless, without
from proofs._symbols import covariance, dot, numbers, total

SPREADS = r"$\sd \beta^{(l)} \le \sd \beta^{(L)}$ for every layer"


def order_arguments(depth: int) -> tuple:
    """Name alphas and the layers' standard deviations."""
    return numbers("a d", depth, nonnegative=True)


def order(depth: int) -> tuple[AtMost, ...]:
    """State that the spreads bound Ghost's variance, and with ordered spreads LAI's bounds them."""
    alpha, spread = order_arguments(depth)
    variance = dot(alpha, alpha, spread, spread)
    for i, k in itertools.combinations(range(depth), 2):
        slack = sp.Symbol(f"n{i}{k}", nonnegative=True)
        variance += 2 * alpha[i] * alpha[k] * (spread[i] * spread[k] - slack)
    bound = dot(alpha, spread) ** 2
    return AtMost(variance, bound), AtMost(bound, total(alpha) ** 2 * spread[-1] ** 2)


def ordered(depth: int) -> tuple[AtMost, ...]:
    """State that no layer spreads more than the last one."""
    *below, last = order_arguments(depth)[1]
    return under(SPREADS, (AtMost(d, last) for d in below))


ORDER = Statement(
    "variance-order",
    "any depth, any covariances, alphas non-negative numbers, no spread above the last one's",
    order,
    given=ordered,
    depths=(1, 2, 3),
    arguments=order_arguments,
)
ORDER_MUTANTS = {
    "alphas of any sign": signless("a"),
    "spreads in any order": without(SPREADS),
    "covariances above Cauchy-Schwarz": each("n", lambda n: -n, only=0, of="lhs"),
}


@settled("variance-order", ORDER, ORDER_MUTANTS)
def prove_variance_order() -> None:
    """Add one layer to the sum, then raise its spread to the last one's."""


class Conditional:
    """Two values of the signal, and noise with a random sign beside it."""

    def __init__(self, depth: int, centred: bool = True) -> None:
        self.alpha, self.gains, rests, (b0, b1, p) = conditional(depth)
        self.shared = [b0, b0, b1, b1]
        self.weights = [p / 2, p / 2, (1 - p) / 2, (1 - p) / 2]
        self.whole, self.scale = total(self.alpha), dot(self.alpha, self.gains)
        self.noise = [s * dot(self.alpha, rests) for s in (1, -1 if centred else 0) * 2]
        self.ghost = [self.scale * b + y for b, y in zip(self.shared, self.noise, strict=True)]
        self.lai = [self.whole * b for b in self.shared]

    def mean(self, *values):
        """Return the mean of a product."""
        return dot(*values, self.weights)

    def variance(self, values):
        """Return a variance."""
        return covariance(values, values, self.weights)

    def moments(self) -> tuple:
        """Give LAI's and the signal's scales, and both variances."""
        return self.whole, self.scale, self.variance(self.shared), self.variance(self.noise)


def conditional(depth: int) -> tuple:
    """Name alphas, gains, the layers' noise, and the signal's two values with the first one's chance."""
    chance = sp.Symbol("p", positive=True)
    return *numbers("a c e", depth), (*sp.symbols("b0 b1", real=True), chance / (1 + chance))


CONDITIONAL = "any depth, any law with second moments and E[beta_l | g] = c_l beta*, alphas numbers"


def gap(A, m, V, n):
    """Give the difference by LAI's and the signal's scales, and both variances."""
    return n - (A**2 - m**2) * V


def criterion(depth: int) -> Equal:
    """State the difference of Ghost's and LAI's variances."""
    law = Conditional(depth)
    return Equal(law.variance(law.ghost) - law.variance(law.lai), gap(*law.moments()))


def with_gap(form: Callable[..., sp.Expr]) -> Rewrite:
    """Write the difference otherwise."""
    return becomes(lambda depth: form(*Conditional(depth).moments()))


CRITERION = Statement(
    "variance-criterion",
    f"{CONDITIONAL} (or c_l the regression gains)",
    criterion,
    depths=(1, 2),
    arguments=conditional,
)
CRITERION_MUTANTS = {
    "gain not squared": with_gap(lambda A, m, V, n: n - (A**2 - m) * V),
    "the other sign": with_gap(lambda A, m, V, n: n + (A**2 - m**2) * V),
    "without the noise": with_gap(lambda A, m, V, n: -(A**2 - m**2) * V),
}


@settled("variance-criterion", CRITERION, CRITERION_MUTANTS)
def prove_variance_criterion() -> None:
    """Subtract LAI's variance from Ghost's without the covariance of signal and noise."""


def compared(law: Conditional, power: int = 2) -> tuple:
    """Multiply each variance with the other's squared mean."""
    ghost = law.variance(law.ghost) * law.mean(law.lai) ** power
    return ghost, law.variance(law.lai) * law.mean(law.ghost) ** power


def relative(depth: int) -> tuple:
    """State the comparison relative to the squared means, multiplied out so that nothing divides by 0."""
    law = Conditional(depth)
    ghost, lai = compared(law)
    excess = law.variance(law.noise) * law.whole**2 * law.mean(law.shared) ** 2
    return Equal(ghost - lai, excess), AtMost(lai, ghost)


RELATIVE = Statement(
    "scale-free-variance", f"{CONDITIONAL}; both means not 0", relative, depths=(1, 2), arguments=conditional
)
RELATIVE_MUTANTS = {
    "noise with a mean": becomes(
        lambda depth: operator.sub(*compared(Conditional(depth, False))), only=0, of="lhs"
    ),
    "means not squared": becomes(
        lambda depth: operator.sub(*compared(Conditional(depth), 1)), only=0, of="lhs"
    ),
    "LAI varies more": exchanged(only=1),
}


@settled("scale-free-variance", RELATIVE, RELATIVE_MUTANTS)
def prove_scale_free_variance() -> None:
    """Subtract; what remains is the noise's part, a product of squares and a variance."""
