r"""Variances of Ghost and LAI: the identities, and what one of the printed ones leaves out.

Numbers try every statement on laws with three outcomes of any weights that sum to 1. The
proofs use what variances are made of, a symmetric bilinear form: with
``V = Var b``, ``y = Var Y`` and ``q = Cov(b, Y)`` for the layers so far, one more layer
``a (c b + e)`` changes both sides by the same terms in its covariances with b, Y and itself.
"""

from __future__ import annotations

import itertools

import sympy as sp

from proofs._harness import Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, each, plus, put, times
from proofs._symbols import covariance, mean, total

SCOPE = "any depth, any law with second moments, one validation sample, alpha a number"
OUTCOMES = 3


def arguments(depth: int) -> tuple:
    """Name alphas, gains, similarities ``(L, 3)`` and all weights but the last."""
    alpha, gains = (list(sp.symbols(f"{name}:{depth}", real=True)) for name in "ac")
    similarities = [list(sp.symbols(f"b{layer}_:{width(OUTCOMES)}", real=True)) for layer in range(depth)]
    return alpha, gains, similarities, list(sp.symbols(f"p:{width(OUTCOMES) - 1}", real=True))


class Law:
    """A law's variables, outcome by outcome; the last layer's similarity is the signal."""

    def __init__(self, depth: int) -> None:
        self.alpha, self.gains, self.similarities, weights = arguments(depth)
        self.weights = [*weights, 1 - total(weights)]
        self.shared = self.similarities[-1]
        self.rests = [
            [x - c * s for x, s in zip(row, self.shared, strict=True)]
            for row, c in zip(self.similarities, self.gains, strict=True)
        ]
        self.scale = total(a * c for a, c in zip(self.alpha, self.gains, strict=True))
        self.ghost, self.noise = self.weighed(self.similarities), self.weighed(self.rests)
        self.signal, self.together = (
            self.cov(self.shared, self.shared),
            self.scale * self.cov(self.shared, self.noise),
        )
        couples = itertools.combinations(range(depth), 2)
        self.pairs = total(
            self.alpha[i] * self.alpha[k] * self.cov(self.rests[i], self.rests[k]) for i, k in couples
        )

    def weighed(self, rows) -> list:
        """Add up the layers with their alphas, in each outcome."""
        return [
            total(a * row[k] for a, row in zip(self.alpha, rows, strict=True)) for k in range(width(OUTCOMES))
        ]

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
    before = range(depth - 1)
    noise = [total(law.alpha[i] * law.rests[i][k] for i in before) for k in range(width(OUTCOMES))]
    rest, shared = law.rests[-1], law.shared
    values = (
        total(law.alpha[i] * law.gains[i] for i in before),
        law.cov(shared, shared),
        law.cov(noise, noise),
        law.cov(shared, noise),
        law.alpha[-1],
        law.gains[-1],
        law.cov(rest, rest),
        law.cov(rest, shared),
        law.cov(rest, noise),
    )
    return dict(zip(moments(), values, strict=True))


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
    scores = [total(a * s for a in law.alpha) for s in law.shared]
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

    def all_layers(depth: int):
        law = Law(depth)
        return more.at({t: total(law.alpha[:-1]), a: law.alpha[-1], V: law.signal})

    steps.conclude(statement, all_layers, depths=statement.depths)


p, q = sp.symbols("p q", real=True)


def names(depth: int) -> tuple:
    """Name the two values of each alpha and of each similarity, and the chances of the first ones."""
    return *([list(sp.symbols(f"{x}{i}_:2", real=True)) for i in range(depth)] for x in "ab"), p, q


def centre(values, chance):
    """Expect a variable with two values."""
    return values[0] * chance + values[1] * (1 - chance)


def product_of_means(depth: int) -> sp.Expr:
    """Add up the products of means."""
    alphas, betas, *_ = names(depth)
    return total(centre(a, p) * centre(b, q) for a, b in zip(alphas, betas, strict=True))


def held_at_means(depth: int) -> dict:
    """Hold the alphas at their means."""
    return {x: centre(alpha, p) for alpha in names(depth)[0] for x in alpha}


