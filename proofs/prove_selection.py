r"""What selecting by an approximate score can cost, when its sign is right, and when ranks agree or flip.

Sums over samples grow by one more sample, so that one sample and the sums so far are enough.
Quotients ``b`` of exact and approximate numbers lie between m and M; ``b - m`` and ``M - b`` are
non-negative symbols.
"""

import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, settled, under, width
from proofs._quotients import HIGH, LOW, between, names
from proofs._rewrites import each, plus, put, times, without
from proofs._symbols import dot, numbers, one_where, summed, symbolic, total

EVERY = "every term's ratio lies in $[m, M]$"


rho, scale = sp.symbols("rho lam", nonnegative=True)
INPUTS = (9, 1), (-2, 2)


def flip(depth: int) -> tuple:
    """State the scores of one network of each estimator, and that LAI has the pair the wrong way round."""
    alphas = [(x[0] + x[1], x[1]) for x in INPUTS]
    ghost = [a * rho**2 + b for a, b in alphas]
    lai, lli = [a + b for a, b in alphas], [b for _, b in alphas]
    return (
        Equal(ghost[1] - ghost[0], 1 - 10 * rho**2),
        AtMost(ghost[0], ghost[1], strict=True),
        AtMost(lai[1], lai[0], strict=True),
        AtMost(lli[0], lli[1], strict=True),
    )


def lost(v: sp.Expr, w: sp.Expr) -> sp.Expr:
    """Give what is lost where a sample of value v is kept for its score w, or not."""
    return sp.Max(v, 0) - sp.Piecewise((v, w > 0), (0, True))


def regret(n: int) -> AtMost:
    """State that the regret is at most the distance of scaled scores, sample by sample."""
    values, scores = names(n)
    distances = (abs(x - scale * y) for x, y in zip(values, scores, strict=True))
    return AtMost(total(map(lost, values, scores)), total(distances))


def agreement(n: int) -> tuple[AtMost, AtMost]:
    """State between which numbers Ghost's score lies, in terms of the parts of LAI's."""
    S, b = names(n)
    helps, hurts = total(sp.Max(s, 0) for s in S), total(sp.Max(-s, 0) for s in S)
    least, most = LOW * helps - HIGH * hurts, HIGH * helps - LOW * hurts
    return AtMost(least, dot(b, S)), AtMost(dot(b, S), most)


def proportional(depth: int) -> tuple:
    """Name what layers' similarities are in multiples of the pair's, and those of several samples."""
    k, c = numbers("k c", depth)
    pairs = ([*numbers(f"{name}0_ {name}1_", width(2))] for name in ("alpha", "beta"))
    return k, [*c[:-1], sp.Integer(1)], *pairs


def factor(k: list, c: list) -> sp.Expr:
    """Give the mean gain."""
    return dot(k, c) / total(k)


def identical(depth: int) -> tuple[Equal, ...]:
    """State that proportional similarities leave one factor between Ghost and LAI, for all samples."""
    k, c, alpha, beta = proportional(depth)
    relations = []
    for firsts, lasts in zip(alpha, beta, strict=True):  # a training sample; sums over validation samples
        ghost = total(a * g * dot(firsts, lasts) for a, g in zip(k, c, strict=True))
        lai = dot([total(a * first for a in k) for first in firsts], lasts)
        relations.append(Equal(factor(k, c) * lai, ghost))
    return tuple(relations)


def plain_mean(depth: int) -> sp.Expr:
    """Give what turns the mean gain into a mean without weights."""
    k, c, *_ = proportional(depth)
    return total(c) / depth / factor(k, c)


FLIP = Statement(
    "rank-flip",
    "one network, every rho with 10 rho^2 < 1",
    flip,
    given=lambda depth: under(MEANING, (AtMost(10 * rho**2, 1, strict=True),)),
    arguments=lambda depth: (rho,),
)
FLIP_MUTANTS = {
    "a sample of another input": plus(rho**2, only=0, of="lhs"),
    "a similarity that decays once": put({rho**2: rho}, only=0, of="lhs"),
    "any rate": put({rho: 1 + rho}, only=1, of="both"),
}
REGRET = Statement(
    "selection-regret",
    "any number of samples, any non-negative scale",
    regret,
    depths=(1, 2, 3),
    arguments=lambda n: (*names(n), scale),
)
REGRET_MUTANTS = {
    "a negative scale": each("lam", lambda scale: -scale),
    "keeping what is negative": each("b", lambda score: -score, of="lhs"),
    "twice the regret": times(2, of="lhs"),
}
AGREEMENT = Statement(
    "sign-agreement",
    "any number of validation samples",
    agreement,
    given=lambda n: between(n, EVERY),
    depths=(1, 2, 3),
    arguments=lambda n: (*names(n), LOW, HIGH),
)
AGREEMENT_MUTANTS = {
    "bounds exchanged": put({LOW: HIGH, HIGH: LOW}, of="both"),
    "quotients outside their bounds": without(EVERY),
    "without the negative parts": put(lambda n: {sp.Max(-s, 0): sp.S.Zero for s in names(n)[0]}, of="both"),
}
IDENTICAL = Statement(
    "identical-ranking",
    "any depth, any number of validation and of training samples, similarities of any sign",
    identical,
    depths=(1, 2, 3),
    arguments=lambda depth: (proportional(depth)[0], proportional(depth)[1][:-1], *proportional(depth)[2:]),
)
IDENTICAL_MUTANTS = {
    "an unweighted mean": times(plain_mean, of="lhs"),
    "gains squared": each("c", lambda c: c**2),
    "embeddings that are not proportional": each("k", lambda k: k * sp.Symbol(f"x{k.name[1:]}", real=True)),
}


