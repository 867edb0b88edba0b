"""The proof harness rejects what it must: each way of passing by accident is tried here."""

import pytest
import sympy as sp

from proofs._harness import (
    AtMost,
    Equal,
    RefutedError,
    Statement,
    Steps,
    UndecidedError,
    judge,
    search,
    width,
)
from proofs._solver import boundary
from proofs.prove_virtual_readout import STATEMENT

a, b = sp.symbols("a b", nonnegative=True)
x, y = sp.symbols("x y", real=True)


def square(*, sign=1):
    def claim(depth):
        return Equal((x + y) ** 2, x**2 + sign * 2 * x * y + y**2)

    return Statement(slug="square", scope="any reals", claim=claim)


def expand(statement, steps):
    relation = statement.relations(1)[0]
    steps.identity("expansion", relation.lhs, relation.rhs)


def mean(*, factor=2, signs="nonnegative"):
    p, q = sp.symbols("p q", **{signs: True})

    def claim(depth):
        return AtMost(factor * p * q, p**2 + q**2 + p)

    return Statement(slug="mean", scope="any", claim=claim, parts={"p": p, "q": q})


def certificate(statement, steps):
    part, relation = statement.part, statement.relations(1)[0]
    terms = [(part.p - part.q) ** 2, part.p]
    steps.nonnegative("squares", relation.rhs - relation.lhs, terms)


def test_identity_is_proved_and_its_mutant_rejected():
    assert judge(square(), expand, {"sign": square(sign=-1)}) == {
        "statements": 1,
        "mutants": 1,
        "mutants_rejected": 1,
        "decided": 2,
        "at_points": 0,
    }


def test_inequality_is_proved_and_its_mutants_rejected():
    mutants = {"factor": mean(factor=3), "signs": mean(signs="real")}
    assert judge(mean(), certificate, mutants)["mutants_rejected"] == 2


def test_false_statement_is_refused():
    with pytest.raises(AssertionError, match="is false at"):
        judge(square(sign=-1), expand, {})


def test_proof_without_a_step_is_refused():
    with pytest.raises(AssertionError, match="without a step"):
        judge(square(), lambda statement, steps: None, {})


def test_mutant_that_is_true_is_refused():
    with pytest.raises(AssertionError, match="was not seen to be false"):
        judge(mean(), certificate, {"weaker": mean(factor=1)})


def test_mutant_that_the_proof_does_not_look_at_survives():
    def blind(statement, steps):
        steps.identity("something else", x + y, y + x)

    with pytest.raises(AssertionError, match="survives the proof"):
        judge(square(), blind, {"sign": square(sign=-1)})


def test_typo_in_the_proof_rejects_nothing():
    def mistyped(statement, steps):
        expand(square(), steps)
        if not statement.claim(1).holds({x: 1, y: 1}):
            statement.no_such_attribute  # noqa: B018

    with pytest.raises(AttributeError):
        judge(square(), mistyped, {"sign": square(sign=-1)})


def test_sign_that_cannot_be_decided_rejects_nothing():
    with pytest.raises(UndecidedError):
        Steps().nonnegative("hidden square", x**2 - 2 * x + 1 + y**4, [x**2 - 2 * x + 1 + y**4])


def test_negative_term_is_refuted_by_numbers():
    with pytest.raises(RefutedError, match="sign of x"):
        Steps().nonnegative("sign", x, [x])


def test_assumptions_that_nothing_satisfies_are_refused():
    empty = Statement(
        slug="empty",
        scope="none",
        claim=lambda depth: Equal(x, y),
        given=lambda depth: (AtMost(x, x - 1),),
    )
    with pytest.raises(UndecidedError, match="nothing satisfies"):
        judge(empty, expand, {})


def test_a_claim_that_fails_at_one_width_more_is_refused():
    def claim(depth):
        p = sp.symbols(f"p:{width(2)}", real=True)
        return AtMost(4 * p[0] * p[1], sum(p[:2]) ** 2 - sum(p[2:]))

    assert search(Statement(slug="two wide", scope="any width", claim=claim))[0] is not None


def test_a_claim_that_says_nothing_of_its_arguments_is_refused():
    silent = Statement(
        slug="silent", scope="any", claim=lambda depth: AtMost(0, x**2), arguments=lambda depth: (y,)
    )
    with pytest.raises(AssertionError, match="says nothing of"):
        judge(silent, expand, {})


def test_points_are_taken_where_what_is_assumed_is_tight_and_symbols_are_zero():
    points = boundary((AtMost(x, y), AtMost(y, 3)), (x, y))
    assert any(point[x] == point[y] for point in points)
    assert any(point[y] == 3 for point in points)
    assert any(point[x] == 0 for point in points)


def test_a_claim_that_fails_at_an_end_alone_is_refused_though_the_solver_gives_up():
    n = sp.Symbol("n", integer=True, positive=True)

    def claim(depth):
        return AtMost(sp.Piecewise((1, sp.Eq(x, y)), (0, True)) ** n, 0)

    given = (AtMost(x, y), AtMost(0, x), AtMost(y, 1))
    at_end = Statement(slug="end", scope="any", claim=claim, given=lambda depth: given)
    assert search(at_end)[0] is not None


@pytest.mark.parametrize("values", [{a: -1, b: 0}, {a: 1, b: 1}])
def test_witness_must_be_admissible_and_violate(values):
    def claim(depth):
        return AtMost(b, a + b)

    mutant = Statement(slug="witness", scope="any", claim=claim, witness=(1, values))
    with pytest.raises(AssertionError, match="was not seen to be false"):
        judge(mutant_free(claim), expand_sum, {"witness": mutant})


def mutant_free(claim):
    return Statement(slug="witness", scope="any", claim=claim)


def expand_sum(statement, steps):
    relation = statement.relations(1)[0]
    steps.nonnegative("a", relation.rhs - relation.lhs, [a])


def test_traces_and_transposes_of_symbolic_size_are_compared():
    n = sp.Symbol("n", integer=True, positive=True)
    A, B, C = (sp.MatrixSymbol(name, n, n) for name in "ABC")
    steps = Steps()
    steps.identity("cycle", sp.Trace((A + B) * C), sp.Trace(C * A) + sp.Trace(C.T * B.T).doit())
    with pytest.raises(RefutedError):
        steps.identity("order", A * B, B * A)
    with pytest.raises(RefutedError):
        steps.identity("trace of three", sp.Trace(A * B * C), sp.Trace(B * A * C))


def test_statement_becomes_a_numerical_function():
    lai = STATEMENT.numbers("lhs", depth=2)
    assert lai([[1, 2], [0, 1]], [[1, 1], [5, 1]], [2, 0], [3, 1]) == (3 + 1) * 6
