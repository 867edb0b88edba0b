"""False statements that the harness must not accept: a referee's, and every bound made a tenth smaller."""

import dataclasses
import importlib

import pytest
import sympy as sp

from proofs import prove_decay_bounds_gain, prove_geometric, prove_jacobian_noise, prove_ratios
from proofs._harness import AtMost, Equal, Statement, judge, refute
from tests.support import ledger

PROOFS = sorted(path.stem for path in (ledger.ROOT / "proofs").glob("prove_*.py"))
REJECTED = r"the statement is false at|the solver refutes"
NOT_ATTAINED = {
    "prove_aggregation.OWN.1",  # 0 on the right
    "prove_assumptions.SIGN.0",  # likewise
    "prove_conservative.RELATIVE.1",  # attained from below, where LAI exceeds Ghost, at depths that stay open
    "prove_descent.REMAINDER.2",  # the sign itself
    "prove_descent.REMAINDER.3",  # likewise
    "prove_lai.SEMIDEFINITE.0",  # 0 on the left
    "prove_rank.STATEMENT.1",  # the cosine's own range
    "prove_rank.PEARSON.1",  # likewise
    "prove_ratios.BELOW_ONE.0",  # 0 on the left
    "prove_selection.FLIP.2",  # a sign
    "prove_selection.FLIP.3",  # likewise
    "prove_unit_gain_variance.STATEMENT.1",  # 0 on the left
}


def gains_of_dependent_operators(depth):
    """Center the noise on average alone, not given the gradient: each operator meets one gradient."""
    first, second = (sp.Matrix(2, 2, sp.symbols(f"{name}:4", real=True)) for name in "PQ")
    mean = (first + second) / 2
    rho = prove_decay_bounds_gain.RHO
    claim = AtMost((mean.T * mean).trace() / 2, rho ** (2 * depth))
    lengths = (sum(x**2 for x in first[:, 0]), sum(x**2 for x in second[:, 1]))
    return claim, tuple(AtMost(length, rho ** (2 * depth)) for length in lengths)


def limit_without_bars(depth):
    alpha = sp.symbols(f"alpha:{depth}", real=True)
    last = alpha[0] / sp.Add(*alpha)
    return Equal(abs(1 - last), 1 - last), (AtMost(0, sp.Add(*alpha) ** 2, strict=True),)


def first_order_alone(depth):
    """Bound a product's variance by what is of first order in the layers' variances."""
    gains, rests = (sp.symbols(f"{name}:{depth}", nonnegative=True) for name in "gn")
    product = sp.Mul(*(g + n for g, n in zip(gains, rests, strict=True)))
    kept = sp.Add(*(sp.Mul(n, *(g for k, g in enumerate(gains) if k != i)) for i, n in enumerate(rests)))
    return AtMost(product - sp.Mul(*gains), kept), ()


def replaced(statement, claim_and_given):
    return dataclasses.replace(
        statement,
        claim=lambda depth: claim_and_given(depth)[0],
        given=lambda depth: claim_and_given(depth)[1],
        sample=None,
    )


def strictly_below_one(depth):
    statement = prove_ratios.BELOW_ONE
    error = statement.relations(depth)[1].lhs
    return AtMost(error, 1, strict=True), statement.given(depth)


def two_terms_of_the_sum(depth):
    statement = prove_geometric.LLI
    rho = prove_geometric.RHO
    most = statement.relations(depth)[0].rhs
    powers = sp.Add(*(rho ** (2 * k) for k in range(1, depth)))
    short = sp.Add(*(rho ** (2 * k) for k in range(1, min(depth, 3))))
    lhs = statement.relations(depth)[0].lhs
    return AtMost(lhs, sp.expand(most).coeff(rho, 2) * short if powers else most), statement.given(depth)


FALSE = {
    "gains of operators that depend on the gradient": (
        prove_decay_bounds_gain.STATEMENT,
        prove_decay_bounds_gain.proof,
        gains_of_dependent_operators,
    ),
    "an error below one, strictly": (
        prove_ratios.BELOW_ONE,
        prove_ratios.below_one_proof,
        strictly_below_one,
    ),
    "the relative limit without bars": (
        prove_geometric.LIMIT,
        prove_geometric.limit_proof,
        limit_without_bars,
    ),
    "two terms of the sum at any depth": (
        prove_geometric.LLI,
        prove_geometric.lli_proof,
        two_terms_of_the_sum,
    ),
    "noise to first order alone": (
        prove_jacobian_noise.BOUND,
        prove_jacobian_noise.bound_proof,
        first_order_alone,
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_statement_is_rejected_whatever_its_proof(name):
    statement, proof, claim_and_given = FALSE[name]
    with pytest.raises(AssertionError, match=REJECTED):
        judge(replaced(statement, claim_and_given), proof, {})


def bounds():
    for name in PROOFS:
        module = importlib.import_module(f"proofs.{name}")
        for title, value in vars(module).items():
            if isinstance(value, Statement):
                relations = value.relations(value.depths[0])
                for index, relation in enumerate(relations):
                    if isinstance(relation, AtMost):
                        yield f"{name}.{title}.{index}", value, index


BOUNDS = {name: (value, index) for name, value, index in bounds()}


@pytest.mark.parametrize("name", sorted(set(BOUNDS) - NOT_ATTAINED))
def test_a_bound_made_a_tenth_smaller_is_rejected(name):
    statement, index = BOUNDS[name]

    def claim(depth):
        relation = statement.relations(depth)[index]
        return AtMost(relation.lhs, sp.Rational(9, 10) * relation.rhs, relation.strict)

    tightened = dataclasses.replace(statement, claim=claim)
    with pytest.raises(AssertionError, match=REJECTED):
        judge(tightened, lambda statement, steps: None, {})


def test_the_solver_finds_what_points_would_not():
    x, y = sp.symbols("x y", real=True)
    claim = AtMost(-((x - sp.Rational(1, 7919)) ** 2), -(y**2))
    needle = Statement(slug="needle", scope="any reals", claim=lambda depth: claim)
    assert refute(needle) is not None
