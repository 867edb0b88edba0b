r"""Ghost against LAI: which varies more, relative to its mean too, and about the conditional mean.

Order. ``sd(S + a b) <= sd S + a sd b``: the square of the right side less the variance is
``2 a n``, where ``n = sd S sd b - Cov >= 0`` by Cauchy and Schwarz. Term by term, no layer's deviation
above the last one's.

Conditional mean. The laws tried have ``beta_l = c_l b + e_l`` with a centred sign in front of all
e, so that ``E[beta_l | b] = c_l b``. For any such law ``E Y = 0`` and ``Cov(b, Y) = 0`` by the law of
total covariance, which is all that the proofs use: ``Var Ghost = m^2 V + n``, ``E Ghost = m mu``,
with ``m = sum a c``, ``A = sum a``, and LAI's ``A^2 V`` and ``A mu``.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, under
from proofs._symbols import covariance, mean, monomials, total


def order(*, sign: str = "nonnegative", ordered: bool = True, opposed: int = -1) -> Statement:
    """State that the spreads bound Ghost's variance, and with ordered spreads LAI's bounds them."""

    def arguments(depth: int) -> tuple:
        alpha = list(sp.symbols(f"a:{depth}", real=True, **{sign: True}))
        return alpha, list(sp.symbols(f"d:{depth}", nonnegative=True))

    def claim(depth: int) -> tuple[AtMost, ...]:
        alpha, spread = arguments(depth)
        rows = range(depth)
        pairs = [(i, k) for i in rows for k in rows if i < k]
        slack = {pair: sp.Symbol(f"n{pair[0]}{pair[1]}", nonnegative=True) for pair in pairs}
        variance = total(alpha[i] ** 2 * spread[i] ** 2 for i in rows) + 2 * total(
            alpha[i] * alpha[k] * (spread[i] * spread[k] + opposed * slack[i, k]) for i, k in pairs
        )
        bound = total(a * d for a, d in zip(alpha, spread, strict=True)) ** 2
        return AtMost(variance, bound), AtMost(bound, total(alpha) ** 2 * spread[-1] ** 2)

    def given(depth: int) -> tuple[AtMost, ...]:
        _, spread = arguments(depth)
        below = (AtMost(d, spread[-1]) for d in spread[:-1])
        return under(r"$\sd \beta^{(l)} \le \sd \beta^{(L)}$ for every layer", below) if ordered else ()

    def sample(draw, depth: int) -> dict:
        _, spread = arguments(depth)
        values = [sp.Rational(draw.randint(0, 12), 4) for _ in spread]
        return dict(zip(spread, sorted(values) if ordered else values, strict=True))

    return Statement(
        slug="variance-order",
        scope="any depth, any covariances, alphas non-negative numbers, no spread above the last one's",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=arguments,
        sample=sample,
        parts={"sign": sign, "ordered": ordered, "opposed": opposed},
    )


def order_proof(statement: Statement, steps: Steps) -> None:
    """Add one layer to the sum, then raise its spread to the last one's."""
    part = statement.part
    a = sp.Symbol("a", real=True, **{part.sign: True})
    t, x, d, n, y = sp.symbols("t x d n y", nonnegative=True)
    # t: the deviation so far, x below its bound; d: the layer's; n: what Cauchy-Schwarz leaves.
    exact = t**2 + a**2 * d**2 + 2 * a * (t * d + part.opposed * n)
    slack = (t + x + a * d) ** 2 - exact
    more = steps.nonnegative("one more layer", slack, monomials(slack))
    last = d + y if part.ordered else y
    raised = a * last - a * d
    up = steps.nonnegative("spread of the last", raised, monomials(raised))

    def all_layers(depth: int) -> list:
        alpha, spread = statement.arguments(depth)
        weighed = [b * s for b, s in zip(alpha, spread, strict=True)]
        growing = sp.Integer(0)
        for k in range(depth):
            left = total(alpha[i] * sp.Symbol(f"n{i}{k}", nonnegative=True) for i in range(k))
            growing += more.at({t: total(weighed[:k]), x: 0, a: alpha[k], d: spread[k], n: left})
        sums = total(weighed) + total(alpha) * spread[-1]
        pairs = zip(alpha, spread, strict=True)
        return [growing, total(up.at({a: b, d: s, y: spread[-1] - s}) for b, s in pairs) * sums]

    steps.conclude(statement, all_layers)


