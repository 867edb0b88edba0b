r"""What each assumption is worth: A1 as a smallest rate, A2 and A3 as what follows from them.

Assumptions enter as slack: what is at least 0 is a non-negative symbol. Depth enters as the number
k of layers between a layer and the last one; the step from k to k + 1 is shown for symbols that
stand for the powers so far, widths by one more coordinate or by vectors of symbolic size.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import sympy as sp

from proofs._chain import bounded_product, cauchy_schwarz
from proofs._harness import MEANING, AtMost, Statement, Steps, settled, under, within
from proofs._rewrites import each, exchanged, given, signless, times, without
from proofs._symbols import dot, numbers, symbolic, total

SCOPE = "any depth, any widths"
NARROW = r"$|\cos|$ at layer $l$ is at most $|\cos|$ at the last layer"
POSITIVE = "for the decay also a non-negative cosine at the last layer"
r, size, d = sp.symbols("r n d", positive=True)
rho, n, m, lower_n, lower_m, C = sp.symbols("rho n m n_l m_l C", nonnegative=True)
lower, cosine = sp.symbols("c_l c", real=True)


def decay(depth: int) -> AtMost:
    """State that a rate below another one violates what the other one just satisfies."""
    return AtMost(r**depth * size, (r + d) ** depth * size, strict=True)


def activations(width: int) -> tuple:
    """Name both samples' activations and their bound."""
    return *numbers("a b", width), C


def bounded(width: int) -> tuple[AtMost, ...]:
    """State that bounded activations bound every similarity."""
    return within(C**2, dot(*activations(width)[:2]))


def a2(width: int) -> tuple[AtMost, ...]:
    """State A2."""
    return under("A2", (AtMost(sum(x**2 for x in vector), C**2) for vector in activations(width)[:2]))


def names(depth: int) -> tuple:
    """Name the layers' similarities of activations, cosines of gradients and products of their norms."""
    return numbers("alpha c n", depth, nonnegative=True)


def sign(depth: int) -> AtMost:
    """State that A3 and agreeing embeddings give every score one sign."""
    return AtMost(0, dot(*names(depth)))


def decayed(k: int, words: str) -> tuple[AtMost, ...]:
    """State A1 for both samples' norms, k layers below the last."""
    return under(words, (AtMost(lower_n, rho**k * n), AtMost(lower_m, rho**k * m)))


def aligned(slug: str, *, bars: bool) -> Statement:
    """State that similarities decay; with bars in absolute value, without A3."""
    top, signs = (abs(cosine), (1, -1)) if bars else (cosine, (1,))

    def claim(k: int) -> tuple[AtMost, ...]:
        return tuple(AtMost(s * lower_n * lower_m * lower, rho ** (2 * k) * n * m * top) for s in signs)

    def given(k: int) -> tuple[AtMost, ...]:
        decay = decayed(k, "A1" if bars else "for the decay also A1")
        narrow = under(NARROW if bars else "the variant of A3", (AtMost(s * lower, top) for s in signs))
        return (*decay, *narrow, *(() if bars else under(POSITIVE, (AtMost(0, cosine),))))

    return Statement(
        slug,
        "any depth",
        claim,
        given=given,
        depths=(1, 2, 3),
        arguments=lambda k: (rho, n, m, lower_n, lower_m, lower, cosine),
        parts={"bars": bars},
    )


def both_norms(steps: Steps) -> Callable[[int], Any]:
    """Multiply two bounds on norms: what the product of the norms is below that of the bounds."""
    u, v = sp.symbols("u v", nonnegative=True)
    lemma = steps.nonnegative("both norms", (n + u) * (m + v) - n * m, [n * v, u * m, u * v])

    def below(k: int) -> Any:
        return lemma.at({n: lower_n, m: lower_m, u: rho**k * n - lower_n, v: rho**k * m - lower_m})

    return below


def norms(k: int) -> tuple[AtMost, ...]:
    """State that a similarity is at most the decayed product of norms."""
    return within(rho ** (2 * k) * n * m, lower_n * lower_m * lower)


DECAY = Statement(
    "gradient-norm-decay",
    "any depth, any rate",
    decay,
    depths=(1, 2, 5),
    arguments=lambda depth: (r, size, d),
)
DECAY_MUTANTS = {
    "a smaller rate": each("d", lambda d: -d),
    "one power more": times(r + d),
    "the other way round": exchanged(),
}
STATEMENT = Statement(
    "bounded-activations", "any width", bounded, given=a2, depths=(1, 2, 3), arguments=activations
)
MUTANTS = {
    "C_a not squared": each("C", sp.sqrt),
    "half of it": times(sp.Rational(1, 2)),
    "one sample's activations not bounded": without("A2", about="b"),
}
SIGN = Statement(
    "non-negative-alignment",
    "any depth, any number of validation samples",
    sign,
    depths=(1, 2, 3),
    arguments=names,
)
SIGN_MUTANTS = {
    "embeddings of any sign": signless("alpha"),
    "gradients of any angle": signless("c"),
    "the printed sign": times(-1),
}
ALIGNED = aligned("non-expansive", bars=False)
ALIGNED_MUTANTS = {
    "one power more": times(rho),
    "opposed at the top": without(POSITIVE),
    "more aligned below": without("the variant of A3"),
}
BARS = aligned("alignment-decay", bars=True)
BARS_MUTANTS = {"one power more": times(rho), "more aligned below": without(NARROW)}
NORMS = Statement(
    "norm-product-bound",
    SCOPE,
    norms,
    given=lambda k: (*decayed(k, "A1"), *under(MEANING, within(1, lower))),
    depths=(1, 2, 3),
    arguments=lambda k: (rho, n, m, lower_n, lower_m, lower),
)
NORMS_MUTANTS = {
    "one power more": times(rho),
    "norms that do not decay": without("A1"),
    "cosines up to 2": given(lambda r, k: replace(r, rhs=2) if r.of == MEANING else r),
}


