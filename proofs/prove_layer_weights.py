r"""Layer weights: which ones the printed bound allows, and what each way of choosing them minimises.

Weights act layer by layer, so that worst cases add up over layers and validation samples, and one
term is enough.
"""

import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, settled, under
from proofs._rewrites import becomes, each, put, times
from proofs._symbols import dot, numbers, total

T, s, r = sp.symbols("T s r", nonnegative=True)
d = sp.symbols("d", positive=True)
w = sp.symbols("w", real=True)


def admissible(depth: int) -> tuple[AtMost, ...]:
    """State that the printed bound T holds for weights in [0, T] and fails for others, worst ratio for worst.

    A ratio is ``s T`` and a weight inside ``r T``, with s and r from 0 to 1; d is how far a weight
    lies outside.
    """
    below, above = -d, T + d
    return (
        AtMost(s * T - r * T, T),
        AtMost(r * T - s * T, T),
        AtMost(T, sp.Max(abs(0 - below), abs(T - below)), strict=True),
        AtMost(T, sp.Max(abs(0 - above), abs(T - above)), strict=True),
    )


def pair_names(pairs: int) -> tuple:
    """Name the pairs' alphas and similarities, the last ones, and the weight."""
    return *numbers("a beta last", pairs), w


def best(pairs: int, power: int = 2) -> sp.Expr:
    """Give the weight that fits best."""
    a, beta, last, _ = pair_names(pairs)
    return dot(*[a] * power, beta, last) / dot(a, a, last, last)


def worse(pairs: int, weight: sp.Expr) -> sp.Expr:
    """Give by how much w fits worse than a weight, if that fits best."""
    a, _, last, _ = pair_names(pairs)
    return dot(a, a, last, last) * (w - weight) ** 2


def decoupled(pairs: int) -> Equal:
    """State by how much another weight of one layer fits worse; alphas weigh the pairs."""
    rows = list(zip(*pair_names(pairs)[:3], strict=True))
    misfits = (total(a**2 * (y - v * z) ** 2 for a, y, z in rows) for v in (w, best(pairs)))
    return Equal(worse(pairs, best(pairs)), next(misfits) - next(misfits))


STATEMENT = Statement(
    "admissible-weights",
    "any depth, any rate; one layer, as layers' terms add up",
    admissible,
    given=lambda depth: under(MEANING, (AtMost(s, 1), AtMost(r, 1))),
    arguments=lambda depth: (s, r, T, d),
)
MUTANTS = {
    "no bound at all": times(0, only=0),
    "weights above the ratio's end": put({r * T: T + r}, only=1, of="lhs"),
    "weights outside that are inside": each("d", lambda d: -d, only=2),
}
DECOUPLED = Statement(
    "calibrated-decoupled",
    "any number of pairs, each layer by itself",
    decoupled,
    depths=(1, 2, 3),
    arguments=pair_names,
)
DECOUPLED_MUTANTS = {
    "twice the weight": becomes(lambda pairs: worse(pairs, 2 * best(pairs)), of="lhs"),
    "alpha not squared": becomes(lambda pairs: worse(pairs, best(pairs, 1)), of="lhs"),
    "twice the distance": times(2, of="lhs"),
}


@settled("admissible-weights", STATEMENT, MUTANTS)
def prove_admissible_weights() -> None:
    """Inside: T = b + e = w + f. Outside: at the far end of the ratios the error is T + d."""


@settled("calibrated-decoupled", DECOUPLED, DECOUPLED_MUTANTS)
def prove_decoupled_weights() -> None:
    """Write the misfit as A - 2 w B + w^2 D; one more pair adds to each of the three."""
