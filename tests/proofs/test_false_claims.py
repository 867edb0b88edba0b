"""False statements that the harness must not accept: a referee's, others, and every bound a tenth smaller.

Each comes with a proof that the true statement passes, or with one that accepts everything: what rejects it
is the claim itself, decided by the solver or tried at points.
"""

import dataclasses
import importlib

import pytest
import sympy as sp

from proofs import (
    prove_adam,
    prove_assumptions,
    prove_conservative,
    prove_decay_bounds_gain,
    prove_gap,
    prove_gates,
    prove_geometric,
    prove_jacobian_noise,
    prove_perturbation_norm,
    prove_rank,
    prove_ratios,
    prove_selection,
    prove_shapley,
    prove_sketches,
    prove_truncation,
    prove_variance_bounds,
    prove_variance_comparison,
    prove_virtual_readout,
)
from proofs._harness import AtMost, Equal, Statement, judge, search, width
from proofs._symbols import covariance, vector
from tests.support import ledger

PROOFS = sorted(path.stem for path in (ledger.ROOT / "proofs").glob("prove_*.py"))
REJECTED = "the statement is false at"
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
        arguments=None,
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


def twice_the_largest_sample(depth):
    """Let twice the largest sample's part stand for the sum: true for two validation samples."""
    alpha, last, ratios, low, _ = prove_ratios.names(depth)
    parts = [
        prove_ratios.weighted([row], [beta], [[1 - m for m in low]], 1)
        for row, beta in zip(alpha, last, strict=True)
    ]
    difference = prove_ratios.weighted(alpha, last, [[1 - b for b in row] for row in ratios], 1)
    return AtMost(difference, 2 * sp.Max(*parts)), prove_ratios.between(depth)


def first_order_from_the_third_layer_on(depth):
    gains, rests = (sp.symbols(f"{name}:{depth}", nonnegative=True) for name in "gn")
    whole = [g + n for g, n in zip(gains, rests, strict=True)]
    late = [sp.Mul(*gains[:k], rests[k], *gains[k + 1 :]) for k in range(2, depth)]
    kept = sp.Mul(*whole[:2], *gains[2:]) - sp.Mul(*gains) + sp.Add(*late)
    return AtMost(sp.Mul(*whole) - sp.Mul(*gains), kept), ()


def frobenius_norm_over_root_two(depth):
    """Bound a symmetric traceless form by its Frobenius norm over the root of two: true in the plane."""
    rows = width(2)
    free = list(sp.symbols(f"e:{rows - 1}", real=True))
    rest = sp.diag(*free, -sp.Add(*free))
    g, h = vector("g", rows), vector("h", rows)
    square = sum(x**2 for x in rest) / 2
    return AtMost((g.T * rest * h)[0] ** 2, square * g.dot(g) * h.dot(h)), ()


def criterion_of_noise_that_knows_the_signal(depth):
    """Take two equally likely outcomes: the noise may follow the signal, gains and alpha are one number."""
    m, whole, b, c, x, y = sp.symbols("m A b c x y", real=True)
    chances = [sp.Rational(1, 2)] * 2
    ghost = [m * b + x, m * c + y]
    spread, noise = covariance([b, c], [b, c], chances), covariance([x, y], [x, y], chances)
    difference = covariance(ghost, ghost, chances) - whole**2 * spread
    return Equal(difference, noise - (whole**2 - m**2) * spread), ()


def gates_of_layers_that_know_each_other(depth):
    """Let the lower layer read the unit whose column is the first axis: its mean is that entry alone."""
    g, h = vector("g", 2), vector("h", 2)
    means = [(g[0] * h[0]), (g[0] * h[0])]  # whichever of the two units has the first axis
    return Equal(sum(means) / 2, g.dot(h) / 2), ()


