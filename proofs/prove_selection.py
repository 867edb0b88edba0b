"""What selecting by an approximate score can cost: sample by sample, in four cases of signs."""

import sympy as sp

from proofs._harness import AtMost, Statement, settled
from proofs._rewrites import each, times
from proofs._symbols import numbers, total

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
def prove_selection_regret() -> None:
    """Four cases of signs; what is lost is only ever a sample whose signs differ."""
