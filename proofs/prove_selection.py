"""What selecting by an approximate score can cost: sample by sample, in four cases of signs."""

import sympy as sp

from proofs._harness import AtMost, Statement, Steps, settled
from proofs._rewrites import each, times
from proofs._symbols import numbers, one_where, total

scale = sp.Symbol("lam", nonnegative=True)


def names(n: int) -> tuple[list, list]:
    """Name the exact and the approximate scores."""
    return numbers("S b", n)


def lost(v: sp.Expr, w: sp.Expr) -> sp.Expr:
    """Give what is lost where a sample of value v is kept for its score w, or not."""
    return sp.Max(v, 0) - sp.Piecewise((v, w > 0), (0, True))


def regret(n: int) -> AtMost:
    """State that the regret is at most the distance of scaled scores, sample by sample."""
    values, scores = names(n)
    distances = (abs(x - scale * y) for x, y in zip(values, scores, strict=True))
    return AtMost(total(map(lost, values, scores)), total(distances))


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