def sums(depth: int) -> Equal:
    """State the variance of a sum with random alphas, independent of the similarities."""
    alphas, betas, *_ = names(depth)
    outcomes = [
        (total(a[i] * b[k] for a, b in zip(alphas, betas, strict=True)), (p, 1 - p)[i] * (q, 1 - q)[k])
        for i, k in itertools.product(range(2), repeat=2)
    ]
    variance = mean([(x**2, w) for x, w in outcomes]) - mean(outcomes) ** 2

    def moment(left, right, chance):
        return centre([x * y for x, y in zip(left, right, strict=True)], chance)

    rows = itertools.product(range(depth), repeat=2)
    second = total(moment(alphas[i], alphas[k], p) * moment(betas[i], betas[k], q) for i, k in rows)
    return Equal(variance, second - product_of_means(depth) ** 2)


def law(depth: int) -> tuple:
    """Give each term's outcomes, and their chances."""
    alphas, betas = ([sp.symbols(f"{name}{i}_:{width(2)}", real=True) for i in range(depth)] for name in "ab")
    terms = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(alphas, betas, strict=True)]
    free = list(sp.symbols(f"p:{width(2) - 1}", real=True))
    return terms, [*free, 1 - total(free)]


def summed(depth: int) -> list:
    """Give the sum's outcomes with their chances."""
    terms, chances = law(depth)
    return list(zip(map(total, zip(*terms, strict=True)), chances, strict=True))


def mixed(depth: int) -> sp.Expr:
    """Add up the covariances of pairs of terms."""
    terms, chances = law(depth)
    return total(covariance(*rows, chances) for rows in itertools.combinations(terms, 2))


def joint(depth: int) -> Equal:
    """State the variance of a sum whose alphas and similarities have any joint law."""
    terms, chances = law(depth)
    variance = mean([(x**2, p) for x, p in summed(depth)]) - mean(summed(depth)) ** 2
    return Equal(variance, total(covariance(row, row, chances) for row in terms) + 2 * mixed(depth))


def _one_term_more(steps: Steps, outcomes: int) -> tuple:
    """Show by how much a term more changes a variance, for a law of some outcomes."""
    so_far, x = (list(sp.symbols(f"{name}_:{outcomes}", real=True)) for name in "Sx")
    chances = list(sp.symbols(f"w:{outcomes}", real=True))

    def variance(values: list) -> sp.Expr:
        return (
            mean([(v**2, w) for v, w in zip(values, chances, strict=True)])
            - mean(list(zip(values, chances, strict=True))) ** 2
        )

    def product_moment(left: list, right: list) -> sp.Expr:
        both = [(a * b, w) for a, b, w in zip(left, right, chances, strict=True)]
        means = [mean(list(zip(side, chances, strict=True))) for side in (left, right)]
        return mean(both) - means[0] * means[1]

    both = [a + b for a, b in zip(so_far, x, strict=True)]
    grown = variance(so_far) + 2 * product_moment(so_far, x) + variance(x)
    return steps.identity(f"a term more, {outcomes} outcomes", variance(both), grown), so_far, x, chances


JOINT = Statement(
    "random-weight-sum",
    "any number of terms (layers, validation samples); any joint law with second moments",
    joint,
    depths=(1, 2),
)
JOINT_MUTANTS = {
    "each pair once": plus(lambda depth: -mixed(depth)),
    "terms as if uncorrelated": plus(lambda depth: -2 * mixed(depth)),
    "not squared": plus(
        lambda depth: mean(summed(depth)) - mean([(x**2, p) for x, p in summed(depth)]), of="lhs"
    ),
}

SUMS = Statement(
    "random-weight-sum",
    "any number of terms (layers, validation samples); alphas independent of the similarities",
    sums,
    depths=(1, 2),
    arguments=names,
)
SUMS_MUTANTS = {
    "alphas held at their means": put(held_at_means),
    "mean not squared": plus(lambda depth: product_of_means(depth) ** 2 - product_of_means(depth)),
    "similarities by the alphas' law": put({q: p}),
}