@settled("rank-flip", FLIP, FLIP_MUTANTS)
def prove_rank_flip(statement: Statement, steps: Steps) -> None:
    """Run the network on symbols: W1 = (0, 1), W2 = rho, residuals 1."""
    x, y = map(sp.Matrix, INPUTS)
    z, first, second = sp.Matrix([1, 1]), sp.Matrix([[0, 1]]), sp.Matrix([[rho]])
    backward = second.T * sp.Matrix([1])
    signal = (backward.T * backward)[0]
    steps.identity("similarity below the top", rho**2, signal)
    scores = [z.dot(v) * signal + (first * z).dot(first * v) for v in (x, y)]
    d = sp.symbols("d", positive=True)
    differ = steps.identity("Ghost", scores[1] - scores[0], 1 - 10 * rho**2)
    ghost = (scores[1] - scores[0]).subs(rho, sp.sqrt((1 - d) / 10))
    order = steps.nonnegative("Ghost's order, with 10 rho^2 = 1 - d", ghost, [d])
    lai = z.dot(x) + (first * z).dot(first * x) - z.dot(y) - (first * z).dot(first * y)
    lli = (first * z).dot(first * y) - (first * z).dot(first * x)
    others = (
        steps.nonnegative("LAI's order", lai, [sp.Integer(9)]),
        steps.nonnegative("LLI's order", lli, [sp.Integer(1)]),
    )
    below = order.at({d: 1 - 10 * rho**2})
    steps.conclude(statement, lambda depth: [differ, below, *others], depths=(1,))


@settled("selection-regret", REGRET, REGRET_MUTANTS)
def prove_selection_regret(statement: Statement, steps: Steps) -> None:
    """Four cases of signs; what is lost is only ever a sample whose signs differ."""
    x, y = sp.symbols("x y", positive=True)
    for name, v, w in (
        ("both help", x, y),
        ("both hurt", -x, -y),
        ("helps, not kept", x, -y),
        ("helps, not seen", x, sp.Integer(0)),
        ("hurts, kept", -x, y),
    ):
        differ = name not in {"both help", "both hurt"}
        expected = x if differ else sp.Integer(0)
        steps.identity(f"{name}: what is lost", lost(v, w), expected)
        if differ:
            sign = 1 if v == x else -1
            distance = sign * (v - scale * w)
            steps.nonnegative(f"{name}: the distance", distance - expected, [scale * abs(w)])
    u, w, rest = sp.symbols("u w r", nonnegative=True)
    apart = u + scale * w - u  # of opposite signs: the sizes add up
    misjudged = steps.nonnegative("a misjudged sample", apart, [scale * w])
    right = steps.nonnegative("a sample judged rightly loses nothing", rest, [rest])

    @steps.conclude(statement, depths=statement.depths)
    def added_up(n: int):
        found = sp.Integer(0)
        for v, score in zip(*names(n), strict=True):
            wrong = one_where(((v > 0) & (score <= 0)) | ((v <= 0) & (score > 0)))
            found += misjudged.at({u: abs(v), w: abs(score)}) * wrong
            found += right.at({rest: abs(v - scale * score)}) * (1 - wrong)
        return found


@settled("sign-agreement", AGREEMENT, AGREEMENT_MUTANTS)
def prove_certain_sign(statement: Statement, steps: Steps) -> None:
    """One sample with the parts s and t of its score, S = s - t."""
    m, u, v, s, t = sp.symbols("m u v s t", nonnegative=True)
    b, M = m + u, m + u + v
    least, most = m * s - M * t, M * s - m * t
    lemmas = (
        steps.nonnegative("above the least", b * (s - t) - least, [u * s, v * t]),
        steps.nonnegative("below the most", most - b * (s - t), [v * s, u * t]),
    )

    @steps.conclude(statement, depths=statement.depths)
    def added_up(n: int) -> list:
        points = [
            {m: LOW, u: ratio - LOW, v: HIGH - ratio, s: sp.Max(score, 0), t: sp.Max(-score, 0)}
            for score, ratio in zip(*names(n), strict=True)
        ]
        return summed(lemmas, points)


@settled("identical-ranking", IDENTICAL, IDENTICAL_MUTANTS)
def prove_identical_ranking(statement: Statement, steps: Steps) -> None:
    """Take the pair's alpha and beta out of both sums; scaled orthogonal layers make both proportional."""
    top, bottom, k, c, pair = sp.symbols("N K k c P", real=True)
    ghost, lai = (top + k * c) * pair, (bottom + k) * pair
    more = (top + k * c) / (bottom + k)
    grown = steps.identity("one more layer", more * lai, ghost)
    g, h = symbolic("g h")
    scaled = c * sp.Identity(g.rows)
    steps.identity("W W' = c I", sp.Trace(g.T * scaled * h), c * sp.Trace(g.T * h))

    @steps.conclude(statement)
    def all_layers(depth: int) -> list:
        shares, gains, alpha, beta = proportional(depth)
        values = {top: dot(shares[:-1], gains[:-1]), bottom: total(shares[:-1]), k: shares[-1], c: 1}
        return [
            total(grown.at(values | {pair: a * b}) for a, b in zip(firsts, lasts, strict=True))
            for firsts, lasts in zip(alpha, beta, strict=True)
        ]
