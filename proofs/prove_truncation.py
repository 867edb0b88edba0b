r"""Ghost from its top layers: the certificate of what is missing, and the random truncation.

The certificate's factors multiply from layer to layer, so that one more layer is one more factor.
The random truncation is built up from the bottom: ``estimate`` and second moment of the layers so
far are symbols, and one more layer on top changes both by what is shown. Layers with a probability of
0 are never kept; those above them are a chain of their own.
"""

from collections.abc import Callable

import sympy as sp

from proofs._chain import bounded_product, cauchy_schwarz
from proofs._harness import MEANING, STEP, AtMost, Equal, Statement, Steps, settled, under, within
from proofs._rewrites import becomes, each, plus, put, times, without
from proofs._symbols import dot, numbers, summed, total

STRETCH = "$f_t(x)$ bounds the norm of layer $t$'s backward step at $x$"


def chain_names(depth: int) -> tuple:
    """Name both samples' factors and norms, cosines, embeddings, and the norms at the top."""
    lists = numbers("fz fj nz nj", depth, nonnegative=True)
    return *lists, *numbers("c alpha", depth), *sp.symbols("n m", nonnegative=True)


def certificate(depth: int) -> tuple[AtMost, AtMost]:
    """State the certificate for chains of any widths, in norms and cosines."""
    fz, fj, nz, nj, cosines, alpha, n, m = chain_names(depth)
    most, product = sp.Integer(0), n * m
    for k in range(depth):
        product = product * fz[k] * fj[k]
        most += abs(alpha[k]) * product
    return within(most, dot(alpha, cosines, nz, nj))


def bounded_steps(depth: int) -> tuple[AtMost, ...]:
    """State that cosines are cosines, and that factors bound the norms' growth."""
    fz, fj, nz, nj, cosines, _, n, m = chain_names(depth)
    chains = (fz, [n, *nz]), (fj, [m, *nj])
    grown = (AtMost(norms[k + 1], f[k] * norms[k]) for f, norms in chains for k in range(depth))
    return under(MEANING, within(1, *cosines)) + under(STRETCH, grown)


def layer_names(depth: int) -> tuple:
    """Name the terms from the bottom up, and the steps of the probabilities."""
    return *numbers("x", depth), *numbers("s", depth, positive=True)


def chances(depth: int, never: int) -> list:
    """Write increasing probabilities that end in 1; so many of the lowest layers have 0."""
    steps = layer_names(depth)[1]
    return [sp.Add(*steps[never : k + 1]) / sp.Add(*steps[never:]) for k in range(depth)]


def moments(depth: int, power: int, never: int, *, shift: int = 0, weight: int = 1) -> sp.Expr:
    """Take the mean of a power of the estimate over the lowest layer kept."""
    terms, _ = layer_names(depth)
    q = chances(depth, never)
    estimates = [x / chance**weight for x, chance in zip(terms, q, strict=True)]
    lowest = zip(range(never, depth), q[never:], [0, *q][never:], strict=False)
    return total((above - below) * total(estimates[k + shift :]) ** power for k, above, below in lowest)


def unbiased(depth: int) -> tuple[Equal, ...]:
    """State that the mean over all depths is the whole sum but for layers that are never kept."""
    terms = layer_names(depth)[0]
    return tuple(Equal(moments(depth, 1, never), sp.Add(*terms[never:])) for never in range(depth))


def closed(depth: int, never: int, *, lagged: int = 0, sign: int = -1) -> sp.Expr:
    """Write the variance by partial sums."""
    terms, q = layer_names(depth)[0], chances(depth, never)
    partial = [sp.Add(*terms[never : k + 1 - lagged]) for k in range(depth)]
    return total(partial[k] ** 2 * (1 / q[k] + sign / q[k + 1]) for k in range(never, depth - 1))


def variance(depth: int) -> tuple[Equal, ...]:
    """State the variance in partial sums."""
    terms = layer_names(depth)[0]
    squares = (moments(depth, 2, never) - total(terms[never:]) ** 2 for never in range(depth))
    return tuple(Equal(closed(depth, never), varied) for never, varied in enumerate(squares))


def price_names(depth: int) -> tuple:
    """Name the roots of gains and of prices, and any probabilities."""
    return numbers("d e q", depth, positive=True)


def cost(depth: int, chosen: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr]) -> sp.Expr:
    """Add up the variance and the price of probabilities ``chosen(d, e, q)``."""
    rows = ((d, e, chosen(d, e, q)) for d, e, q in zip(*price_names(depth), strict=True))
    return total(d**2 / q + e**2 * q for d, e, q in rows)


def best(depth: int) -> tuple:
    """State which probabilities are best at a price: the square roots of gain over cost."""
    least = cost(depth, lambda d, e, q: d / e)
    return Equal(least, 2 * dot(*price_names(depth)[:2])), AtMost(least, cost(depth, lambda d, e, q: q))


