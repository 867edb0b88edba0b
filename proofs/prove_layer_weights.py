r"""Layer weights: which one fits best, layer by layer, as the layers' terms add up."""

import sympy as sp

from proofs._harness import Equal, Statement, settled
from proofs._rewrites import becomes, times
from proofs._symbols import dot, numbers, total

w = sp.symbols("w", real=True)


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


@settled("calibrated-decoupled", DECOUPLED, DECOUPLED_MUTANTS)
def prove_decoupled_weights() -> None:
    """Write the misfit as A - 2 w B + w^2 D; one more pair adds to each of the three."""
