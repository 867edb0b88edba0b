r"""Ghost from its top layers: the certificate of what is missing, and the random truncation.

The certificate's factors multiply from layer to layer, so that one more layer is one more factor.
The random truncation is built up from the bottom: ``estimate`` and second moment of the layers so
far are symbols, and one more layer on top changes both by what is shown. Layers with a probability of
0 are never kept; those above them are a chain of their own.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import MEANING, STEP, AtMost, Equal, Statement, Steps, under
from proofs._symbols import parts_of, total

SCOPE = "any depth"


def certificate(*, stretched: bool = True, squared: bool = False, bars: bool = True) -> Statement:
    """State the certificate for chains of any widths, in norms and cosines."""

    def names(depth: int) -> tuple:
        lists = [list(sp.symbols(f"{name}:{depth}", nonnegative=True)) for name in ("fz", "fj", "nz", "nj")]
        cosines, alpha = (list(sp.symbols(f"{name}:{depth}", real=True)) for name in ("c", "alpha"))
        return (*lists, cosines, alpha, *sp.symbols("n m", nonnegative=True))

    def claim(depth: int) -> tuple[AtMost, AtMost]:
        fz, fj, nz, nj, cosines, alpha, n, m = names(depth)
        missing = sum(a * c * x * y for a, c, x, y in zip(alpha, cosines, nz, nj, strict=True))
        most, product = sp.Integer(0), n * m
        for k in range(depth):
            product = product * fz[k] * fj[k] * (fz[k] if squared else 1)
            most += (abs(alpha[k]) if bars else alpha[k]) * product
        return AtMost(missing, most), AtMost(-missing, most)

    def given(depth: int) -> tuple[AtMost, ...]:
        fz, fj, nz, nj, cosines, _, n, m = names(depth)
        angles = tuple(AtMost(s * c, 1) for c in cosines for s in (1, -1))
        chains = ((fz, nz, n), (fj, nj, m)) if stretched else ((fj, nj, m),)
        steps = tuple(
            AtMost(norms[k], f[k] * (norms[k - 1] if k else top))
            for f, norms, top in chains
            for k in range(depth)
        )
        stretch = "$f_t(x)$ bounds the norm of layer $t$'s backward step at $x$"
        return under(MEANING, angles) + under(stretch, steps)

    def sample(draw: random.Random, depth: int) -> dict:
        fz, fj, nz, nj, cosines, alpha, n, m = names(depth)
        values = {s: sp.Rational(draw.randint(1, 6), 4) for s in (*fz, *fj, n, m)}
        for f, norms, top in ((fz, nz, n), (fj, nj, m)):
            for k in range(depth):
                before = values[norms[k - 1]] if k else values[top]
                loose = 9 if norms is nz and not stretched else 1
                values[norms[k]] = values[f[k]] * before * draw.choice((1, sp.Rational(1, 2))) * loose
        values |= {c: draw.choice((sp.Integer(1), sp.Integer(-1), sp.Rational(1, 3))) for c in cosines}
        return values | {a: sp.Rational(draw.choice((-1, 1)) * draw.randint(1, 4), 2) for a in alpha}

    e, f, x, y = sp.symbols("e f x y", nonnegative=True)
    return Statement(
        slug="top-layer-certificate",
        scope="any number of layers below, any widths, any activation function with a slope",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        arguments=names,
        sample=sample,
        parts={
            "symbols": (e, f, x, y),
            "slack": sp.symbols("u", **{"nonnegative" if stretched else "real": True}),
            "squared": squared,
            "size": (x + y) if bars else (x - y),
        },
    )


def certificate_proof(statement: Statement, steps: Steps) -> None:
    """One factor, the product of both samples', and one term; factors by Cauchy and Schwarz."""
    part = statement.part
    e, f, x, y = part.symbols
    factor, norm, most, v, other = sp.symbols("F n P v G", nonnegative=True)
    slack = part.slack
    stretch = factor * (norm + v) - (factor * norm - slack)
    steps.nonnegative("one more step: F (n + v) - n'", stretch, [factor * v, slack])
    product = factor * other * (factor if part.squared else 1)
    steps.identity("both samples' factors", product, factor * other)
    one, cosine, lemmas = (e + f) / 2, (f - e) / 2, []
    for name, sign, ends in (("from above", 1, (e, f)), ("from below", -1, (f, e))):
        term = part.size * most * one - sign * (x - y) * most * cosine
        lemmas.append(steps.nonnegative(name, term, [x * most * ends[0], y * most * ends[1]]))
    width = sp.symbols("d", integer=True, positive=True)
    g, w = (sp.MatrixSymbol(name, width, 1) for name in "gw")
    p, q = sp.symbols("p q", real=True)
    square = sp.Trace((q * g - p * w).T * (q * g - p * w))
    parts = q**2 * sp.Trace(g.T * g) + p**2 * sp.Trace(w.T * w) - 2 * p * q * sp.Trace(g.T * w)
    steps.identity("a column's part, one more coordinate", square, parts)
    n, m, u, w = sp.symbols("n m u w", nonnegative=True)
    both = steps.nonnegative("both samples' norms", (n + u) * (m + w) - n * m, [n * w, u * m, u * w])

    def added_up(depth: int) -> list:
        fz, fj, nz, nj, cosines, alpha, *tops = statement.arguments(depth)
        sums, behind = [sp.Integer(0), sp.Integer(0)], sp.Integer(0)
        for k in range(depth):
            above = (nz[k - 1], nj[k - 1]) if k else tops
            rests = (fz[k] * above[0] - nz[k], fj[k] * above[1] - nj[k])
            # what the product of all factors is above that of the norms, a layer further down
            behind = behind * (fz[k] * fj[k]) + both.at({n: nz[k], m: nj[k], u: rests[0], w: rests[1]})
            up, down = parts_of(alpha[k])
            values = {x: up, y: down, most: nz[k] * nj[k], e: 1 - cosines[k], f: 1 + cosines[k]}
            missing = behind * abs(alpha[k])
            sums = [sums[side] + lemmas[side].at(values) + missing for side in range(2)]
        return sums

    steps.conclude(statement, added_up)


