r"""Variances of Ghost and LAI: the identities, and what one of the printed ones leaves out.

Numbers try every statement on laws with three outcomes of any weights that sum to 1. The
proofs use what variances are made of, a symmetric bilinear form: with
``V = Var b``, ``y = Var Y`` and ``q = Cov(b, Y)`` for the layers so far, one more layer
``a (c b + e)`` changes both sides by the same terms in its covariances with b, Y and itself.
"""

from __future__ import annotations

import itertools

import pytest
import sympy as sp

from proofs._harness import Equal, Statement, Steps, width
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

    def weighed(self, rows) -> list:
        """Add up the layers with their alphas, in each outcome."""
        return [
            total(a * row[k] for a, row in zip(self.alpha, rows, strict=True)) for k in range(width(OUTCOMES))
        ]

    def cov(self, left, right):
        """Return a covariance."""
        return covariance(left, right, self.weights)

    def noise_energy(self, power: int = 2):
        """Return Var Y by the layers' variances and covariances, the latter with a factor."""
        rows = range(len(self.alpha))
        pairs = ((i, k) for i in rows for k in rows if i < k)
        own = total(self.alpha[i] ** 2 * self.cov(self.rests[i], self.rests[i]) for i in rows)
        cross = (self.alpha[i] * self.alpha[k] * self.cov(self.rests[i], self.rests[k]) for i, k in pairs)
        return own + power * total(cross)


def exact(*, cross: int = 2, square: int = 2, noise: int = 2) -> Statement:
    """State Ghost's variance with every covariance."""

    def claim(depth: int) -> Equal:
        law = Law(depth)
        signal = law.scale**square * law.cov(law.shared, law.shared)
        rest = cross * law.scale * law.cov(law.shared, law.noise)
        return Equal(law.cov(law.ghost, law.ghost), signal + law.noise_energy(noise) + rest)

    return Statement(
        slug="app-var-exact",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"cross": cross, "square": square, "noise": noise},
    )


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


def exact_proof(statement: Statement, steps: Steps) -> None:
    """Add one layer to both sides."""
    part = statement.part
    s, V, y, q, a, c, e, r, k = moments()

    def formula(s, V, y, q):
        return s**part.square * V + y + part.cross * s * q

    steps.identity("no layer but the signal", whole(s, V, y, q), formula(s, V, y, q))
    grown = formula(s + a * c, V, y + a**2 * e + part.noise * a * k, q + a * r)
    more = steps.identity("one more layer", added(s, V, y, q, a, c, e, r, k), grown)
    steps.conclude(statement, lambda depth: more.at(last_layer_added(depth)), depths=statement.depths)


EXACT = exact()
EXACT_MUTANTS = {
    "without signal against noise": exact(cross=0),
    "signal against noise once": exact(cross=1),
    "signal not squared": exact(square=1),
    "covariances of the noise once": exact(noise=1),
}


@pytest.mark.equation("app-var-exact")
def prove_app_var_exact(settle):
    """Show Ghost's variance: signal, noise, and twice their covariance."""
    settle(EXACT, exact_proof, EXACT_MUTANTS)


def noise(*, cross: int = 2, power: int = 2) -> Statement:
    """State the noise's variance by layers and pairs of layers."""

    def claim(depth: int) -> Equal:
        law = Law(depth)
        energy = law.noise_energy(cross)
        if power == 1:
            energy = total(a * law.cov(rest, rest) for a, rest in zip(law.alpha, law.rests, strict=True))
        return Equal(law.cov(law.noise, law.noise), energy)

    return Statement(
        slug="app-var-eps",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"cross": cross, "power": power},
    )


def noise_proof(statement: Statement, steps: Steps) -> None:
    """Add one layer: its own variance, and its covariances with all others."""
    part = statement.part
    y, a, e, k = sp.symbols("y a e k", real=True)
    grown = y + a**part.power * e + (part.cross * a * k if part.power == 2 else 0)
    more = steps.identity("one more layer", y + a**2 * e + 2 * a * k, grown)
    steps.conclude(statement, lambda depth: more.at(last_layer_added(depth)), depths=statement.depths)


NOISE = noise()
NOISE_MUTANTS = {
    "covariances once": noise(cross=1),
    "covariances left out": noise(cross=0),
    "covariances subtracted": noise(cross=-2),
    "alphas not squared": noise(power=1),
}


@pytest.mark.equation("app-var-eps")
def prove_app_var_eps(settle):
    """Show the noise's variance: layers, and pairs of layers twice."""
    settle(NOISE, noise_proof, NOISE_MUTANTS)


def printed(*, missing: int = 2) -> Statement:
    """State how much the printed variance of Ghost is short."""

    def claim(depth: int) -> Equal:
        law = Law(depth)
        short = law.scale**2 * law.cov(law.shared, law.shared) + law.noise_energy()
        gap = missing * law.scale * law.cov(law.shared, law.noise)
        return Equal(law.cov(law.ghost, law.ghost) - short, gap)

    return Statement(
        slug="app-ghost-var",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2),
        arguments=arguments,
        parts={"missing": missing},
    )