@settled("gradient-norm-decay", DECAY, DECAY_MUTANTS)
def prove_decay_rate(statement: Statement, steps: Steps) -> None:
    """Induct over the layers below the last: the slack so far is s."""
    power, s = sp.Symbol("R", positive=True), sp.Symbol("s", nonnegative=True)
    slack = (r + d) * (power + s) - r * power
    more = steps.nonnegative("one more layer", slack, [r * s, d * power, d * s])

    @steps.conclude(statement)
    def one_layer_more(depth: int):
        before = (r + d) ** (depth - 1) - r ** (depth - 1)
        return more.at({power: r ** (depth - 1), s: sp.expand(before)}) * size


@settled("bounded-activations", STATEMENT, MUTANTS)
def prove_bounded_activations(statement: Statement, steps: Steps) -> None:
    """Complete a square: the length of a - b, and of a + b."""
    a, b = symbolic("a b")
    for sign in (1, -1):
        square = sp.Trace((a - sign * b).T * (a - sign * b))
        parts = sp.Trace(a.T * a) + sp.Trace(b.T * b) - 2 * sign * sp.Trace(a.T * b)
        steps.identity("a square", square, parts)
    length, C2, u, v = sp.symbols("N S u v", nonnegative=True)
    alpha = ((C2 - u) + (C2 - v) - length) / 2
    left = steps.nonnegative("what is left of C_a^2", C2 - alpha, [u / 2, v / 2, length / 2])

    @steps.conclude(statement)
    def either_side(width: int) -> list:
        first, second = map(sp.Matrix, activations(width)[:2])
        short = {C2: C**2, u: C**2 - first.dot(first), v: C**2 - second.dot(second)}
        return [left.at({length: apart.dot(apart), **short}) for apart in (first - second, first + second)]


@settled("non-negative-alignment", SIGN, SIGN_MUTANTS)
def prove_alignment_gives_one_sign(statement: Statement, steps: Steps) -> None:
    """Every layer of every pair adds something of the same sign."""
    so_far, *factors = sp.symbols("S alpha c n", nonnegative=True)
    term = sp.Mul(*factors)
    more = steps.nonnegative("one more term", so_far + term, [so_far, term])

    @steps.conclude(statement)
    def added_up(depth: int):
        *earlier, last = zip(*statement.arguments(depth), strict=True)
        before = total(sp.Mul(*layer) for layer in earlier)
        return more.at({so_far: before, **dict(zip(factors, last, strict=True))})


@settled("non-expansive", ALIGNED, ALIGNED_MUTANTS)
@settled("alignment-decay", BARS, BARS_MUTANTS)
def prove_non_expansive_similarities_decay(statement: Statement, steps: Steps) -> None:
    """First the norms' product, then its product with the cosines."""
    e, x = sp.symbols("e x", nonnegative=True)
    below, size = both_norms(steps), lower_n * lower_m
    narrow, values = bounded_product(steps)
    wider = steps.nonnegative("a smaller cosine", x * e, [x * e])

    @steps.conclude(statement)
    def pair(k: int) -> list:
        if not statement.part.bars:
            return [wider.at({x: size, e: cosine - lower}) + below(k) * cosine]
        at = values(size, size, lower, abs(cosine))
        return [lemma.at(at) + below(k) * abs(cosine) for lemma in narrow]


@settled("norm-product-bound", NORMS, NORMS_MUTANTS)
def prove_norm_product_bound(statement: Statement, steps: Steps) -> None:
    """Cauchy and Schwarz by one more coordinate, then the decay of both norms."""
    cauchy_schwarz(steps)
    A, B, D, x, y = sp.symbols("A B D x y", real=True)
    more = (A + x**2) * (B + y**2) - (D + x * y) ** 2
    steps.identity("one more coordinate", more, (A * B - D**2) + (y**2 * A + x**2 * B - 2 * x * y * D))
    below, size = both_norms(steps), lower_n * lower_m
    lemmas, values = bounded_product(steps)
    at = values(size, size, lower, 1)
    steps.conclude(statement, lambda k: [lemma.at(at) + below(k) for lemma in lemmas])