def layer_names(depth: int) -> tuple:
    """Name the terms from the bottom up, and the steps of the probabilities."""
    terms = list(sp.symbols(f"x:{depth}", real=True))
    return terms, list(sp.symbols(f"s:{depth}", positive=True))


def chances(depth: int, never: int) -> list:
    """Write increasing probabilities that end in 1; so many of the lowest layers have 0."""
    steps = layer_names(depth)[1]
    return [sp.Add(*steps[never : k + 1]) / sp.Add(*steps[never:]) for k in range(depth)]


def moments(depth: int, power: int, never: int, *, shift: int = 0, weight: int = 1) -> sp.Expr:
    """Take the mean of a power of the estimate over the lowest layer kept."""
    terms, _ = layer_names(depth)
    q = chances(depth, never)
    total = sp.Integer(0)
    for lowest in range(never, depth):
        chance = q[lowest] - (q[lowest - 1] if lowest else 0)
        kept = range(min(lowest + shift, depth), depth)
        total += chance * sp.Add(*(terms[k] / q[k] ** weight for k in kept)) ** power
    return total


def unbiased(*, shift: int = 0, weight: int = 1, factor: int = 1) -> Statement:
    """State that the mean over all depths is the whole sum but for layers that are never kept."""

    def claim(depth: int) -> tuple[Equal, ...]:
        means = (moments(depth, 1, never, shift=shift, weight=weight) for never in range(depth))
        return tuple(Equal(factor * x, sp.Add(*layer_names(depth)[0][k:])) for k, x in enumerate(means))

    return Statement(
        slug="random-truncation",
        scope=SCOPE,
        claim=claim,
        depths=(1, 2, 3, 4),
        arguments=layer_names,
        parts={"weight": weight, "factor": factor, "shift": shift},
    )


def unbiased_proof(statement: Statement, steps: Steps) -> None:
    """Layer l is kept by every lowest layer up to l: their chances add up to q_l."""
    part = statement.part
    q, more, x = sp.Symbol("q", nonnegative=True), sp.Symbol("r", positive=True), sp.Symbol("x", real=True)
    steps.identity("chances telescope", q + (q + more - q), q + more)
    kept = q + more if part.shift == 0 else q
    one = steps.identity("one layer's part", part.factor * kept * x / (q + more) ** part.weight, x)

    def all_layers(depth: int) -> list:
        sums = []
        for never in range(depth):
            terms, found = layer_names(depth)[0], [sp.Integer(0), *chances(depth, never)]
            steps_up = list(zip(terms, found, found[1:], strict=False))[never:]
            sums.append(total(one.at({x: t, q: low, more: high - low}) for t, low, high in steps_up))
        return sums

    steps.conclude(statement, all_layers)