def printed_proof(statement: Statement, steps: Steps) -> None:
    """Subtract the printed terms from the bilinear form, with one layer more."""
    s, V, y, q, a, c, e, r, k = moments()
    missing = statement.part.missing
    short = (s + a * c) ** 2 * V + y + a**2 * e + 2 * a * k
    gap = missing * (s + a * c) * (q + a * r)
    left = steps.identity("what is missing", added(s, V, y, q, a, c, e, r, k) - short, gap)
    steps.conclude(statement, lambda depth: left.at(last_layer_added(depth)), depths=statement.depths)


PRINTED = printed()
PRINTED_MUTANTS = {
    "nothing missing, as printed": printed(missing=0),
    "the covariance once": printed(missing=1),
    "too large instead of short": printed(missing=-2),
}


@pytest.mark.equation("app-ghost-var")
def prove_app_ghost_var(settle):
    """Show that the printed variance lacks twice the covariance of signal and noise."""
    settle(PRINTED, printed_proof, PRINTED_MUTANTS)


def lai(*, power: int = 2, inside: bool = False, gains: bool = False) -> Statement:
    """State LAI's variance."""

    def claim(depth: int) -> Equal:
        law = Law(depth)
        scores = [total(a * s for a in law.alpha) for s in law.shared]
        scale = law.scale if gains else total(law.alpha)
        factor = total(a**power for a in law.alpha) if inside else scale**power
        return Equal(law.cov(scores, scores), factor * law.cov(law.shared, law.shared))

    return Statement(
        slug="app-var-lai",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"power": power, "inside": inside, "gains": gains},
    )


def lai_proof(statement: Statement, steps: Steps) -> None:
    """Add one layer ``a b`` to ``t b``."""
    part = statement.part
    t, a, c, V = sp.symbols("t a c V", real=True)
    scale = t + (c if part.gains else 1) * a
    factor = t**part.power + a**part.power if part.inside else scale**part.power
    more = steps.identity("one more layer", t**2 * V + a**2 * V + 2 * t * a * V, factor * V)

    def all_layers(depth: int):
        law = Law(depth)
        varied = law.cov(law.shared, law.shared)
        return more.at({t: total(law.alpha[:-1]), a: law.alpha[-1], V: varied})

    steps.conclude(statement, all_layers, depths=statement.depths)


LAI = lai()
LAI_MUTANTS = {
    "not squared": lai(power=1),
    "each alpha squared": lai(inside=True),
    "Ghost's gains": lai(gains=True),
}


@pytest.mark.equation("app-var-lai")
def prove_app_var_lai(settle):
    """Show LAI's variance: the squared sum of the alphas times the signal's."""
    settle(LAI, lai_proof, LAI_MUTANTS)


def sums(*, squared: int = 2, coupled: bool = True, swapped: bool = False) -> Statement:
    """State the variance of a sum with random alphas, independent of the similarities."""

    def names(depth: int) -> tuple:
        alphas, betas = (
            [list(sp.symbols(f"{name}{i}_:2", real=True)) for i in range(depth)] for name in "ab"
        )
        return alphas, betas, *sp.symbols("p q", real=True)

    def claim(depth: int) -> Equal:
        alphas, betas, p, q = names(depth)
        chances, weights = (p, 1 - p), (q, 1 - q)
        outcomes = [
            (total(a[i] * b[k] for a, b in zip(alphas, betas, strict=True)), chances[i] * weights[k])
            for i in range(2)
            for k in range(2)
        ]
        variance = mean([(x**2, w) for x, w in outcomes]) - mean(outcomes) ** 2

        def moment(left, right, weights):
            return total(x * y * w for x, y, w in zip(left, right, weights, strict=True))

        def centre(values, weights):
            return total(x * w for x, w in zip(values, weights, strict=True))

        rows = range(depth)
        second = total(
            (
                moment(alphas[i], alphas[k], chances)
                if coupled
                else centre(alphas[i], chances) * centre(alphas[k], chances)
            )
            * moment(betas[i], betas[k], chances if swapped else weights)
            for i in rows
            for k in rows
        )
        means = total(centre(a, chances) * centre(b, weights) for a, b in zip(alphas, betas, strict=True))
        return Equal(variance, second - means**squared)

    return Statement(
        slug="random-weight-sum",
        scope="any number of terms (layers, validation samples); alphas independent of the similarities",
        claim=claim,
        depths=(1, 2),
        arguments=names,
        parts={"squared": squared, "coupled": coupled, "swapped": swapped},
    )


def joint(*, pairs: int = 2, squared: int = 2) -> Statement:
    """State the variance of a sum whose alphas and similarities have any joint law."""

    def law(depth: int) -> tuple:
        alphas, betas = (
            [sp.symbols(f"{name}{i}_:{width(2)}", real=True) for i in range(depth)] for name in "ab"
        )
        terms = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(alphas, betas, strict=True)]
        free = list(sp.symbols(f"p:{width(2) - 1}", real=True))
        return terms, [*free, 1 - total(free)]

    def claim(depth: int) -> Equal:
        terms, chances = law(depth)
        whole = [total(column) for column in zip(*terms, strict=True)]
        variance = mean([(x**squared, p) for x, p in zip(whole, chances, strict=True)])
        variance -= mean(list(zip(whole, chances, strict=True))) ** 2
        own = total(covariance(row, row, chances) for row in terms)
        mixed = total(covariance(*rows, chances) for rows in itertools.combinations(terms, 2))
        return Equal(variance, own + pairs * mixed)

    return Statement(
        slug="random-weight-sum",
        scope="any number of terms (layers, validation samples); any joint law with second moments",
        claim=claim,
        depths=(1, 2),
        parts={"law": law},
    )


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