ORDER = order()
ORDER_MUTANTS = {
    "alphas of any sign": order(sign="finite"),
    "spreads in any order": order(ordered=False),
    "covariances above Cauchy-Schwarz": order(opposed=1),
}


@pytest.mark.equation("variance-order")
def prove_variance_order(settle):
    """Show that LAI varies at least as much as Ghost where no layer spreads more than the last."""
    settle(ORDER, order_proof, ORDER_MUTANTS)


class Conditional:
    """Two values of the signal, and noise with a random sign beside it."""

    def __init__(self, depth: int, centred: bool = True) -> None:
        self.alpha, self.gains, rests, (b0, b1, p) = conditional(depth)
        self.shared = [b0, b0, b1, b1]
        self.weights = [p / 2, p / 2, (1 - p) / 2, (1 - p) / 2]
        self.sign = [1, -1 if centred else 0] * 2
        self.scale = total(a * c for a, c in zip(self.alpha, self.gains, strict=True))
        noise = total(a * e for a, e in zip(self.alpha, rests, strict=True))
        self.noise = [s * noise for s in self.sign]
        self.ghost = [self.scale * b + y for b, y in zip(self.shared, self.noise, strict=True)]
        self.lai = [total(self.alpha) * b for b in self.shared]

    def mean(self, values):
        """Return a mean."""
        return mean(list(zip(values, self.weights, strict=True)))

    def variance(self, values):
        """Return a variance."""
        return covariance(values, values, self.weights)


def conditional(depth: int) -> tuple:
    """Name alphas, gains, the layers' noise, and the signal's two values with the first one's chance."""
    names = [list(sp.symbols(f"{name}:{depth}", real=True)) for name in "ace"]
    chance = sp.Symbol("p", positive=True)
    return *names, (*sp.symbols("b0 b1", real=True), chance / (1 + chance))


CONDITIONAL = "any depth, any law with second moments and E[beta_l | g] = c_l beta*, alphas numbers"


def criterion(*, power: int = 2, sign: int = -1, noise: int = 1) -> Statement:
    """State the difference of Ghost's and LAI's variances."""

    def gap(A, m, V, n):
        return noise * n + sign * (A**2 - m**power) * V

    def claim(depth: int) -> Equal:
        law = Conditional(depth)
        moments = (law.variance(law.shared), law.variance(law.noise))
        return Equal(
            law.variance(law.ghost) - law.variance(law.lai), gap(total(law.alpha), law.scale, *moments)
        )

    return Statement(
        slug="variance-criterion",
        scope=f"{CONDITIONAL} (or c_l the regression gains)",
        claim=claim,
        depths=(1, 2),
        arguments=conditional,
        parts={"gap": gap},
    )


def criterion_proof(statement: Statement, steps: Steps) -> None:
    """Subtract LAI's variance from Ghost's without the covariance of signal and noise."""
    A, m, V, n = sp.symbols("A m V n", real=True)
    difference = steps.identity("difference", m**2 * V + n - A**2 * V, statement.part.gap(A, m, V, n))

    def of_the_law(depth: int):
        law = Conditional(depth)
        moments = {V: law.variance(law.shared), n: law.variance(law.noise)}
        return difference.at({A: total(law.alpha), m: law.scale, **moments})

    steps.conclude(statement, of_the_law, depths=statement.depths)


CRITERION = criterion()
CRITERION_MUTANTS = {
    "gain not squared": criterion(power=1),
    "the other sign": criterion(sign=1),
    "without the noise": criterion(noise=0),
}


@pytest.mark.equation("variance-criterion")
def prove_variance_criterion(settle):
    """Show by how much the variances of Ghost and LAI differ for uncorrelated signal and noise."""
    settle(CRITERION, criterion_proof, CRITERION_MUTANTS)


