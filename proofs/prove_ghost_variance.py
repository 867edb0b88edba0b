r"""Variances of Ghost and LAI: the identities, and what one of the printed ones leaves out.

Numbers try every statement on laws with three outcomes of any weights that sum to 1. The
proofs use what variances are made of, a symmetric bilinear form: with
``V = Var b``, ``y = Var Y`` and ``q = Cov(b, Y)`` for the layers so far, one more layer
``a (c b + e)`` changes both sides by the same terms in its covariances with b, Y and itself.
"""

import itertools

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, each, plus, times
from proofs._symbols import combined, covariance, dot, numbers, total

SCOPE = "any depth, any law with second moments, one validation sample, alpha a number"
OUTCOMES = 3


def arguments(depth: int) -> tuple:
    """Name alphas, gains, similarities ``(L, 3)`` and all weights but the last."""
    alpha, gains = numbers("a c", depth)
    similarities = [list(sp.symbols(f"b{layer}_:{width(OUTCOMES)}", real=True)) for layer in range(depth)]
    return alpha, gains, similarities, list(sp.symbols(f"p:{width(OUTCOMES) - 1}", real=True))


class Law:
    """A law's variables, outcome by outcome; the last layer's similarity is the signal."""

    def __init__(self, depth: int) -> None:
        self.alpha, self.gains, self.similarities, weights = arguments(depth)
        self.weights = [*weights, 1 - total(weights)]
        self.shared = self.similarities[-1]
        rows = zip(self.similarities, self.gains, strict=True)
        self.rests = [[x - c * s for x, s in zip(row, self.shared, strict=True)] for row, c in rows]
        self.scale = dot(self.alpha, self.gains)
        self.ghost, self.noise = (combined(self.alpha, rows) for rows in (self.similarities, self.rests))
        self.signal = self.cov(self.shared, self.shared)
        self.together = self.scale * self.cov(self.shared, self.noise)
        layers = itertools.combinations(zip(self.alpha, self.rests, strict=True), 2)
        self.pairs = total(a * b * self.cov(x, y) for (a, x), (b, y) in layers)

    def cov(self, left, right):
        """Return a covariance."""
        return covariance(left, right, self.weights)

    def energies(self, power: int = 2):
        """Add up the variances of the layers' noise, with a power of their alphas."""
        return total(a**power * self.cov(rest, rest) for a, rest in zip(self.alpha, self.rests, strict=True))


def exact(depth: int) -> Equal:
    """State Ghost's variance with every covariance."""
    law = Law(depth)
    noise = law.energies() + 2 * law.pairs
    return Equal(law.cov(law.ghost, law.ghost), law.scale**2 * law.signal + noise + 2 * law.together)


def moments() -> tuple:
    """Name the moments so far, and those of one more layer: see the file's first lines."""
    return sp.symbols("s V y q a c e r k", real=True)


def whole(s, V, y, q):
    """Give the variance of ``s b + Y``: a bilinear form at the sum of two."""
    return s**2 * V + y + 2 * s * q


def added(s, V, y, q, a, c, e, r, k):
    """Give the variance with ``a (c b + eps)`` added; e, r, k are eps' covariances with itself, b, Y."""
    own = c**2 * V + e + 2 * c * r
    return whole(s, V, y, q) + a**2 * own + 2 * a * (s * c * V + s * r + c * q + k)


def last_layer_added(depth: int) -> dict:
    """Give the moments of all layers but the last, and those of the last one."""
    law = Law(depth)
    (*alphas, a), (*gains, c), (*rests, rest) = law.alpha, law.gains, law.rests
    noise = combined(alphas, rests) or [sp.Integer(0)] * width(OUTCOMES)
    own = (law.cov(rest, other) for other in (rest, law.shared, noise))
    before = dot(alphas, gains), law.signal, law.cov(noise, noise), law.cov(law.shared, noise)
    return dict(zip(moments(), (*before, a, c, *own), strict=True))


