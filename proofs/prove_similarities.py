r"""What Ghost and LAI add up are inner products of gradients, layer by layer.

The gradient of a sample's loss in the weight ``W_l`` is ``g_l a_l'``, so that two samples'
gradients have the inner product ``<a_l, b_l> <g_l, h_l>`` there: Ghost. With the last layer's
gradients in every layer it is the inner product over virtual readouts: LAI. The printed scores
are the negatives.

Why the proof is for every depth and width. A column of the gradient is ``a_m g``; one more column
adds ``a_m b_m <g, h>`` for gradients of symbolic size, and one more layer adds one more term.
"""

import sympy as sp

from proofs._chain import gradient_of_one_matrix
from proofs._harness import STEP, Equal, Statement, Steps, settled, width
from proofs._rewrites import each, plus, put, times
from proofs._symbols import dot, layers, side_by_side, symbolic, total, vector

SCOPE = f"{STEP}; any widths"
WIDTH = 2


def statement(depth: int) -> tuple[Equal, Equal]:
    """State both definitions as gradient inner products."""
    a, b, g, h = arguments(depth)
    ghost = -total(a[k].dot(b[k]) * g[k].dot(h[k]) for k in range(depth))
    exact = -total(dot(g[k] * a[k].T, h[k] * b[k].T) for k in range(depth))
    readouts = -total(dot(g[-1] * x.T, h[-1] * y.T) for x, y in zip(a, b, strict=True))
    return Equal(ghost, exact), Equal(-side_by_side(a, b) * g[-1].dot(h[-1]), readouts)


def first_feedback(depth: int) -> dict:
    """Put the first layer's gradients in the last one's place."""
    return {old: new for side in arguments(depth)[2:] for old, new in zip(side[-1], side[0], strict=True)}


def arguments(depth: int) -> tuple:
    """Name the activations and gradients of both samples, layer by layer."""
    return tuple(layers("a b g h", depth, width(WIDTH)))


def vectors(depth: int) -> tuple[sp.Matrix, sp.Matrix]:
    """Name two gradients."""
    return vector("g", depth), vector("h", depth)


def product(depth: int) -> Equal:
    """State that a similarity is given by lengths alone, whatever the basis."""
    g, h = vectors(depth)
    return Equal(4 * g.dot(h), (g + h).dot(g + h) - (g - h).dot(g - h))


STATEMENT = Statement("app-lai-defs", SCOPE, statement, depths=(1, 2, 3), arguments=arguments)
MUTANTS = {
    "a score's sign": times(-1, of="lhs"),
    "feedback squared": times(
        lambda depth: arguments(depth)[2][-1].dot(arguments(depth)[3][-1]), only=1, of="lhs"
    ),
    "first layer left out": put(lambda depth: dict.fromkeys(arguments(depth)[0][0], sp.S.Zero), of="lhs"),
    "the first layer's feedback": put(first_feedback, only=1, of="lhs"),
}
PRODUCT = Statement(
    "similarities",
    "any width",
    product,
    depths=(1, 2, 3),
    arguments=vectors,
)
PRODUCT_MUTANTS = {
    "lengths added": plus(
        lambda depth: 2 * total((x - y) ** 2 for x, y in zip(*vectors(depth), strict=True))
    ),
    "half of it": times(sp.Rational(1, 2), of="lhs"),
    "one side twice": each("g", lambda entry: 2 * entry),
}


@settled("app-lai-defs", STATEMENT, MUTANTS)
def prove_definitions(statement: Statement, steps: Steps) -> None:
    """Show one column, one more column, and that the signal of LAI is the last layer's."""
    gradient_of_one_matrix(steps)
    steps.base(statement, (1, 2))


@settled("similarities", PRODUCT, PRODUCT_MUTANTS)
def prove_similarities(statement: Statement, steps: Steps) -> None:
    """Expand both lengths for vectors of symbolic size."""
    g, h = symbolic("g h")
    lengths = sp.Trace((g + h).T * (g + h)) - sp.Trace((g - h).T * (g - h))
    polarised = steps.identity("polarisation", 4 * sp.Trace(g.T * h), lengths)
    steps.conclude(statement, lambda depth: polarised.at(dict(zip((g, h), vectors(depth), strict=True))))
