r"""Layer Jacobians multiply to the operator that carries the last gradient down; with skips, paths add up.

One layer. Move the pre-activations ``s`` below a layer ``W phi(s)`` by a little: the loss,
to first order ``<g, W phi(s)>``, has the derivative ``phi'(s_i) sum_k W_ki g_k``, a sum over
outputs, to which one more output adds one more term.

A chain. One more layer below multiplies the operator from the left.

With skips. If ``s_k`` enters ``s_t`` directly through ``E_kt'``, for several t, moving ``s_k``
moves the last layer by ``sum_t A_t' E_kt'`` times as much: the sum over the first edges of
all paths of what the rest of the path does.

Widths. The proofs use one symbolic width; narrower layers are wider ones with zero rows and
columns, on which no step depends.
"""

import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, settled, width
from proofs._rewrites import becomes, each, put
from proofs._symbols import matrices, matrix, product, symbolic, total, transposed, vector

WIDTH = 2


def recursion_arguments(depth: int) -> tuple:
    return matrix("W", width(WIDTH), width(WIDTH)), vector("s", width(WIDTH)), vector("g", width(WIDTH))


def recursion(depth: int) -> Equal:
    """State one step of backpropagation through ``W phi(s)``, tried with ``phi(s) = s^3 + s``."""
    weight, s, g = recursion_arguments(depth)
    x = sp.Symbol("x")
    phi = x**3 + x
    loss = g.dot(weight * s.applyfunc(lambda value: phi.subs(x, value)))
    slopes = s.applyfunc(lambda value: sp.diff(phi, x).subs(x, value))
    return Equal(loss.diff(s), slopes.multiply_elementwise(weight.T * g))


def next_unit(depth: int) -> dict:
    """Give each unit the next one's pre-activation."""
    first, *others = s = recursion_arguments(depth)[1]
    return dict(zip(s, (*others, first), strict=True))


RECURSION = Statement(
    "vjp-recursion", "any widths, any differentiable activation", recursion, arguments=recursion_arguments
)
RECURSION_MUTANTS = {
    "weight not transposed": put(lambda depth: transposed(recursion_arguments(depth)[0])),
    "no slope": becomes(lambda depth: recursion_arguments(depth)[0].T * recursion_arguments(depth)[2]),
    "slope of the next unit": put(next_unit),
}


@settled("vjp-recursion", RECURSION, RECURSION_MUTANTS)
def prove_vjp_recursion(statement: Statement, steps: Steps) -> None:
    """Differentiate one output's share of the loss, for any activation; outputs add up."""
    steps.base(statement, (1,))
    x, w, g, so_far = sp.symbols("x w g F", real=True)
    phi = sp.Function("phi")
    steps.identity("one more output", sp.diff(so_far + g * w * phi(x), x), g * w * phi(x).diff(x))


def chain_arguments(depth: int) -> tuple:
    return matrices("J", depth), vector("g", width(WIDTH))


def replaced(depth: int, by) -> dict:
    """Put ``by(k)``, if it is a matrix, in the place of Jacobian k."""
    new = ((jacobian, by(k)) for k, jacobian in enumerate(chain_arguments(depth)[0]))
    return {
        old: x for jacobian, other in new if other is not None for old, x in zip(jacobian, other, strict=True)
    }


def chain(depth: int) -> Equal:
    """State that the recursion multiplies by the product of the Jacobians, the lowest leftmost."""
    jacobians, g = chain_arguments(depth)
    gradient = g
    for jacobian in reversed(jacobians):
        gradient = jacobian * gradient
    return Equal(gradient, product(jacobians) * g)


CHAIN = Statement(
    "app-A-prod",
    f"{STEP}; any widths; chains, where each layer separates what is below from the loss",
    chain,
    depths=(1, 2, 3),
    arguments=chain_arguments,
)
CHAIN_MUTANTS = {
    "the highest leftmost": put(
        lambda depth: replaced(depth, lambda k: chain_arguments(depth)[0][depth - 1 - k])
    ),
    "from layer l + 2": put(
        lambda depth: replaced(depth, lambda k: sp.eye(width(WIDTH)) if k == 0 else None)
    ),
    "Jacobians transposed": put(lambda depth: replaced(depth, lambda k: chain_arguments(depth)[0][k].T)),
}


@settled("app-A-prod", CHAIN, CHAIN_MUTANTS)
def prove_app_a_prod(statement: Statement, steps: Steps) -> None:
    """Start from the last layer's identity; add one layer below."""
    steps.base(statement, (1, 2))
    jacobian, operator, g = symbolic("J A g")
    steps.identity("one more layer below", jacobian * (operator * g), jacobian * operator * g)


def paths_arguments(depth: int) -> tuple:
    nodes = depth + 1
    return ([sp.Symbol(f"E{k}_{t}", real=True) for t in range(nodes) for k in range(t)],)


def skips(depth: int) -> list:
    """List the edges that pass over a layer."""
    return [sp.Symbol(f"E{k}_{t}", real=True) for t in range(depth + 1) for k in range(t - 1)]


def paths(depth: int) -> Equal:
    """State that the operator is the sum over paths; numbers take all edges of layers of one unit."""
    nodes = depth + 1
    pairs = [(k, t) for t in range(nodes) for k in range(t)]
    edges = dict(zip(pairs, paths_arguments(depth)[0], strict=True))
    moved = [sp.Integer(1)]
    for t in range(1, nodes):
        moved.append(total(edges[k, t] * moved[k] for k in range(t)))
    operators = {depth: sp.Integer(1)}
    for k in reversed(range(depth)):
        operators[k] = total(edges[k, t] * operators[t] for t in range(k + 1, nodes))
    return Equal(moved[-1], operators[0])


PATHS = Statement(
    "separating-operator",
    "any directed acyclic graph of layers of any widths in which the last layer separates",
    paths,
    depths=(1, 2, 3),
    arguments=paths_arguments,
)
PATHS_MUTANTS = {
    "skips left out": put(lambda depth: dict.fromkeys(skips(depth), sp.S.Zero)),
    "every edge twice": each("E", lambda edge: 2 * edge),
    "skips subtracted": put(lambda depth: {edge: -edge for edge in skips(depth)}),
}


@settled("separating-operator", PATHS, PATHS_MUTANTS)
def prove_separating_operator() -> None:
    """Move a layer a little: the last layer follows along each of its edges; edges add up."""