EXACT = Statement("app-var-exact", SCOPE, exact, depths=(1, 2, 3), arguments=arguments)
EXACT_MUTANTS = {
    "without signal against noise": plus(lambda depth: -2 * Law(depth).together),
    "signal against noise once": plus(lambda depth: -Law(depth).together),
    "signal not squared": plus(lambda depth: (Law(depth).scale - Law(depth).scale ** 2) * Law(depth).signal),
    "covariances of the noise once": plus(lambda depth: -Law(depth).pairs),
}


@settled("app-var-exact", EXACT, EXACT_MUTANTS)
def prove_app_var_exact(statement: Statement, steps: Steps) -> None:
    """Add one layer to both sides."""
    s, V, y, q, a, c, e, r, k = moments()
    grown = whole(s + a * c, V, y + a**2 * e + 2 * a * k, q + a * r)
    more = steps.identity("one more layer", added(s, V, y, q, a, c, e, r, k), grown)
    steps.conclude(statement, lambda depth: more.at(last_layer_added(depth)), depths=statement.depths)


def noise(depth: int) -> Equal:
    """State the noise's variance by layers and pairs of layers."""
    law = Law(depth)
    return Equal(law.cov(law.noise, law.noise), law.energies() + 2 * law.pairs)


NOISE = Statement("app-var-eps", SCOPE, noise, depths=(1, 2, 3), arguments=arguments)
NOISE_MUTANTS = {
    "covariances once": plus(lambda depth: -Law(depth).pairs),
    "covariances left out": plus(lambda depth: -2 * Law(depth).pairs),
    "covariances subtracted": plus(lambda depth: -4 * Law(depth).pairs),
    "alphas not squared": becomes(lambda depth: Law(depth).energies(1)),
}


@settled("app-var-eps", NOISE, NOISE_MUTANTS)
def prove_app_var_eps(statement: Statement, steps: Steps) -> None:
    """Add one layer: its own variance, and its covariances with all others."""
    y, a, e, k = sp.symbols("y a e k", real=True)
    x, b = sp.symbols("x b", real=True)  # the noise so far and the layer's, both centred
    steps.identity("one more layer", (x + a * b) ** 2, x**2 + a**2 * b**2 + 2 * a * x * b)
    grown = y + a**2 * e + 2 * a * k
    more = steps.identity("their means", grown, grown)
    steps.conclude(statement, lambda depth: more.at(last_layer_added(depth)), depths=statement.depths)


def printed(depth: int) -> Equal:
    """State how much the printed variance of Ghost is short."""
    law = Law(depth)
    short = law.scale**2 * law.signal + law.energies() + 2 * law.pairs
    return Equal(law.cov(law.ghost, law.ghost) - short, 2 * law.together)


PRINTED = Statement("app-ghost-var", SCOPE, printed, depths=(1, 2), arguments=arguments)
PRINTED_MUTANTS = {
    "nothing missing, as printed": times(0),
    "the covariance once": times(sp.Rational(1, 2)),
    "too large instead of short": times(-1),
}


@settled("app-ghost-var", PRINTED, PRINTED_MUTANTS)
def prove_app_ghost_var(statement: Statement, steps: Steps) -> None:
    """Subtract the printed terms from the bilinear form, with one layer more."""
    s, V, y, q, a, c, e, r, k = moments()
    short = (s + a * c) ** 2 * V + y + a**2 * e + 2 * a * k
    gap = 2 * (s + a * c) * (q + a * r)
    left = steps.identity("what is missing", added(s, V, y, q, a, c, e, r, k) - short, gap)
    steps.conclude(statement, lambda depth: left.at(last_layer_added(depth)), depths=statement.depths)


def lai(depth: int) -> Equal:
    """State LAI's variance."""
    law = Law(depth)
    scores = combined(law.alpha, [law.shared] * depth)
    return Equal(law.cov(scores, scores), total(law.alpha) ** 2 * law.signal)


