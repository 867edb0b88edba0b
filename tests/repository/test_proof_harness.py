"""The proof harness rejects what it must: each way of passing by accident is tried here."""

import dataclasses

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, RefutedError, Statement, Steps, UndecidedError, judge
from proofs._meaning import NORM, SIGNS
from proofs._rewrites import (
    at,
    every,
    plus,
    put,
    signless,
    times,
    without,
)
from proofs._solver import boundary

a, b = sp.symbols("a b", nonnegative=True)
p, q = sp.symbols("p q", nonnegative=True)
x, y = sp.symbols("x y", real=True)
real_a = sp.Symbol("a", real=True)
SIGN = put({y: -y})


@pytest.fixture(autouse=True)
def _signs_are_hypotheses(monkeypatch):
    for slug, signs in (("mean", "p >= 0, q >= 0"), ("witness", "a >= 0, b >= 0")):
        monkeypatch.setitem(SIGNS, slug, {NORM: signs})


def square(*, sign=1):
    def claim(depth):
        return Equal((x + y) ** 2, x**2 + sign * 2 * x * y + y**2)

    return Statement(slug="square", scope="any reals", claim=claim)


def expand(statement, steps):
    relation = statement.relations(1)[0]
    steps.identity("expansion", relation.lhs, relation.rhs)


def mean():
    def claim(depth):
        return AtMost(2 * p * q, p**2 + q**2 + p)

    return Statement(slug="mean", scope="any", claim=claim, arguments=lambda depth: (p, q))


def certificate(statement, steps):
    (left, right), relation = statement.arguments(1), statement.relations(1)[0]
    steps.nonnegative("squares", relation.rhs - relation.lhs, [(left - right) ** 2, left])


def at_most_the_sum():
    return Statement(slug="witness", scope="any", claim=lambda depth: AtMost(b, a + b))


def expand_sum(statement, steps):
    relation = statement.relations(1)[0]
    steps.nonnegative("a", relation.rhs - relation.lhs, [a])


def claims(relation, *given):
    return Statement(slug="any", scope="any", claim=lambda d: relation, given=lambda d: given)


def blind(statement, steps):
    steps.identity("something else", x + y, y + x)


def on_the_axis(statement, steps):
    relation = statement.relations(1)[0]
    steps.identity("y is 0", relation.lhs.subs(y, 0), relation.rhs.subs(y, 0))


def mistyped(statement, steps):
    expand(square(), steps)
    if statement.relations(1) != square().relations(1):
        statement.no_such_attribute  # noqa: B018


LARGER, UNSEEN = plus(a - b, of="lhs"), "was not seen to be false"


@pytest.mark.parametrize(
    ("statement", "proof", "mutants", "error", "message"),
    [
        (square(sign=-1), expand, {}, AssertionError, "is false at"),
        (square(), blind, {"sign": SIGN}, AssertionError, "does not notice another claim"),
        (square(), on_the_axis, {"sign": SIGN}, AssertionError, "survives the proof"),
        (square(), mistyped, {"sign": SIGN}, AttributeError, "no_such_attribute"),
        (mean(), certificate, {"weaker": times(sp.Rational(1, 2), of="lhs")}, AssertionError, UNSEEN),
        (at_most_the_sum(), expand_sum, {"a rewrite of nothing": without("A1")}, AssertionError, UNSEEN),
        (claims(Equal(x, y), AtMost(x, x - 1)), expand, {}, UndecidedError, "nothing satisfies"),
        (claims(()), blind, {"sign": SIGN}, AssertionError, "says nothing of any symbol"),
        (claims(AtMost(0, 1)), expand, {"sign": SIGN}, AssertionError, "says nothing of any symbol"),
        (square(), expand, {}, AssertionError, "no mutant"),
        *(  # a witness must be admissible and violate
            (at_most_the_sum(), expand_sum, {"witness": every(LARGER, at(1, values))}, AssertionError, UNSEEN)
            for values in ({a: -1, b: 0}, {a: 1, b: 1})
        ),
    ],
)
def test_what_is_not_proved_is_refused(statement, proof, mutants, error, message):
    with pytest.raises(error, match=message):
        judge(statement, proof, mutants)


def test_claims_may_not_assume_themselves():
    steps = Steps()
    with pytest.raises(UndecidedError, match="is assumed to show"):
        steps.conclude(mean(), lambda depth: steps.hypothesis(mean(), depth))


def test_strict_claims_need_strict_lemmas():
    strict = dataclasses.replace(mean(), claim=lambda depth: AtMost(0, x**2, strict=True))
    steps = Steps()
    lemma = steps.nonnegative("a square", x**2, [x**2])
    with pytest.raises(UndecidedError, match="the claim is strict"):
        steps.conclude(strict, lambda depth: lemma)


def test_undecided_signs_differ_from_refuted_ones():
    with pytest.raises(UndecidedError):
        Steps().nonnegative("hidden square", x**2 - 2 * x + 1 + y**4, [x**2 - 2 * x + 1 + y**4])
    with pytest.raises(RefutedError, match="sign of x"):
        Steps().nonnegative("sign", x, [x])


def test_boundary_points_include_ties_and_zeros():
    points = boundary((AtMost(x, y), AtMost(y, 3)), (x, y))
    assert any(point[x] == point[y] for point in points)
    assert any(point[y] == 3 for point in points)
    assert any(point[x] == 0 for point in points)


@pytest.mark.parametrize(
    ("rewrite", "claim", "given"),
    [
        (put({a: b, b: a}, of="both"), AtMost(a, a + b), AtMost(a, 3)),
        (signless("a"), AtMost(b, real_a + b), AtMost(real_a, 3)),
    ],
)
def test_rewrites_change_only_their_target(rewrite, claim, given):
    """Of these the proofs' own mutants do not tell."""
    statement = dataclasses.replace(at_most_the_sum(), given=lambda depth: (AtMost(a, 3),))
    rewritten = rewrite(statement)
    assert rewritten.relations(1) == (claim,)
    assert rewritten.given(1) == (given,)


def test_symbolic_traces_and_transposes_are_compared():
    n = sp.Symbol("n", integer=True, positive=True)
    A, B, C = (sp.MatrixSymbol(name, n, n) for name in "ABC")
    steps = Steps()
    steps.identity("cycle", sp.Trace((A + B) * C), sp.Trace(C * A) + sp.Trace(C.T * B.T).doit())
    with pytest.raises(RefutedError):
        steps.identity("order", A * B, B * A)
    with pytest.raises(RefutedError):
        steps.identity("trace of three", sp.Trace(A * B * C), sp.Trace(B * A * C))