def relative(*, centred: bool = True, power: int = 2, swapped: bool = False) -> Statement:
    """State the comparison relative to the squared means, multiplied out so that nothing divides by 0."""

    def claim(depth: int) -> tuple:
        law = Conditional(depth, centred)
        A = total(law.alpha)
        ghost = law.variance(law.ghost) * law.mean(law.lai) ** power
        lai = law.variance(law.lai) * law.mean(law.ghost) ** power
        excess = law.variance(law.noise) * A**2 * law.mean(law.shared) ** 2
        order = AtMost(ghost, lai) if swapped else AtMost(lai, ghost)
        return Equal(ghost - lai, excess), order

    return Statement(
        slug="scale-free-variance",
        scope=f"{CONDITIONAL}; both means not 0",
        claim=claim,
        depths=(1, 2),
        arguments=conditional,
        parts={"centred": centred, "power": power, "swapped": swapped},
    )


def relative_proof(statement: Statement, steps: Steps) -> None:
    """Subtract; what remains is the noise's part, a product of squares and a variance."""
    part = statement.part
    A, m, mu = sp.symbols("A m mu", real=True)
    V, n = sp.symbols("V n", nonnegative=True)
    off = sp.Integer(0) if part.centred else sp.Symbol("y", real=True)  # E Y
    ghost = (m**2 * V + n) * (A * mu) ** part.power
    lai = A**2 * V * (m * mu + off) ** part.power
    excess = steps.identity("excess", ghost - lai, n * A**2 * mu**2)
    slack = lai - ghost if part.swapped else ghost - lai
    sign = steps.nonnegative("sign", slack, [slack if part.swapped else n * A**2 * mu**2])

    def of_the_law(depth: int) -> list:
        law = Conditional(depth)
        values = {A: total(law.alpha), m: law.scale, mu: law.mean(law.shared)}
        values |= {V: sp.factor(law.variance(law.shared)), n: sp.factor(law.variance(law.noise))}
        return [lemma.at(values) for lemma in (excess, sign)]

    steps.conclude(statement, of_the_law, depths=statement.depths)


RELATIVE = relative()
RELATIVE_MUTANTS = {
    "noise with a mean": relative(centred=False),
    "means not squared": relative(power=1),
    "LAI varies more": relative(swapped=True),
}


@pytest.mark.equation("scale-free-variance")
def prove_scale_free_variance(settle):
    """Show that relative to its mean Ghost never varies less than LAI."""
    settle(RELATIVE, relative_proof, RELATIVE_MUTANTS)


def regression(*, inverse: bool = False, centred: bool = True, sign: int = 1) -> Statement:
    """State that signal and noise are uncorrelated for the regression gain; the signal varies."""

    def arguments(depth: int) -> tuple:
        shared = sp.Symbol("b", real=True), *sp.symbols("s0 s1", positive=True)
        return shared, sp.symbols("x0:3", real=True), sp.symbols("p0:3", positive=True)

    def law(depth: int) -> tuple:
        (b, s0, s1), x, p = arguments(depth)
        return [b, b + s0, b + s0 + s1], list(x), [q / total(p) for q in p]

    def gain(shared, x, weights):
        if not centred:
            products = mean([(s * y, w) for s, y, w in zip(shared, x, weights, strict=True)])
            return products / mean([(s**2, w) for s, w in zip(shared, weights, strict=True)])
        divisor = covariance(x, x, weights) if inverse else covariance(shared, shared, weights)
        return sign * covariance(x, shared, weights) / divisor

    def claim(depth: int) -> Equal:
        shared, x, weights = law(depth)
        chosen = gain(shared, x, weights)
        rest = [y - chosen * s for y, s in zip(x, shared, strict=True)]
        return Equal(covariance(shared, rest, weights), sp.Integer(0))

    def ratio(V, K, W, mu, nu):
        """Give the gain by variance, covariance, the other's variance and both means."""
        if not centred:
            return (K + mu * nu) / (V + mu**2)
        return sign * K / (W if inverse else V)

    return Statement(
        slug="regression-gain",
        scope="any law with second moments in which the signal varies",
        claim=claim,
        arguments=arguments,
        parts={"ratio": ratio, "law": law},
    )