LAI = Statement("app-var-lai", SCOPE, lai, depths=(1, 2, 3), arguments=arguments)
LAI_MUTANTS = {
    "not squared": times(lambda depth: 1 / total(Law(depth).alpha)),
    "each alpha squared": becomes(lambda depth: total(a**2 for a in Law(depth).alpha) * Law(depth).signal),
    "Ghost's gains": becomes(lambda depth: Law(depth).scale ** 2 * Law(depth).signal),
}


@settled("app-var-lai", LAI, LAI_MUTANTS)
def prove_app_var_lai(statement: Statement, steps: Steps) -> None:
    """Add one layer ``a b`` to ``t b``."""
    t, a, V = sp.symbols("t a V", real=True)
    more = steps.identity("one more layer", t**2 * V + a**2 * V + 2 * t * a * V, (t + a) ** 2 * V)

    @steps.conclude(statement, depths=statement.depths)
    def all_layers(depth: int):
        *alphas, last = arguments(depth)[0]
        return more.at({t: total(alphas), a: last, V: Law(depth).signal})


def outcomes(slug: str) -> Statement:
    """State Ghost, or LAI as Ghost with every similarity the signal, outcome by outcome."""

    def names(depth: int) -> tuple:
        return *numbers("a c x", depth), sp.Symbol("s", real=True)

    def claim(depth: int) -> Equal | tuple[Equal, ...]:
        alpha, gains, rests, shared = names(depth)
        scale, noise = dot(alpha, gains), dot(alpha, rests)
        ghost = dot(alpha, [c * shared + x for c, x in zip(gains, rests, strict=True)])
        if slug == "lai-signal":
            return Equal(total(a * shared for a in alpha), total(alpha) * shared)
        if slug == "signal-and-noise":
            return Equal(ghost - noise, scale * shared), Equal(ghost - scale * shared, noise)
        return Equal(ghost, scale * shared + noise)

    scope = "any depth, any outcome, one validation sample"
    return Statement(slug, scope, claim, depths=(1, 2, 3), arguments=names)


OUTCOMES_MUTANTS = {
    "gains left out": each("c", 1),
    "the printed sign on the signal alone": each("s", lambda s: -s),
    "noise left out": each("x", 0),
}
READ_MUTANTS = {
    "gains left out": becomes(sp.Symbol("s", real=True)),
    "the printed sign on the signal alone": times(-1),
    "noise left out": each("s", 1),
}
GHOST, READ, PAIR = (outcomes(slug) for slug in ("ghost-signal-noise", "lai-signal", "signal-and-noise"))


@settled("ghost-signal-noise", GHOST, OUTCOMES_MUTANTS)
@settled("lai-signal", READ, READ_MUTANTS)
@settled("signal-and-noise", PAIR, OUTCOMES_MUTANTS)
def prove_ghost_signal_noise(statement: Statement, steps: Steps) -> None:
    """Add one layer; for LAI, whose noise is zero, a layer of gain 1."""
    t, a, c, s, x, n = sp.symbols("t a c s x n", real=True)
    grown = (t + a * c) * s + (n + a * x)
    more = steps.identity("one more layer", (t * s + n) + a * (c * s + x), grown)

    @steps.conclude(statement)
    def all_layers(depth: int):
        (*alphas, alpha), (*gains, gain), (*rests, rest), shared = statement.arguments(depth)
        if statement.slug == "lai-signal":
            return more.at({t: total(alphas), n: 0, a: alpha, c: 1, x: 0, s: shared})
        scale, noise = dot(alphas, gains), dot(alphas, rests)
        whole = more.at({t: scale, n: noise, a: alpha, c: gain, x: rest, s: shared})
        if statement.slug != "signal-and-noise":
            return whole
        return [whole + -(noise + alpha * rest), whole + -(scale + alpha * gain) * shared]
