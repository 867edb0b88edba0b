r"""What Ghost and LAI add up are inner products of gradients, layer by layer.

The gradient of a sample's loss in the weight ``W_l`` is ``g_l a_l'``, so that two samples'
gradients have the inner product ``<a_l, b_l> <g_l, h_l>`` there: Ghost. With the last layer's
gradients in every layer it is the inner product over virtual readouts: LAI. The printed scores
are the negatives.

Why the proof is for every depth and width. A column of the gradient is ``a_m g``; one more column
adds ``a_m b_m <g, h>`` for gradients of symbolic size, and one more layer adds one more term.
"""

import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, settled, width
from proofs._rewrites import each, plus, put, times
from proofs._symbols import total, vector

SCOPE = f"{STEP}; any widths"
WIDTH = 2


def statement(depth: int) -> tuple[Equal, Equal]:
    """State both definitions as gradient inner products."""
    a, b, g, h = arguments(depth)
    layers = range(depth)
    ghost = -total(a[k].dot(b[k]) * g[k].dot(h[k]) for k in layers)
    lai = -total(a[k].dot(b[k]) for k in layers) * g[-1].dot(h[-1])
    exact = -total(_inner(a[k], b[k], g[k], h[k]) for k in layers)
    readouts = -total(_inner(a[k], b[k], g[-1], h[-1]) for k in layers)
    return Equal(ghost, exact), Equal(lai, readouts)


def first_feedback(depth: int) -> dict:
    """Put the first layer's gradients in the last one's place."""
    return {old: new for side in arguments(depth)[2:] for old, new in zip(side[-1], side[0], strict=True)}


def arguments(depth: int) -> tuple:
    """Name the activations and gradients of both samples, layer by layer."""
    return tuple([vector(f"{name}{k}", width(WIDTH)) for k in range(depth)] for name in "abgh")


def _inner(a: sp.Matrix, b: sp.Matrix, g: sp.Matrix, h: sp.Matrix) -> sp.Expr:
    """Multiply two weight gradients entry by entry."""
    return sum(x * y for x, y in zip(g * a.T, h * b.T, strict=True))


def product(depth: int) -> Equal:
    """State that a similarity is given by lengths alone, whatever the basis."""
    g, h = vector("g", depth), vector("h", depth)
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
    arguments=lambda depth: (vector("g", depth), vector("h", depth)),
)
PRODUCT_MUTANTS = {
    "lengths added": plus(
        lambda depth: (
            2 * (vector("g", depth) - vector("h", depth)).dot(vector("g", depth) - vector("h", depth))
        )
    ),
    "half of it": times(sp.Rational(1, 2), of="lhs"),
    "one side twice": each("g", lambda entry: 2 * entry),
}


@settled("app-lai-defs", STATEMENT, MUTANTS)
def prove_definitions(statement: Statement, steps: Steps) -> None:
    """Show one column, one more column, and that the signal of LAI is the last layer's."""
    width = sp.symbols("d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, width, 1) for name in "gh")
    x, y = sp.symbols("x y", real=True)
    steps.identity("one column", (x * g).T * (y * h), x * y * (g.T * h))
    steps.base(statement, (1, 2))


@settled("similarities", PRODUCT, PRODUCT_MUTANTS)
def prove_similarities(statement: Statement, steps: Steps) -> None:
    """Expand both lengths for vectors of symbolic size."""
    width = sp.symbols("d", integer=True, positive=True)
    g, h = (sp.MatrixSymbol(name, width, 1) for name in "gh")
    lengths = sp.Trace((g + h).T * (g + h)) - sp.Trace((g - h).T * (g - h))
    polarised = steps.identity("polarisation", 4 * sp.Trace(g.T * h), lengths)
    steps.conclude(statement, lambda depth: polarised.at({g: vector("g", depth), h: vector("h", depth)}))
