"""The proof harness rejects what it must: each way of passing by accident is tried here."""

import dataclasses

import pytest
import sympy as sp

from proofs import (
    prove_conservative,
    prove_decay_bounds_gain,
    prove_gap,
    prove_gates,
    prove_geometric,
    prove_jacobian_noise,
    prove_perturbation_norm,
    prove_selection,
    prove_shapley,
    prove_truncation,
)
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
from proofs._meaning import NORM, SIGNS
from proofs._solver import boundary
from proofs.prove_virtual_readout import STATEMENT

a, b = sp.symbols("a b", nonnegative=True)
x, y = sp.symbols("x y", real=True)


@pytest.fixture(autouse=True)
def _signs_are_hypotheses(monkeypatch):
    for slug, signs in (("mean", "p >= 0, q >= 0"), ("weights", "w >= 0"), ("witness", "a >= 0, b >= 0")):
        monkeypatch.setitem(SIGNS, slug, {NORM: signs})


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
        "sizes": {"depth 1": "decided", "depth 2": "decided"},
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


def test_a_proof_of_something_else_is_refused():
    def blind(statement, steps):
        steps.identity("something else", x + y, y + x)

    with pytest.raises(AssertionError, match="does not notice another claim"):
        judge(square(), blind, {"sign": square(sign=-1)})


def test_mutant_that_the_proof_does_not_look_at_survives():
    def on_the_axis(statement, steps):
        relation = statement.relations(1)[0]
        steps.identity("y is 0", relation.lhs.subs(y, 0), relation.rhs.subs(y, 0))

    with pytest.raises(AssertionError, match="survives the proof"):
        judge(square(), on_the_axis, {"sign": square(sign=-1)})


def weighted_sum(*, power=2):
    """State that a weighted sum of squares is not above its largest weight's, layer by layer."""

    def names(depth):
        return sp.symbols(f"w:{depth}", nonnegative=True), sp.symbols(f"s:{depth}", real=True)

    def claim(depth):
        weights, values = names(depth)
        return AtMost(
            sum(w * s**2 for w, s in zip(weights, values, strict=True)), sum(s**power for s in values)
        )

    def given(depth):
        return tuple(AtMost(w, 1) for w in names(depth)[0])

    return Statement(
        slug="weights", scope="any depth", claim=claim, given=given, depths=(1, 2), arguments=names
    )


def one_layer(steps, *, factor=1):
    u, s = sp.Symbol("u", nonnegative=True), sp.Symbol("s", real=True)
    return steps.nonnegative("one layer", s**2 - (1 - u) * s**2, [u * s**2]) * factor, u, s


def derived(*, factor=1, shift=0, index=0, sign=1):
    """Add up one layer's lemma; the arguments make scripts that prove something else."""

    def proof(statement, steps):
        lemma, u, s = one_layer(steps, factor=factor)

        def added_up(depth):
            weights, values = statement.arguments(depth)
            pairs = zip(weights, [*values[index:], *values[:index]], strict=True)
            return sum((lemma.at({u: sign * (1 - w), s: v}) for w, v in pairs), shift)

        steps.conclude(statement, added_up)

    return proof


def test_what_lemmas_add_up_to_is_the_claim():
    assert judge(weighted_sum(), derived(), {})["statements"] == 1


@pytest.mark.parametrize(
    "other", [{"factor": 2}, {"index": 1}, {"sign": -1}], ids=["a factor", "another index", "a sign"]
)
def test_a_script_that_derives_something_else_is_refuted(other):
    with pytest.raises(RefutedError, match=r"they differ at|a lemma asks"):
        derived(**other)(weighted_sum(), Steps())


def test_what_a_lemma_asks_of_its_values_must_follow_from_what_is_given():
    free = dataclasses.replace(weighted_sum(), given=lambda depth: ())
    with pytest.raises(RefutedError, match="a lemma asks"):
        derived()(free, Steps())


def test_a_claim_may_not_be_its_own_hypothesis():
    steps = Steps()
    with pytest.raises(UndecidedError, match="is assumed to show"):
        steps.conclude(weighted_sum(), lambda depth: steps.hypothesis(weighted_sum(), depth))


def test_a_strict_claim_needs_a_strict_lemma():
    strict = dataclasses.replace(weighted_sum(), claim=lambda depth: AtMost(0, x**2, strict=True))
    steps = Steps()
    lemma = steps.nonnegative("a square", x**2, [x**2])
    with pytest.raises(UndecidedError, match="the claim is strict"):
        steps.conclude(strict, lambda depth: lemma)


@pytest.mark.parametrize("share", [sp.Rational(9, 10), sp.Rational(1001, 1000)])
@pytest.mark.parametrize(
    ("statement", "proof"),
    [
        (prove_gap.BOUND, prove_gap.bound_proof),
        (prove_conservative.STATEMENT, prove_conservative.conservative_proof),
        (prove_geometric.LLI, prove_geometric.lli_proof),
        (prove_decay_bounds_gain.STATEMENT, prove_decay_bounds_gain.proof),
        (prove_perturbation_norm.NORM, prove_perturbation_norm.norm_proof),
        (prove_truncation.STATEMENT, prove_truncation.certificate_proof),
        (prove_gates.STEP, prove_gates.step_proof),
        (prove_jacobian_noise.BOUND, prove_jacobian_noise.bound_proof),
        (prove_selection.AGREEMENT, prove_selection.agreement_proof),
        (prove_shapley.FIRST, prove_shapley.first_order_proof),
    ],
    ids=lambda value: getattr(value, "slug", ""),
)
def test_a_proof_fails_where_the_claims_constant_alone_is_changed(statement, proof, share):
    def claim(depth):
        first, *others = statement.relations(depth)
        return (dataclasses.replace(first, rhs=share * first.rhs), *others)

    with pytest.raises(RefutedError):
        proof(dataclasses.replace(statement, claim=claim), Steps())


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
