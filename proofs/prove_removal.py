r"""What removing a training sample does to the minimiser, to first order and, for quadratics, exactly.

The path. With the summed Hessian ``H``, sample j's own Hessian ``A`` and gradient ``g`` at the minimiser
``t``, lowering the sample's weight by ``e`` leaves the condition
``(H - e A) t(e) - (b - e c) = 0`` with ``b = H t`` and ``c = A t - g``: exactly for quadratics, and for any
smooth losses up to higher orders of ``e``. Its part of first order in ``e`` is ``H t' - g``, whatever
``A`` is, so that ``t' = inv(H) g``; the matrices are of symbolic size. With ``e = 1`` and the remaining
Hessian ``R = H - A`` the condition itself is solved by ``t + inv(R) g``.
"""

from __future__ import annotations

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, under

SCOPE = "any number of parameters, any invertible Hessian; first order in the weight"
EXACT_SCOPE = "any number of parameters, any quadratic losses whose remaining Hessian is invertible"
PARAMETERS = (1, 2)


def statement(slug: str, *, lowered: int, sign: int, solved_with: str = "all", samples: int = 1) -> Statement:
    """State the first-order effect on the validation loss of lowering (1) or raising (-1) a weight."""

    def claim(p: int) -> Equal:
        v, g, hessian, own, theta = arguments(p)
        weight = sp.Symbol("epsilon")
        path = (hessian - lowered * weight * own).inv() * (
            hessian * theta - lowered * weight * (own * theta - g)
        )
        slope = v.dot(path.diff(weight).subs(weight, 0))
        used = {"all": hessian, "remaining": hessian - own, "identity": sp.eye(p)}[solved_with]
        return Equal(slope, sign * samples * v.dot(used.inv() * g))

    return Statement(
        slug=slug,
        scope=SCOPE,
        claim=claim,
        given=_invertible,
        depths=PARAMETERS,
        arguments=arguments,
        parts={"lowered": lowered, "sign": sign, "solved_with": solved_with, "samples": samples},
    )


def arguments(p: int) -> tuple:
    """Name the validation gradient, the sample's gradient, both Hessians and the minimiser."""
    v, g, theta = (sp.Matrix(sp.symbols(f"{name}_:{p}", real=True)) for name in ("v", "g", "theta"))
    return v, g, _symmetric("h", p), _symmetric("k", p), theta


def _symmetric(name: str, p: int) -> sp.Matrix:
    return sp.Matrix(p, p, lambda i, j: sp.Symbol(f"{name}_{min(i, j)}{max(i, j)}", real=True))


def _invertible(p: int) -> tuple[AtMost, ...]:
    _, _, hessian, _, _ = arguments(p)
    return under("$H$ is invertible", (AtMost(0, hessian.det() ** 2, strict=True),))


def _both_invertible(p: int) -> tuple[AtMost, ...]:
    _, _, hessian, own, _ = arguments(p)
    both = (AtMost(0, m.det() ** 2, strict=True) for m in (hessian, hessian - own))
    return under("$H$ and $H - H_j$ are invertible", both)


def proof(statement: Statement, steps: Steps) -> None:
    """Read off the stationarity condition's part of first order, for matrices of any size."""
    part, n = statement.part, sp.Symbol("p", integer=True, positive=True)
    own, rest = (sp.MatrixSymbol(name, n, n) for name in ("A", "R"))
    theta, g = (sp.MatrixSymbol(name, n, 1) for name in ("theta", "g"))
    hessian = sp.MatrixSymbol("H", n, n)
    used = {"all": hessian.I * g, "remaining": rest.I * g, "identity": g}[part.solved_with]
    moved = part.sign * part.samples * used
    first_order = hessian * moved - part.lowered * own * theta + part.lowered * (own * theta - g)
    steps.identity("stationarity", first_order, sp.ZeroMatrix(n, 1))
    relation = statement.relations(1)[0]
    steps.identity("one parameter", relation.lhs, relation.rhs)


REMOVAL = statement("removal-influence", lowered=1, sign=1)
REMOVAL_MUTANTS = {
    "the printed sign": statement("removal-influence", lowered=1, sign=-1),
    "the remaining Hessian": statement("removal-influence", lowered=1, sign=1, solved_with="remaining"),
    "no Hessian": statement("removal-influence", lowered=1, sign=1, solved_with="identity"),
    "scaled as for a mean of two": statement("removal-influence", lowered=1, sign=1, samples=2),
}


@pytest.mark.equation("removal-influence")
def prove_removal_influence(settle):
    """Show that removal moves the validation loss by plus the product, to first order."""
    settle(REMOVAL, proof, REMOVAL_MUTANTS)


