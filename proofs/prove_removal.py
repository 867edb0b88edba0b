r"""What removing a training sample does to the minimiser, to first order and, for quadratics, exactly.

The path. With the summed Hessian ``H``, sample j's own Hessian ``A`` and gradient ``g`` at the minimiser
``t``, lowering the sample's weight by ``e`` leaves the condition
``(H - e A) t(e) - (b - e c) = 0`` with ``b = H t`` and ``c = A t - g``: exactly for quadratics, and for any
smooth losses up to higher orders of ``e``. Its part of first order in ``e`` is ``H t' - g``, whatever
``A`` is, so that ``t' = inv(H) g``; the matrices are of symbolic size. With ``e = 1`` and the remaining
Hessian ``R = H - A`` the condition itself is solved by ``t + inv(R) g``.
"""

from collections.abc import Callable

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, settled, under
from proofs._rewrites import becomes, times
from proofs._symbols import symbolic, symmetric, vector

EXACT_SCOPE = "any number of parameters, any quadratic losses whose remaining Hessian is invertible"
PARAMETERS = (1, 2)


def arguments(p: int) -> tuple:
    """Name the validation gradient, the sample's gradient, both Hessians and the minimiser."""
    v, g, theta = (vector(name, p) for name in ("v", "g", "theta"))
    return v, g, symmetric("h", p), symmetric("k", p), theta


def statement(slug: str, lowered: int) -> Statement:
    """State the first-order effect on the validation loss of lowering (1) or raising (-1) a weight."""

    def claim(p: int) -> Equal:
        v, g, hessian, own, theta = arguments(p)
        weight = sp.Symbol("epsilon")
        moment = hessian * theta - lowered * weight * (own * theta - g)
        path = (hessian - lowered * weight * own).inv() * moment
        return Equal(v.dot(path.diff(weight).subs(weight, 0)), lowered * v.dot(hessian.inv() * g))

    return Statement(
        slug,
        "any number of parameters, any invertible Hessian; first order in the weight",
        claim,
        given=lambda p: invertible("$H$ is invertible", arguments(p)[2]),
        depths=PARAMETERS,
        arguments=arguments,
        parts={"lowered": lowered},
    )


def product(p: int, inverse: Callable = lambda hessian, own: sp.eye(hessian.rows)) -> sp.Expr:
    """Multiply the gradients, one of them by a function of both Hessians."""
    v, g, hessian, own, _ = arguments(p)
    return v.dot(inverse(hessian, own) * g)


def invertible(words: str, *hessians: sp.Matrix) -> tuple[AtMost, ...]:
    """State that Hessians are invertible."""
    return under(words, (AtMost(0, hessian.det() ** 2, strict=True) for hessian in hessians))


BOTH = "$H$ and $H - H_j$ are invertible"


REMOVAL = statement("removal-influence", 1)
REMOVAL_MUTANTS = {
    "the printed sign": times(-1),
    "the remaining Hessian": becomes(lambda p: product(p, lambda hessian, own: (hessian - own).inv())),
    "no Hessian": becomes(product),
    "scaled as for a mean of two": times(2),
}


PRINTED = statement("influence", -1)
PRINTED_MUTANTS = {
    "read as removal": times(-1, of="lhs"),
    "the other sign": times(-1),
    "no Hessian": becomes(lambda p: -product(p)),
}


@settled("removal-influence", REMOVAL, REMOVAL_MUTANTS)
@settled("influence", PRINTED, PRINTED_MUTANTS)
def prove_influence(statement: Statement, steps: Steps) -> None:
    """Read off the stationarity condition's part of first order, for matrices of any size."""
    own, hessian, theta, g = symbolic("A H theta g")
    lowered = statement.part.lowered
    moved = lowered * hessian.I * g
    first_order = hessian * moved - lowered * own * theta + lowered * (own * theta - g)
    steps.identity("stationarity", first_order, sp.ZeroMatrix(*g.shape))
    steps.base(statement, (1,))


def exact_statement(p: int) -> Equal:
    """State by how much the minimiser of quadratics moves when one of them is removed."""
    _, g, hessian, own, theta = arguments(p)
    retrained = (hessian - own).inv() * (hessian * theta - (own * theta - g))
    return Equal(retrained - theta, (hessian - own).inv() * g)


LEAVE_ONE_OUT = Statement(
    "leave-one-out",
    EXACT_SCOPE,
    exact_statement,
    given=lambda p: invertible(BOTH, arguments(p)[2], arguments(p)[2] - arguments(p)[3]),
    depths=PARAMETERS,
    arguments=lambda p: arguments(p)[1:],
)
LEAVE_ONE_OUT_MUTANTS = {
    "the other sign": times(-1),
    "the Hessian of all samples": becomes(lambda p: arguments(p)[2].inv() * arguments(p)[1]),
}


@settled("leave-one-out", LEAVE_ONE_OUT, LEAVE_ONE_OUT_MUTANTS)
def prove_leave_one_out(statement: Statement, steps: Steps) -> None:
    """Put the claimed minimiser into the remaining samples' condition."""
    own, rest, theta, g = symbolic("A R theta g")
    left = rest * (theta + rest.I * g)
    steps.identity("stationarity", left, (rest + own) * theta - (own * theta - g))
    steps.base(statement, (1,))


def leverage_statement(p: int) -> Equal:
    """State the least-squares case: one row x with residual r, and its leverage."""
    hessian, row, residual = leverage_arguments(p)
    exact = (hessian - row * row.T).inv() * (residual * row)
    return Equal(exact, hessian.inv() * (residual * row) / (1 - leverage(p)))


def row_invertible(p: int) -> tuple[AtMost, ...]:
    """State that the Hessian is invertible, with the row and without it."""
    hessian, row, _ = leverage_arguments(p)
    return invertible(BOTH, hessian, hessian - row * row.T)


def leverage(p: int) -> sp.Expr:
    """Give the row's leverage."""
    hessian, row, _ = leverage_arguments(p)
    return row.dot(hessian.inv() * row)


def leverage_arguments(p: int) -> tuple:
    """Name the Hessian of all rows, the row left out and its residual."""
    return symmetric("h", p), vector("x", p), sp.Symbol("r", real=True)


LEVERAGE = Statement(
    "leave-one-out",
    EXACT_SCOPE,
    leverage_statement,
    given=row_invertible,
    depths=PARAMETERS,
    arguments=leverage_arguments,
)
LEVERAGE_MUTANTS = {
    "the other sign": times(lambda p: (1 - leverage(p)) / (1 + leverage(p))),
    "no leverage": times(lambda p: 1 - leverage(p)),
    "the leverage squared": times(lambda p: 1 / (1 - leverage(p))),
}


@settled("leave-one-out", LEVERAGE, LEVERAGE_MUTANTS)
def prove_leverage(statement: Statement, steps: Steps) -> None:
    """Multiply by the remaining Hessian: it maps ``inv(H) x`` to ``(1 - h) x``."""
    hessian, row = symbolic("H x")
    mapped = (hessian - row * row.T) * (hessian.I * row)
    steps.identity("the row's image", mapped, row - row * (row.T * hessian.I * row))
    steps.base(statement, (1,))