STATEMENT = Statement(
    "top-layer-certificate",
    "any number of layers below, any widths, any activation function with a slope",
    certificate,
    given=bounded_steps,
    depths=(1, 2, 3),
    arguments=chain_names,
)
MUTANTS = {
    "norms that are not bounded": without(STRETCH, about="nz"),
    "a factor squared": each("fz", lambda factor: factor**2),
    "embeddings without bars": put(lambda depth: {abs(a): a for a in chain_names(depth)[5]}),
}
UNBIASED = Statement("random-truncation", "any depth", unbiased, depths=(1, 2, 3, 4), arguments=layer_names)
UNBIASED_MUTANTS = {
    "weights squared": becomes(lambda depth: moments(depth, 1, 0, weight=2), only=0, of="lhs"),
    "no weights": becomes(lambda depth: moments(depth, 1, 0, weight=0), only=0, of="lhs"),
    "one layer too few": becomes(lambda depth: moments(depth, 1, 0, shift=1), only=0, of="lhs"),
    "twice the sum": times(2, of="lhs"),
}
VARIANCE = Statement("truncation-variance", STEP, variance, depths=(2, 3), arguments=layer_names)
VARIANCE_MUTANTS = {
    "twice": times(2, of="lhs"),
    "partial sums a layer late": becomes(lambda depth: closed(depth, 0, lagged=1), only=0, of="lhs"),
    "chances added": becomes(lambda depth: closed(depth, 0, sign=1), only=0, of="lhs"),
}
BEST = Statement(
    "truncation-variance",
    "any depth; gains d^2, prices e^2, where the best probabilities increase by themselves",
    best,
    depths=(1, 2),
    arguments=price_names,
)
BEST_MUTANTS = {
    "without the root": becomes(lambda depth: cost(depth, lambda d, e, q: (d / e) ** 2), only=0, of="lhs"),
    "a price twice as high": plus(lambda depth: dot(*price_names(depth)[:2]), only=0, of="lhs"),
    "cost over gain": becomes(lambda depth: cost(depth, lambda d, e, q: e / d), only=0, of="lhs"),
}


@settled("top-layer-certificate", STATEMENT, MUTANTS)
def prove_certificate(statement: Statement, steps: Steps) -> None:
    """One factor, the product of both samples', and one term; factors by Cauchy and Schwarz."""
    factor, norm, v, slack = sp.symbols("F n v u", nonnegative=True)
    stretch = factor * (norm + v) - (factor * norm - slack)
    steps.nonnegative("one more step: F (n + v) - n'", stretch, [factor * v, slack])
    lemmas, values = bounded_product(steps)
    cauchy_schwarz(steps)
    n, m, u, w = sp.symbols("n m u w", nonnegative=True)
    both = steps.nonnegative("both samples' norms", (n + u) * (m + w) - n * m, [n * w, u * m, u * w])

    @steps.conclude(statement)
    def added_up(depth: int) -> list:
        fz, fj, nz, nj, cosines, alpha, *tops = statement.arguments(depth)
        behind, missing, points = sp.Integer(0), sp.Integer(0), []
        for k in range(depth):
            above = (nz[k - 1], nj[k - 1]) if k else tops
            rests = (fz[k] * above[0] - nz[k], fj[k] * above[1] - nj[k])
            # what the product of all factors is above that of the norms, a layer further down
            behind = behind * (fz[k] * fj[k]) + both.at({n: nz[k], m: nj[k], u: rests[0], w: rests[1]})
            missing += behind * abs(alpha[k])
            size = nz[k] * nj[k]
            points.append(values(alpha[k] * size, abs(alpha[k]) * size, cosines[k], 1))
        return [one + missing for one in summed(lemmas, points)]


@settled("random-truncation", UNBIASED, UNBIASED_MUTANTS)
def prove_random_truncation_is_unbiased(statement: Statement, steps: Steps) -> None:
    """Layer l is kept by every lowest layer up to l: their chances add up to q_l."""
    q, more, x = sp.Symbol("q", nonnegative=True), sp.Symbol("r", positive=True), sp.Symbol("x", real=True)
    steps.identity("chances telescope", q + (q + more - q), q + more)
    one = steps.identity("one layer's part", (q + more) * x / (q + more), x)

    @steps.conclude(statement)
    def all_layers(depth: int) -> list:
        sums = []
        for never in range(depth):
            terms, found = layer_names(depth)[0], [sp.Integer(0), *chances(depth, never)]
            steps_up = list(zip(terms, found, found[1:], strict=False))[never:]
            sums.append(total(one.at({x: t, q: low, more: high - low}) for t, low, high in steps_up))
        return sums


@settled("truncation-variance", VARIANCE, VARIANCE_MUTANTS)
def prove_truncation_variance(statement: Statement, steps: Steps) -> None:
    """Add a layer on top: it is always kept where a lower one is, and alone with chance r."""
    q, r, x = sp.symbols("q r x", positive=True)
    P, E, V = sp.symbols("P E V", real=True)
    top = q + r
    more = E + 2 * x / top * P + q * (x / top) ** 2 + r * (x / top) ** 2
    steps.identity("second moment", more, E + ((P + x) ** 2 - P**2) / top)
    grown, below = V + P**2 * (1 / q - 1 / top), V + P**2 / q
    steps.identity("partial sums", grown + (P + x) ** 2 / top, below + ((P + x) ** 2 - P**2) / top)
    steps.base(statement, statement.depths)


@settled("truncation-variance", BEST, BEST_MUTANTS)
def prove_best_probabilities(statement: Statement, steps: Steps) -> None:
    """Complete a square in one layer's probability."""
    d, e, q = sp.symbols("d e q", positive=True)
    chosen = d / e
    least = d**2 / chosen + e**2 * chosen
    lemmas = (
        steps.identity("the least", least, 2 * d * e),
        steps.nonnegative("a square", d**2 / q + e**2 * q - least, [(d - e * q) ** 2 / q]),
    )

    @steps.conclude(statement)
    def all_layers(depth: int) -> list:
        rows = zip(*statement.arguments(depth), strict=True)
        return summed(lemmas, [dict(zip((d, e, q), layer, strict=True)) for layer in rows])