def regression_proof(statement: Statement, steps: Steps) -> None:
    """Take the covariance apart, ``Cov(b, x - c b) = K - c V``."""
    V, W = sp.symbols("V W", real=True, nonzero=True)
    K, mu, nu = sp.symbols("K mu nu", real=True)
    gain = statement.part.ratio(V, K, W, mu, nu)
    left = steps.identity("no covariance left", K - gain * V, sp.Integer(0))

    def of_the_law(depth: int):
        shared, similarity, weights = statement.part.law(depth)
        pairs = {K: (similarity, shared), V: (shared, shared)}
        return left.at({symbol: covariance(*pair, weights) for symbol, pair in pairs.items()})

    steps.conclude(statement, of_the_law, depths=(1,))


REGRESSION = regression()
REGRESSION_MUTANTS = {
    "signal regressed on similarity": regression(inverse=True),
    "through the origin": regression(centred=False),
    "the other sign": regression(sign=-1),
}


@pytest.mark.equation("regression-gain")
def prove_regression_gain(settle):
    """Show that Cov(beta_l, beta*) / Var beta* leaves signal and noise uncorrelated."""
    settle(REGRESSION, regression_proof, REGRESSION_MUTANTS)


def calibrated(*, inside: bool = False, centred: bool = False, offset: int = 1) -> Statement:
    """State the mean squared errors of weighted LAI and of Ghost about the conditional mean."""

    def arguments(depth: int) -> tuple:
        *rest, signal = conditional(depth)
        return *rest, list(sp.symbols(f"w:{depth}", real=True)), signal

    def claim(depth: int) -> tuple[Equal, ...]:
        law, weights = Conditional(depth), arguments(depth)[3]
        aim = [law.scale * b for b in law.shared]
        weighed = total(a * w for a, w in zip(law.alpha, weights, strict=True))
        lai = [(weighed * b - t) ** 2 for b, t in zip(law.shared, aim, strict=True)]
        ghost = [(g - t) ** 2 for g, t in zip(law.ghost, aim, strict=True)]
        terms = [a * (w - offset * c) for a, w, c in zip(law.alpha, weights, law.gains, strict=True)]
        factor = total(term**2 for term in terms) if inside else total(terms) ** 2
        second = law.variance(law.shared) if centred else law.mean([b**2 for b in law.shared])
        return (
            Equal(law.mean(lai), factor * second),
            Equal(law.mean(ghost), law.variance(law.noise)),
        )

    return Statement(
        slug="calibrated-error",
        scope=f"{CONDITIONAL}",
        claim=claim,
        depths=(1, 2),
        arguments=arguments,
        parts={"inside": inside, "centred": centred, "offset": offset},
    )


def calibrated_proof(statement: Statement, steps: Steps) -> None:
    """Add one layer's ``a (w - c) b`` to the error so far; its square has the mean of b squared."""
    part = statement.part
    t, a, w, c, b, mu = sp.symbols("t a w c b mu", real=True)
    more = a * (w - part.offset * c)
    factor = t**2 + more**2 if part.inside else (t + more) ** 2
    second = b**2 - mu**2 if part.centred else b**2
    more = steps.identity("one more layer", (t * b + a * w * b - a * c * b) ** 2, factor * second)
    m, y = sp.symbols("m y", real=True)
    off = steps.identity("Ghost is off by its noise", (m * b + y - m * b) ** 2, y**2)

    def on_average(depth: int) -> list:
        law, weights = Conditional(depth), statement.arguments(depth)[3]
        layers = list(zip(law.alpha, weights, law.gains, strict=True))
        values = {t: total(u * (v - g) for u, v, g in layers[:-1])}
        values |= dict(zip((a, w, c), layers[-1], strict=True))
        outcomes = zip(law.shared, law.noise, law.weights, strict=True)
        lai, ghost = sp.Integer(0), sp.Integer(0)
        for signal, noise, chance in outcomes:
            lai += more.at(values | {b: signal}) * chance
            ghost += off.at({b: signal, y: noise}) * chance
        return [lai, ghost]

    steps.conclude(statement, on_average, depths=statement.depths)


CALIBRATED = calibrated()
CALIBRATED_MUTANTS = {
    "layer by layer": calibrated(inside=True),
    "the signal's variance": calibrated(centred=True),
    "about 0": calibrated(offset=0),
}


@pytest.mark.equation("calibrated-error")
def prove_calibrated_error(settle):
    """Show the errors about the conditional mean: none for LAI with the gains as weights."""
    settle(CALIBRATED, calibrated_proof, CALIBRATED_MUTANTS)
