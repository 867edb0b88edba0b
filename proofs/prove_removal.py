r"""What removing a training sample does to the minimiser, to first order.

The path. With the summed Hessian ``H``, sample j's own Hessian ``A`` and gradient ``g`` at the minimiser
``t``, lowering the sample's weight by ``e`` leaves the condition
``(H - e A) t(e) - (b - e c) = 0`` with ``b = H t`` and ``c = A t - g``: exactly for quadratics, and for any
smooth losses up to higher orders of ``e``. Its part of first order in ``e`` is ``H t' - g``, whatever
``A`` is, so that ``t' = inv(H) g``; the matrices are of symbolic size.
"""

from collections.abc import Callable

import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, settled, under
from proofs._rewrites import becomes, times
from proofs._symbols import symbolic, symmetric, vector

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
def prove_removal_influence() -> None:
    """Read off the velocity of a path of stationary points."""


@settled("influence", PRINTED, PRINTED_MUTANTS)
def prove_influence(statement: Statement, steps: Steps) -> None:
    """Read off the stationarity condition's part of first order, for matrices of any size."""
    own, hessian, theta, g = symbolic("A H theta g")
    lowered = statement.part.lowered
    moved = lowered * hessian.I * g
    first_order = hessian * moved - lowered * own * theta + lowered * (own * theta - g)
    steps.identity("stationarity", first_order, sp.ZeroMatrix(*g.shape))
    steps.base(statement, (1,))