def joint_proof(statement: Statement, steps: Steps) -> None:
    """Take a term more: its own variance, and its covariance with the sum so far."""

    def all_terms(depth: int):
        terms, chances = statement.part.law(depth)
        more, so_far, x, weights = _one_term_more(steps, len(chances))
        values = dict(zip(weights, chances, strict=True)) | dict(zip(x, terms[-1], strict=True))
        before = [total(column[:-1]) for column in zip(*terms, strict=True)]
        return more.at(values | dict(zip(so_far, before, strict=True)))

    steps.conclude(statement, all_terms)


def sums_proof(statement: Statement, steps: Steps) -> None:
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


JOINT = joint()
JOINT_MUTANTS = {
    "each pair once": joint(pairs=1),
    "terms as if uncorrelated": joint(pairs=0),
    "not squared": joint(squared=1),
}

SUMS = sums()
SUMS_MUTANTS = {
    "alphas held at their means": sums(coupled=False),
    "mean not squared": sums(squared=1),
    "similarities by the alphas' law": sums(swapped=True),
}


@pytest.mark.equation("random-weight-sum")
def prove_random_weight_sum(settle):
    """Show the variance of a sum with random alphas, through second moments."""
    settle(JOINT, joint_proof, JOINT_MUTANTS)
    settle(SUMS, sums_proof, SUMS_MUTANTS)


def outcomes(slug: str, *, gain: int = 1, signal: int = 1, rest: int = 1) -> Statement:
    """State Ghost, or LAI as Ghost with every similarity the signal, outcome by outcome."""

    def names(depth: int) -> tuple:
        alpha, gains, *_ = arguments(depth)
        return alpha, gains, list(sp.symbols(f"x:{depth}", real=True)), sp.Symbol("s", real=True)

    def claim(depth: int) -> Equal | tuple[Equal, ...]:
        alpha, gains, rests, shared = names(depth)
        scale = total(a * c**gain for a, c in zip(alpha, gains, strict=True))
        noise = total(a * x for a, x in zip(alpha, rests, strict=True))
        if slug == "lai-signal":
            return Equal(total(a * shared for a in alpha), signal * total(alpha) ** gain * shared**rest)
        layers = zip(alpha, gains, rests, strict=True)
        ghost = total(a * (c * shared + x) for a, c, x in layers)
        if slug == "signal-and-noise":
            return (
                Equal(ghost - noise, signal * scale * shared),
                Equal(ghost - scale * shared, rest * noise),
            )
        return Equal(ghost, signal * scale * shared + rest * noise)

    return Statement(
        slug=slug,
        scope="any depth, any outcome, one validation sample",
        claim=claim,
        depths=(1, 2, 3),
        arguments=names,
        parts={"gain": gain, "signal": signal, "rest": rest},
    )


def outcomes_proof(statement: Statement, steps: Steps) -> None:
    """Add one layer."""
    part = statement.part
    t, a, c, s, x, n = sp.symbols("t a c s x n", real=True)
    if statement.slug == "lai-signal":
        claimed = part.signal * (t + a) ** part.gain * s**part.rest
        more = steps.identity("one more layer", t * s + a * s, claimed)

        def read(depth: int):
            (*alphas, last), _, _, shared = statement.arguments(depth)
            return more.at({t: total(alphas), a: last, s: shared})

        steps.conclude(statement, read)
        return
    grown = part.signal * (t + a * c**part.gain) * s + part.rest * (n + a * x)
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


def outcomes_mutants(slug: str) -> dict[str, Statement]:
    """Change the gains' part, the signal's sign, the noise's part."""
    return {
        "gains left out": outcomes(slug, gain=0),
        "the printed sign on the signal alone": outcomes(slug, signal=-1),
        "noise left out": outcomes(slug, rest=0),
    }


GHOST, READ, PAIR = (outcomes(slug) for slug in ("ghost-signal-noise", "lai-signal", "signal-and-noise"))


@pytest.mark.equation("ghost-signal-noise")
def prove_ghost_signal_noise(settle):
    """Show that Ghost is signal plus noise."""
    settle(GHOST, outcomes_proof, outcomes_mutants("ghost-signal-noise"))


@pytest.mark.equation("lai-signal")
def prove_lai_signal(settle):
    """Show that LAI is the signal alone."""
    settle(READ, outcomes_proof, outcomes_mutants("lai-signal"))


@pytest.mark.equation("signal-and-noise")
def prove_signal_and_noise(settle):
    """Show that X and Y are what they leave of Ghost."""
    settle(PAIR, outcomes_proof, outcomes_mutants("signal-and-noise"))