def variance(*, scale: int = 1, lagged: int = 0, sign: int = -1) -> Statement:
    """State the variance in partial sums."""

    def one(depth: int, never: int) -> Equal:
        terms, q = layer_names(depth)[0], chances(depth, never)
        partial = [sp.Add(*terms[never : k + 1 - lagged]) for k in range(depth)]
        above = range(never, depth - 1)
        closed = total(scale * partial[k] ** 2 * (1 / q[k] + sign / q[k + 1]) for k in above)
        return Equal(closed, moments(depth, 2, never) - sp.Add(*terms[never:]) ** 2)

    def claim(depth: int) -> tuple[Equal, ...]:
        return tuple(one(depth, never) for never in range(depth))

    return Statement(
        slug="truncation-variance",
        scope=STEP,
        claim=claim,
        depths=(2, 3),
        arguments=layer_names,
        parts={"scale": scale, "lagged": lagged, "sign": sign},
    )


def variance_proof(statement: Statement, steps: Steps) -> None:
    """Add a layer on top: it is always kept where a lower one is, and alone with chance r."""
    part = statement.part
    q, r, x = sp.symbols("q r x", positive=True)
    P, E, V = sp.symbols("P E V", real=True)
    top = q + r
    more = E + 2 * x / top * P + q * (x / top) ** 2 + r * (x / top) ** 2
    steps.identity("second moment", more, E + ((P + x) ** 2 - P**2) / top)
    known = P - x if part.lagged else P
    closed = V + part.scale * known**2 * (1 / q + part.sign / top)
    below = V + P**2 / q
    steps.identity("partial sums", closed + (P + x) ** 2 / top, below + ((P + x) ** 2 - P**2) / top)
    steps.base(statement, statement.depths)


def best(*, root: int = 1, price: int = 1, swapped: bool = False) -> Statement:
    """State which probabilities are best at a price: the square roots of gain over cost."""

    def names(depth: int) -> tuple:
        return tuple(list(sp.symbols(f"{name}:{depth}", positive=True)) for name in "deq")

    def claim(depth: int) -> tuple:
        d, e, q = names(depth)
        spent = sum((x**2 / p + y**2 * p for x, y, p in zip(d, e, q, strict=True)), sp.Integer(0))
        chosen = [((y / x) if swapped else (x / y)) ** root for x, y in zip(d, e, strict=True)]
        least = sum(
            (x**2 / p + price * y**2 * p for x, y, p in zip(d, e, chosen, strict=True)), sp.Integer(0)
        )
        return Equal(least, 2 * sum(x * y for x, y in zip(d, e, strict=True))), AtMost(least, spent)

    return Statement(
        slug="truncation-variance",
        scope="any depth; gains d^2, prices e^2, where the best probabilities increase by themselves",
        claim=claim,
        depths=(1, 2),
        arguments=names,
        parts={"root": root, "price": price, "swapped": swapped},
    )


def best_proof(statement: Statement, steps: Steps) -> None:
    """Complete a square in one layer's probability."""
    part = statement.part
    d, e, q = sp.symbols("d e q", positive=True)
    chosen = ((e / d) if part.swapped else (d / e)) ** part.root
    least = d**2 / chosen + part.price * e**2 * chosen
    lemmas = (
        steps.identity("the least", least, 2 * d * e),
        steps.nonnegative("a square", d**2 / q + e**2 * q - least, [(d - e * q) ** 2 / q]),
    )

    def all_layers(depth: int) -> list:
        rows = zip(*statement.arguments(depth), strict=True)
        layers = [dict(zip((d, e, q), layer, strict=True)) for layer in rows]
        return [total(map(lemma.at, layers)) for lemma in lemmas]

    steps.conclude(statement, all_layers)


STATEMENT = certificate()
MUTANTS = {
    "norms that are not bounded": certificate(stretched=False),
    "a factor squared": certificate(squared=True),
    "embeddings without bars": certificate(bars=False),
}
UNBIASED = unbiased()
UNBIASED_MUTANTS = {
    "weights squared": unbiased(weight=2),
    "no weights": unbiased(weight=0),
    "one layer too few": unbiased(shift=1),
    "twice the sum": unbiased(factor=2),
}
VARIANCE = variance()
VARIANCE_MUTANTS = {
    "twice": variance(scale=2),
    "partial sums a layer late": variance(lagged=1),
    "chances added": variance(sign=1),
}
BEST = best()
BEST_MUTANTS = {
    "without the root": best(root=2),
    "a price twice as high": best(price=2),
    "cost over gain": best(swapped=True),
}


@pytest.mark.equation("top-layer-certificate")
def prove_certificate(settle):
    settle(STATEMENT, certificate_proof, MUTANTS)


@pytest.mark.equation("random-truncation")
def prove_random_truncation_is_unbiased(settle):
    settle(UNBIASED, unbiased_proof, UNBIASED_MUTANTS)


@pytest.mark.equation("truncation-variance")
def prove_truncation_variance(settle):
    settle(VARIANCE, variance_proof, VARIANCE_MUTANTS)
    settle(BEST, best_proof, BEST_MUTANTS)
