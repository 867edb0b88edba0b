r"""Random normal weights, shared by both samples: how norms and similarities grow in the mean square.

One unit. Its weights w are independent, normal, of variance v. Turn the coordinates so that g
lies along the first axis and h in the plane of the first two, which changes no law: ``x = a w_1``
and ``y = b w_1 + c w_2``. Normal moments (1, 3 for the second and fourth power) give
``E x y = v <g, h>`` and ``E x^2 y^2 = v^2 (P + 2 Q)``, ``P = |g|^2 |h|^2`` and ``Q = <g, h>^2``.

One more unit. What the others add up to is independent of it, so that the products' means are
products of means: the two formulas grow unit by unit as they must, whichever of z and j the
unit is active for.

All layers. ``P + 2 Q`` and ``P - Q`` are multiplied by ``1 + 2/n`` and ``1 - 1/n`` in a linear layer
with ``v = 1/n``: the closed form.
"""

import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, settled
from proofs._rewrites import plus
from proofs._symbols import total, vector


def expect(polynomial: sp.Expr, weights: list, variance: sp.Expr) -> sp.Expr:
    """Take the mean over independent normal weights, monomial by monomial."""
    moments = {0: 1, 2: variance, 4: 3 * variance**2}
    terms = sp.Poly(sp.expand(polynomial), *weights).terms()
    return total(
        coefficient * sp.prod([moments.get(power, 0) for power in powers]) for powers, coefficient in terms
    )


def arguments(depth: int) -> tuple:
    """Name both gradients, and the weights' variance."""
    return vector("g", 2), vector("h", 2), sp.Symbol("v", positive=True)


def layer(P, Q, v, active_z, active_j, both):
    """Give the norms and the square a layer below, by the numbers of active units."""
    return v**2 * (active_z * active_j * P + 2 * both * Q), v**2 * (both * P + (both + both**2) * Q)


def pairs(depth: int) -> sp.Expr:
    """Give the part of one unit's pairs of weights."""
    g, h, v = arguments(depth)
    return v**2 * depth * g.dot(h) ** 2


def recursion(depth: int) -> tuple[Equal, ...]:
    """State a layer's recursion for ``depth`` units active for both samples, gradients in the plane."""
    g, h, v = arguments(depth)
    weights = list(sp.symbols(f"w:{2 * depth}"))
    rows = [sp.Matrix(weights[2 * i : 2 * i + 2]) for i in range(depth)]
    x, y = ([row.dot(side) for row in rows] for side in (g, h))
    squared = total(a**2 for a in x) * total(b**2 for b in y)
    similarity = total(a * b for a, b in zip(x, y, strict=True))
    P, Q = g.dot(g) * h.dot(h), g.dot(h) ** 2
    new_norms, new_square = layer(P, Q, v, depth, depth, depth)
    return (
        Equal(expect(squared, weights, v), new_norms),
        Equal(expect(similarity**2, weights, v), new_square),
    )


RECURSION = Statement(
    "random-weights-variance",
    f"{STEP}; any widths; normal weights independent of the gates and of what comes from above",
    recursion,
    depths=(1, 2),
    arguments=arguments,
)
RECURSION_MUTANTS = {
    "norms without the pairs": plus(lambda depth: -2 * pairs(depth), only=0),
    "norms with the pairs once": plus(lambda depth: -pairs(depth), only=0),
    "only pairs of one unit": plus(lambda depth: -depth * pairs(depth), only=1),
    "pairs of units twice": plus(lambda depth: depth * pairs(depth), only=1),
}


@settled("random-weights-variance", RECURSION, RECURSION_MUTANTS)
def prove_random_weights_variance(statement: Statement, steps: Steps) -> None:
    """Take one unit, add units of each kind, then add layers."""
    a, b, c = sp.symbols("a b c", real=True)
    v = sp.Symbol("v", positive=True)
    w = list(sp.symbols("w0 w1"))
    x, y = a * w[0], b * w[0] + c * w[1]
    P, Q = a**2 * (b**2 + c**2), a**2 * b**2
    unit = v**2 * (P + 2 * Q)
    steps.identity("one unit's similarity", expect(x * y, w, v), v * a * b)
    steps.identity("its square", expect(x**2 * y**2, w, v), unit)

    active_z, active_j, both = sp.symbols("n_z n_j n", nonnegative=True)
    old, new = layer(P, Q, v, active_z, active_j, both), layer(P, Q, v, active_z + 1, active_j + 1, both + 1)
    steps.identity("norms, a unit more", new[0] - old[0], v**2 * (active_z + active_j) * P + unit)
    steps.identity("square, a unit more", new[1] - old[1], 2 * v**2 * both * Q + unit)
    alone = layer(P, Q, v, active_z + 1, active_j, both)
    steps.identity("norms, a unit for z alone", alone[0] - old[0], v**2 * active_j * P)
    steps.identity("square, a unit for z alone", alone[1] - old[1], sp.Integer(0))

    n = sp.Symbol("n", positive=True)
    p, q = sp.symbols("p q", real=True)
    more = layer(p, q, 1 / n, n, n, n)
    steps.identity("growing part", more[0] + 2 * more[1], (1 + 2 / n) * (p + 2 * q))
    steps.identity("shrinking part", more[0] - more[1], (1 - 1 / n) * (p - q))
    X, Y = sp.symbols("X Y", real=True)  # the two parts' growth over k layers

    def closed(growing, shrinking):
        return (p + 2 * q) / 3 * growing - (p - q) / 3 * shrinking

    steps.identity("closed form, no layer", closed(1, 1), q)
    parts = ((p + 2 * q) * X, (p - q) * Y)
    norms, square = (parts[0] + 2 * parts[1]) / 3, (parts[0] - parts[1]) / 3
    down = layer(norms, square, 1 / n, n, n, n)
    steps.identity("closed form, a layer more", closed((1 + 2 / n) * X, (1 - 1 / n) * Y), down[1])
    steps.base(statement, (1, 2))
