r"""The gap between Ghost and LAI, its simplest bound, and when LAI is the nearer approximation.

Layers are numbered from the top here: ``beta[0]`` is the last layer's, so that one more layer at
the bottom leaves all others in place and adds one term. Everything is then a statement about one
term and a step "so far, and one more". Sums over validation samples grow in the same way.
"""

import sympy as sp

from proofs._chain import a2, bounded_product
from proofs._harness import STEP, AtMost, Equal, Statement, Steps, settled, within
from proofs._rewrites import becomes, each, plus, put, times, without
from proofs._symbols import dot, numbers, summed, total

SCOPE = "any depth, similarities of any sign"
LAST, C = sp.Symbol("beta0", real=True), sp.Symbol("C", nonnegative=True)


def names(depth: int) -> tuple[list, ...]:
    """Name the similarities from the top layer down."""
    return numbers("alpha beta", depth)


def lower_layers(depth: int) -> list[tuple]:
    """List the similarities below the last layer."""
    return list(zip(*names(depth), strict=True))[1:]


def gap(depth: int) -> sp.Expr:
    """Write the gap layer by layer."""
    return total(a * (b - LAST) for a, b in lower_layers(depth))


def statement(depth: int) -> Equal:
    """State that the gap is what the layers below the last one differ by."""
    alpha, beta = names(depth)
    return Equal(gap(depth), dot(alpha, beta) - total(alpha) * LAST)


def bound(depth: int) -> tuple[AtMost, ...]:
    """State the bound by the similarities added."""
    return within(total(C**2 * (abs(b) + abs(LAST)) for _, b in lower_layers(depth)), gap(depth))


def form(below: sp.Expr, alike: sp.Expr) -> sp.Expr:
    """Write the difference of squares by the mean ratio."""
    return alike**2 * (2 * below / alike - 1)


def below_and_alike(depth: int, start: int = 1) -> tuple:
    """Add up Ghost's terms below the top, and LAI's there."""
    alpha, beta = (side[start:] for side in names(depth))
    return dot(alpha, beta), total(alpha) * LAST


def nearer(depth: int) -> Equal:
    """State by how much LAI is nearer than LLI, in squares."""
    alpha, beta = names(depth)
    ghost, lai, lli = dot(alpha, beta), total(alpha) * LAST, alpha[0] * LAST
    return Equal((ghost - lli) ** 2 - (ghost - lai) ** 2, form(*below_and_alike(depth)))


STATEMENT = Statement(
    "app-epsilon-pair", f"{STEP}; similarities of any sign", statement, depths=(1, 2, 3, 4), arguments=names
)
MUTANTS = {
    "similarities added": put({LAST: -LAST}, of="lhs"),
    "alpha squared": each("alpha", lambda a: a**2, of="lhs"),
    "a lower layer left out": put(lambda depth: {sp.Symbol("alpha1", real=True): sp.S.Zero}, of="lhs"),
    "the first layer in the last one's place": put(lambda depth: {LAST: names(depth)[1][-1]}, of="lhs"),
}
BOUND = Statement(
    "zeta-bound",
    SCOPE,
    bound,
    given=lambda depth: a2(names(depth)[:1], C),
    depths=(1, 2, 3),
    arguments=lambda depth: (names(depth)[1], C),
)
BOUND_MUTANTS = {
    "C_a not squared": each("C", sp.sqrt),
    "without the lower similarity": put(lambda depth: {abs(b): sp.S.Zero for b in names(depth)[1][1:]}),
    "without the last similarity": put({abs(LAST): sp.S.Zero}),
    "activations not bounded": without("A2"),
}
NEARER = Statement(
    "lai-nearer-than-lli",
    f"{STEP}; any number of validation samples, similarities of any sign",
    nearer,
    depths=(2, 3),
    arguments=names,
)
NEARER_MUTANTS = {
    "a threshold of 1": plus(lambda depth: -(below_and_alike(depth)[1] ** 2)),
    "not squared": times(lambda depth: 1 / below_and_alike(depth)[1]),
    "the other way round": times(-1),
    "the last layer counted": becomes(lambda depth: form(*below_and_alike(depth, 0))),
}


@settled("app-epsilon-pair", STATEMENT, MUTANTS)
def prove_gap(statement: Statement, steps: Steps) -> None:
    """Add a layer at the bottom to Ghost, to the sum of alphas and to the gap."""
    steps.base(statement, (1, 2, 3))
    ghost, alphas, alpha, beta, last = sp.symbols("G A alpha beta last", real=True)
    so_far = ghost - alphas * last
    more = (ghost + alpha * beta) - (alphas + alpha) * last
    steps.identity("one more layer", more, so_far + alpha * (beta - last))


@settled("zeta-bound", BOUND, BOUND_MUTANTS)
def prove_pair_bound(statement: Statement, steps: Steps) -> None:
    """Bound one layer's term, for both signs of the gap."""
    lemmas, values = bounded_product(steps)

    @steps.conclude(statement)
    def added_up(depth: int) -> list:
        layers = lower_layers(depth)
        return summed(lemmas, [values(a, C**2, b - LAST, abs(b) + abs(LAST)) for a, b in layers])


@settled("lai-nearer-than-lli", NEARER, NEARER_MUTANTS)
def prove_lai_nearer_than_lli() -> None:
    """Reduce all sums to two: what Ghost has below the top, and what LAI has there instead."""