PRINTED = statement("influence", lowered=-1, sign=-1)
PRINTED_MUTANTS = {
    "read as removal": statement("influence", lowered=1, sign=-1),
    "the other sign": statement("influence", lowered=-1, sign=1),
    "no Hessian": statement("influence", lowered=-1, sign=-1, solved_with="identity"),
}


@pytest.mark.equation("influence")
def prove_printed_influence(settle):
    """Show that the printed formula is the effect of counting the sample more, not of removing it."""
    settle(PRINTED, proof, PRINTED_MUTANTS)


def exact_statement(*, sign: int = 1, solved_with: str = "remaining") -> Statement:
    """State by how much the minimiser of quadratics moves when one of them is removed."""

    def claim(p: int) -> Equal:
        _, g, hessian, own, theta = arguments(p)
        retrained = (hessian - own).inv() * (hessian * theta - (own * theta - g))
        used = hessian - own if solved_with == "remaining" else hessian
        return Equal(retrained - theta, sign * used.inv() * g)

    return Statement(
        slug="leave-one-out",
        scope=EXACT_SCOPE,
        claim=claim,
        given=_both_invertible,
        depths=PARAMETERS,
        arguments=lambda p: arguments(p)[1:],
        parts={"sign": sign, "solved_with": solved_with},
    )


def exact_proof(statement: Statement, steps: Steps) -> None:
    """Put the claimed minimiser into the remaining samples' condition."""
    part, n = statement.part, sp.Symbol("p", integer=True, positive=True)
    own, rest = (sp.MatrixSymbol(name, n, n) for name in ("A", "R"))
    theta, g = (sp.MatrixSymbol(name, n, 1) for name in ("theta", "g"))
    used = rest.I if part.solved_with == "remaining" else (rest + own).I
    left = rest * (theta + part.sign * used * g)
    steps.identity("stationarity", left, (rest + own) * theta - (own * theta - g))
    steps.base(statement, (1,))


LEAVE_ONE_OUT = exact_statement()
LEAVE_ONE_OUT_MUTANTS = {
    "the other sign": exact_statement(sign=-1),
    "the Hessian of all samples": exact_statement(solved_with="all"),
}


@pytest.mark.equation("leave-one-out")
def prove_leave_one_out(settle):
    """Show that the displacement solves the remaining samples' Hessian."""
    settle(LEAVE_ONE_OUT, exact_proof, LEAVE_ONE_OUT_MUTANTS)


def leverage_statement(*, sign: int = -1, power: int = 1) -> Statement:
    """State the least-squares case: one row x with residual r, and its leverage."""

    def claim(p: int) -> Equal:
        hessian, row, residual = leverage_arguments(p)
        leverage = row.dot(hessian.inv() * row)
        exact = (hessian - row * row.T).inv() * (residual * row)
        return Equal(exact, hessian.inv() * (residual * row) / (1 + sign * leverage) ** power)

    def given(p: int) -> tuple[AtMost, ...]:
        hessian, row, _ = leverage_arguments(p)
        both = (AtMost(0, m.det() ** 2, strict=True) for m in (hessian, hessian - row * row.T))
        return under("$H$ and $H - H_j$ are invertible", both)

    return Statement(
        slug="leave-one-out",
        scope=EXACT_SCOPE,
        claim=claim,
        given=given,
        depths=PARAMETERS,
        arguments=leverage_arguments,
        parts={"sign": sign, "power": power},
    )


def leverage_arguments(p: int) -> tuple:
    """Name the Hessian of all rows, the row left out and its residual."""
    return (
        _symmetric("h", p),
        sp.Matrix(sp.symbols(f"x_:{p}", real=True)),
        sp.Symbol("r", real=True),
    )


def leverage_proof(statement: Statement, steps: Steps) -> None:
    """Multiply by the remaining Hessian: it maps ``inv(H) x`` to ``(1 - h) x``."""
    part, n = statement.part, sp.Symbol("p", integer=True, positive=True)
    hessian, row = sp.MatrixSymbol("H", n, n), sp.MatrixSymbol("x", n, 1)
    mapped = (hessian - row * row.T) * (hessian.I * row)
    steps.identity("the row's image", mapped, row - row * (row.T * hessian.I * row))
    leverage = sp.Symbol("h", positive=True)
    steps.identity("its factor", (1 - leverage) / (1 + part.sign * leverage) ** part.power, sp.Integer(1))
    steps.base(statement, (1,))


LEVERAGE = leverage_statement()
LEVERAGE_MUTANTS = {
    "the other sign": leverage_statement(sign=1),
    "no leverage": leverage_statement(sign=0),
    "the leverage squared": leverage_statement(power=2),
}


@pytest.mark.equation("leave-one-out")
def prove_leverage(settle):
    """Show that the first-order step of least squares is too small by one minus the leverage."""
    settle(LEVERAGE, leverage_proof, LEVERAGE_MUTANTS)
