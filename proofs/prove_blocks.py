"""The least regret that errors allow: where signs differ, ``|v| + |w| = |v - w| <= e``."""

import sympy as sp

from proofs._harness import AtMost, Statement, settled, under, within
from proofs._rewrites import each, given, times

v, w = sp.symbols("v w", real=True)
e = sp.Symbol("e", nonnegative=True)


def regret(depth: int) -> AtMost:
    """State one sample's part of the regret: its score where it is misjudged, else nothing."""
    return AtMost(sp.Max(v, 0) - sp.Piecewise((v, w > 0), (0, True)), sp.Max(e - abs(w), 0))


REGRET = Statement(
    "certified-regret",
    "any number of samples; the regret is a sum over them",
    regret,
    given=lambda depth: under(r"$|v_j - \hat v_j| \le \epsilon_j$ for every $j$", within(e, v - w)),
)
REGRET_MUTANTS = {
    "half of it": times(sp.Rational(1, 2)),
    "scores twice": each("w", lambda w: 2 * w),
    "errors bounded on one side": given(lambda r, depth: r if r.lhs == v - w else None),
}


@settled("certified-regret", REGRET, REGRET_MUTANTS)
def prove_certified_regret() -> None:
    """Take a sample that is kept and hurts, and one that is dropped and helps; both attain the bound."""
