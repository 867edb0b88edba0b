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

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import STEP, Equal, Statement, Steps, width
from proofs._symbols import matrices, matrix, total, vector

WIDTH = 2


def recursion(*, transposed: bool = True, slope: int = 1, shift: int = 0) -> Statement:
    """State one step of backpropagation through ``W phi(s)``, tried with ``phi(s) = s^3 + s``."""

    def arguments(depth: int) -> tuple:
        return matrix("W", width(WIDTH), width(WIDTH)), vector("s", width(WIDTH)), vector("g", width(WIDTH))

    def entry(weight: sp.Matrix, k: int, i: int) -> sp.Expr:
        return weight[k, i] if transposed else weight[i, k]

    def claim(depth: int) -> Equal:
        weight, s, g = arguments(depth)
        x = sp.Symbol("x")
        phi = x**3 + x
        loss = g.dot(weight * s.applyfunc(lambda value: phi.subs(x, value)))
        slopes = [
            sp.diff(phi, x).subs(x, s[(i + shift) % width(WIDTH)]) ** slope for i in range(width(WIDTH))
        ]
        carried = [
            slopes[i] * total(entry(weight, k, i) * g[k] for k in range(width(WIDTH)))
            for i in range(width(WIDTH))
        ]
        return Equal(sp.Matrix([sp.diff(loss, s[i]) for i in range(width(WIDTH))]), sp.Matrix(carried))

    return Statement(
        slug="vjp-recursion",
        scope="any widths, any differentiable activation",
        claim=claim,
        arguments=arguments,
        parts={"slope": slope, "shift": shift, "transposed": transposed},
    )


def recursion_proof(statement: Statement, steps: Steps) -> None:
    """Differentiate one output's share of the loss, for any activation; outputs add up."""
    part = statement.part
    relation = statement.relations(1)[0]
    steps.identity("two outputs, two inputs", relation.lhs, relation.rhs)
    x, w, g, so_far = sp.symbols("x w g F", real=True)
    phi = sp.Function("phi")
    steps.identity(
        "one more output", sp.diff(so_far + g * w * phi(x), x), g * w * phi(x).diff(x) ** part.slope
    )


RECURSION = recursion()
RECURSION_MUTANTS = {
    "weight not transposed": recursion(transposed=False),
    "no slope": recursion(slope=0),
    "slope of the next unit": recursion(shift=1),
}


@pytest.mark.equation("vjp-recursion")
def prove_vjp_recursion(settle):
    """Show that one layer carries the gradient down by Diag(phi') W'."""
    settle(RECURSION, recursion_proof, RECURSION_MUTANTS)


def chain(*, below_left: bool = True, dropped: int = 0, transposed: bool = False) -> Statement:
    """State that the recursion multiplies by the product of the Jacobians, the lowest leftmost."""

    def arguments(depth: int) -> tuple:
        return matrices("J", depth), vector("g", width(WIDTH))

    def join(below, above):
        below = below.T if transposed else below
        return below * above if below_left else above * below

    def claim(depth: int) -> Equal:
        jacobians, g = arguments(depth)
        gradient = g
        for jacobian in reversed(jacobians):
            gradient = jacobian * gradient
        operator = sp.eye(width(WIDTH))
        for jacobian in reversed(jacobians[dropped:]):
            operator = join(jacobian, operator)
        return Equal(gradient, operator * g)

    return Statement(
        slug="app-A-prod",
        scope=f"{STEP}; any widths; chains, where each layer separates what is below from the loss",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"join": join, "dropped": dropped},
    )


def chain_proof(statement: Statement, steps: Steps) -> None:
    """Start from the last layer's identity; add one layer below."""
    part = statement.part
    relation = statement.relations(1)[0]
    steps.identity("one layer", relation.lhs, relation.rhs)
    width = sp.Symbol("d", integer=True, positive=True)
    jacobian, operator = (sp.MatrixSymbol(name, width, width) for name in "JA")
    g = sp.MatrixSymbol("g", width, 1)
    steps.identity("one more layer below", jacobian * (operator * g), part.join(jacobian, operator) * g)


CHAIN = chain()
CHAIN_MUTANTS = {
    "the highest leftmost": chain(below_left=False),
    "from layer l + 2": chain(dropped=1),
    "Jacobians transposed": chain(transposed=True),
}


@pytest.mark.equation("app-A-prod")
def prove_app_a_prod(settle):
    """Show that the backward operator of a chain is the product of its layers' Jacobians."""
    settle(CHAIN, chain_proof, CHAIN_MUTANTS)


def paths(*, skip: int = 1, times: int = 1) -> Statement:
    """State that the operator is the sum over paths; numbers take all edges of layers of one unit."""

    def arguments(depth: int) -> tuple:
        nodes = depth + 1
        return ([sp.Symbol(f"E{k}_{t}", real=True) for t in range(nodes) for k in range(t)],)

    def join(edge, above):
        return times * edge * above

    def claim(depth: int) -> Equal:
        nodes = depth + 1
        names = iter(arguments(depth)[0])
        edges = {(k, t): next(names) for t in range(nodes) for k in range(t)}
        moved = [sp.Integer(1)]
        for t in range(1, nodes):
            moved.append(total(edges[k, t] * moved[k] for k in range(t)))
        operators = {depth: sp.Integer(1)}
        for k in range(depth - 1, -1, -1):
            above = range(k + 1, nodes)
            operators[k] = total((1 if t == k + 1 else skip) * join(edges[k, t], operators[t]) for t in above)
        return Equal(moved[-1], operators[0])

    return Statement(
        slug="separating-operator",
        scope="any directed acyclic graph of layers of any widths in which the last layer separates",
        claim=claim,
        depths=(1, 2, 3),
        arguments=arguments,
        parts={"skip": skip, "join": join},
    )


def paths_proof(statement: Statement, steps: Steps) -> None:
    """Move a layer a little: the last layer follows along each of its edges; edges add up."""
    part = statement.part
    width = sp.Symbol("d", integer=True, positive=True)
    edge, above, so_far = (sp.MatrixSymbol(name, width, width) for name in "EAS")
    # The operators are transposed Jacobians, so the last layer moves by the transposed operator.
    steps.identity("along one edge", above.T * edge.T, part.join(edge, above).T)
    more = so_far + part.skip * part.join(edge, above)
    steps.identity("one more edge", so_far.T + above.T * edge.T, more.T)
    relation = statement.relations(1)[0]
    steps.identity("one edge", relation.lhs, relation.rhs)


PATHS = paths()
PATHS_MUTANTS = {
    "skips left out": paths(skip=0),
    "every edge twice": paths(times=2),
    "skips subtracted": paths(skip=-1),
}


@pytest.mark.equation("separating-operator")
def prove_separating_operator(settle):
    """Show that the operator is the sum over paths wherever the last layer separates."""
    settle(PATHS, paths_proof, PATHS_MUTANTS)