FALSE = {
    "twice the largest sample for the sum": (
        prove_ratios.STATEMENT,
        prove_ratios.prove_gaps_from_both_sides.procedure,
        twice_the_largest_sample,
    ),
    "first order from the third layer on": (
        prove_jacobian_noise.BOUND,
        prove_jacobian_noise.prove_jacobian_noise_bound.procedure,
        first_order_from_the_third_layer_on,
    ),
    "the Frobenius norm over the root of two": (
        prove_gates.STEP,
        prove_gates.prove_gate_step_error.procedure,
        frobenius_norm_over_root_two,
    ),
    "the criterion for any law": (
        prove_variance_comparison.CRITERION,
        prove_variance_comparison.prove_variance_criterion.procedure,
        criterion_of_noise_that_knows_the_signal,
    ),
    "gate factors however dependent between layers": (
        prove_gates.MEAN,
        prove_gates.prove_gate_corrected.procedure,
        gates_of_layers_that_know_each_other,
    ),
    "gains of operators that depend on the gradient": (
        prove_decay_bounds_gain.STATEMENT,
        prove_decay_bounds_gain.prove_decay_bounds_gain.procedure,
        gains_of_dependent_operators,
    ),
    "an error below one, strictly": (
        prove_ratios.BELOW_ONE,
        prove_ratios.prove_relative_error_below_one.procedure,
        strictly_below_one,
    ),
    "the relative limit without bars": (
        prove_geometric.LIMIT,
        prove_geometric.prove_the_limit_of_the_relative_error.procedure,
        limit_without_bars,
    ),
    "two terms of the sum at any depth": (
        prove_geometric.LLI,
        prove_geometric.prove_the_printed_bound_for_lli.procedure,
        two_terms_of_the_sum,
    ),
    "noise to first order alone": (
        prove_jacobian_noise.BOUND,
        prove_jacobian_noise.prove_jacobian_noise_bound.procedure,
        first_order_alone,
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_statement_is_rejected_whatever_its_proof(name):
    statement, proof, claim_and_given = FALSE[name]
    with pytest.raises(AssertionError, match=REJECTED):
        judge(replaced(statement, claim_and_given), proof, {})


def test_a_true_claim_about_something_else_is_rejected():
    x = sp.Symbol("x", real=True)
    other = dataclasses.replace(prove_truncation.STATEMENT, claim=lambda depth: AtMost(0, x**2))
    with pytest.raises(AssertionError, match="says nothing of"):
        judge(other, prove_truncation.prove_certificate.procedure, {})


def accept(statement, steps):
    steps.identity("nothing", sp.S.One, sp.S.One)


def swapped(relation, shorter):
    return AtMost(relation.rhs, relation.lhs)


def strictly(relation, shorter):
    return AtMost(relation.lhs, relation.rhs, strict=True)


def a_layer_short(relation, shorter):
    return AtMost(relation.lhs, shorter.rhs)


def without_bars(relation, shorter):
    return AtMost(relation.lhs, relation.rhs.replace(sp.Abs, lambda x: x))


def of_the_other_sign(relation, shorter):
    return Equal(relation.lhs, -relation.rhs)


ALTERED = {
    swapped: (
        prove_gap.BOUND,
        prove_variance_bounds.OPPOSED,
        prove_perturbation_norm.NORM,
        prove_variance_comparison.ORDER,
        prove_conservative.LOWER,
    ),
    strictly: (
        prove_selection.AGREEMENT,
        prove_truncation.STATEMENT,
        prove_shapley.FIRST,
    ),
    a_layer_short: (
        prove_geometric.LLI,
        prove_perturbation_norm.NORM,
        prove_conservative.STATEMENT,
        prove_conservative.ALONE_LLI,
        prove_shapley.FIRST,
    ),
    without_bars: (
        prove_geometric.LLI,
        prove_perturbation_norm.NORM,
        prove_truncation.STATEMENT,
    ),
    of_the_other_sign: (
        prove_virtual_readout.STATEMENT,
        prove_adam.DIRECTION,
        prove_sketches.VARIANCE,
        prove_gates.MEAN,
    ),
}
WITHOUT_HYPOTHESES = (
    prove_assumptions.STATEMENT,
    prove_assumptions.ALIGNED,
    prove_assumptions.NORMS,
    prove_gap.BOUND,
    prove_rank.STATEMENT,
    prove_conservative.STATEMENT,
    prove_variance_bounds.UNCONDITIONAL,
    prove_selection.AGREEMENT,
    prove_truncation.STATEMENT,
)


@pytest.mark.parametrize(
    ("change", "statement"),
    [(change, statement) for change, statements in ALTERED.items() for statement in statements],
    ids=lambda value: getattr(value, "slug", getattr(value, "__name__", "")),
)
def test_an_altered_claim_is_rejected(change, statement):
    def claim(depth):
        return change(statement.relations(depth)[0], statement.relations(max(depth - 1, 1))[0])

    altered = dataclasses.replace(statement, claim=claim, sample=None)
    with pytest.raises(AssertionError, match=REJECTED):
        judge(altered, accept, {})


@pytest.mark.parametrize("statement", WITHOUT_HYPOTHESES, ids=lambda statement: statement.slug)
def test_a_claim_without_its_hypotheses_is_rejected(statement):
    altered = dataclasses.replace(statement, given=lambda depth: (), sample=None)
    with pytest.raises(AssertionError, match=REJECTED):
        judge(altered, accept, {})


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

    tightened = dataclasses.replace(statement, claim=claim, arguments=None)
    with pytest.raises(AssertionError, match=REJECTED):
        judge(tightened, lambda statement, steps: None, {})


def test_the_solver_finds_what_points_would_not():
    x, y = sp.symbols("x y", real=True)
    claim = AtMost(-((x - sp.Rational(1, 7919)) ** 2), -(y**2))
    needle = Statement(slug="needle", scope="any reals", claim=lambda depth: claim)
    assert search(needle)[0] is not None