@settled("random-weight-sum", JOINT, JOINT_MUTANTS)
def prove_random_weight_sum(statement: Statement, steps: Steps) -> None:
    """Take a term more: its own variance, and its covariance with the sum so far."""

    def all_terms(depth: int):
        terms, chances = law(depth)
        more, so_far, x, weights = _one_term_more(steps, len(chances))
        values = dict(zip(weights, chances, strict=True)) | dict(zip(x, terms[-1], strict=True))
        before = [total(column[:-1]) for column in zip(*terms, strict=True)]
        return more.at(values | dict(zip(so_far, before, strict=True)))

    steps.conclude(statement, all_terms)


@settled("random-weight-sum", SUMS, SUMS_MUTANTS)
def prove_sum_of_independent_terms(statement: Statement, steps: Steps) -> None:
    """Take a term more; the outcomes are pairs, one of the alphas and one of the similarities."""
    more, so_far, x, weights = _one_term_more(steps, 4)

    def all_terms(depth: int):
        alphas, betas, p, q = statement.arguments(depth)
        pairs = [(i, k) for i in range(2) for k in range(2)]
        terms = [[a[i] * b[k] for i, k in pairs] for a, b in zip(alphas, betas, strict=True)]
        values = dict(zip(weights, [(p, 1 - p)[i] * (q, 1 - q)[k] for i, k in pairs], strict=True))
        before = [total(column[:-1]) for column in zip(*terms, strict=True)]
        values |= dict(zip(x, terms[-1], strict=True)) | dict(zip(so_far, before, strict=True))
        return more.at(values)

    steps.conclude(statement, all_terms)


def outcomes(slug: str) -> Statement:
    """State Ghost, or LAI as Ghost with every similarity the signal, outcome by outcome."""

    def names(depth: int) -> tuple:
        alpha, gains, *_ = arguments(depth)
        return alpha, gains, list(sp.symbols(f"x:{depth}", real=True)), sp.Symbol("s", real=True)

    def claim(depth: int) -> Equal | tuple[Equal, ...]:
        alpha, gains, rests, shared = names(depth)
        scale = total((a * c for a, c in zip(alpha, gains, strict=True)))
        noise = total(a * x for a, x in zip(alpha, rests, strict=True))
        if slug == "lai-signal":
            return Equal(total(a * shared for a in alpha), total(alpha) * shared)
        layers = zip(alpha, gains, rests, strict=True)
        ghost = total(a * (c * shared + x) for a, c, x in layers)
        if slug == "signal-and-noise":
            return (Equal(ghost - noise, scale * shared), Equal(ghost - scale * shared, noise))
        return Equal(ghost, scale * shared + noise)

    return Statement(
        slug, "any depth, any outcome, one validation sample", claim, depths=(1, 2, 3), arguments=names
    )


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
    """Add one layer."""
    t, a, c, s, x, n = sp.symbols("t a c s x n", real=True)
    if statement.slug == "lai-signal":
        more = steps.identity("one more layer", t * s + a * s, (t + a) * s)

        def read(depth: int):
            (*alphas, last), _, _, shared = statement.arguments(depth)
            return more.at({t: total(alphas), a: last, s: shared})

        steps.conclude(statement, read)
        return
    grown = (t + a * c) * s + (n + a * x)
    more = steps.identity("one more layer", (t * s + n) + a * (c * s + x), grown)

    def all_layers(depth: int):
        (*alphas, alpha), (*gains, gain), (*rests, rest), shared = statement.arguments(depth)
        scale = total(u * v for u, v in zip(alphas, gains, strict=True))
        noise = total(u * v for u, v in zip(alphas, rests, strict=True))
        whole = more.at({t: scale, n: noise, a: alpha, c: gain, x: rest, s: shared})
        if statement.slug != "signal-and-noise":
            return whole
        return [whole + -(noise + alpha * rest), whole + -(scale + alpha * gain) * shared]

    steps.conclude(statement, all_layers)
