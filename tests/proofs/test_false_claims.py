"""False statements are refused: those listed, attacks with proofs of their own, every smaller bound.

That claims of every other kind are seen to be false, each proof's mutants show.
"""

import dataclasses
import importlib

import pytest
import sympy as sp

from proofs import _meaning, prove_decay_bounds_gain, prove_ratios
from proofs._harness import MEANING, AtMost, Equal, Statement, Steps, UndecidedError, judge, search, width
from proofs._symbols import vector
from tests.proofs.claims import OBSCURE, claims, u, v, x, y
from tests.support import ledger

PROOFS = sorted(path.stem for path in (ledger.ROOT / "proofs").glob("prove_*.py"))
NOT_ATTAINED = {
    "prove_aggregation.OWN.1",  # 0 on the right
    "prove_assumptions.SIGN.0",  # likewise
    "prove_conservative.RELATIVE.1",  # attained from below, where LAI exceeds Ghost, at depths that stay open
    "prove_descent.REMAINDER.2",  # the sign itself
    "prove_descent.REMAINDER.3",  # likewise
    "prove_lai.SEMIDEFINITE.0",  # 0 on the left
    "prove_ratios.BELOW_ONE.0",  # 0 on the left
    "prove_unit_gain_variance.STATEMENT.1",  # 0 on the left
}


@pytest.fixture(autouse=True)
def _sizes_have_signs(monkeypatch):
    signs = "a >= 0, n > 0, s >= 0"
    monkeypatch.setitem(_meaning.SIGNS, "altered", {_meaning.NORM: signs})


same_name = sp.Symbol("x", positive=True)
more = sp.Symbol("more", positive=True)


def cauchy(depth):
    entries = vector("v", width(2))
    return AtMost(sum(entries) ** 2, 3 * entries.dot(entries))


NEEDLE = (x - sp.Rational(1, 7919)) ** 2 * sp.exp(y)
NOWHERE = 1 / (sp.Abs(x) - sp.Max(x, -x))
IMAGINARY = sp.sqrt(-1 - x**2, evaluate=False)
LARGER = sp.Max(x + u, y + v) - sp.Max(x, y) - sp.Max(u, v)
FALSE = OBSCURE | {
    "two numbers of one name": claims(AtMost(same_name, same_name + x)),
    "a quotient by zero everywhere": claims(AtMost(1, NOWHERE)),
    "a root of a negative number": claims(AtMost(1, IMAGINARY)),
    "a bound that holds for three entries": claims(cauchy),
    "Chebyshev's sum without an order": claims(AtMost((x + y) * (u + v), 2 * (x * u + y * v))),
    "the larger of sums for the sum of the larger": claims(AtMost(0, LARGER)),
}


@pytest.mark.parametrize("name", FALSE)
def test_false_claims_are_refused(name):
    words = "is false at|nothing satisfies|not what the words mean"
    with pytest.raises((AssertionError, UndecidedError), match=words):
        judge(FALSE[name], None, {})


def test_a_needles_proof_is_refused():
    """Zero at one point, where no solver looks: the proof asks for the claim itself."""
    half = Steps().nonnegative("what is asked", more, [more]).at({more: NEEDLE / 2})
    with pytest.raises(UndecidedError, match="itself is asked"):
        Steps().conclude(claims(AtMost(0, NEEDLE, strict=True)), lambda depth: half + half)


def hide(statement, words, *relations):
    more = tuple(dataclasses.replace(relation, of=words) for relation in relations)
    return dataclasses.replace(statement, given=lambda depth: (*statement.given(depth), *more))


def sign(statement, symbol):
    """Assume more of a symbol, which keeps its name."""
    positive = {symbol: sp.Symbol(symbol.name, positive=True)}

    def claim(depth):
        return tuple(
            dataclasses.replace(
                relation,
                lhs=sp.sympify(relation.lhs).xreplace(positive),
                rhs=sp.sympify(relation.rhs).xreplace(positive),
            )
            for relation in statement.relations(depth)
        )

    return dataclasses.replace(statement, claim=claim)


RATIOS, DECAY = prove_ratios.STATEMENT, prove_decay_bounds_gain.STATEMENT
BETWEEN = r"$m_l \beta^{(L)} \le \beta^{(l)} \le M_l \beta^{(L)}$"
HIDDEN = {
    "nothing satisfies it": hide(RATIOS, BETWEEN, AtMost(0, x), AtMost(x, 0, strict=True)),
    "an inequality": hide(RATIOS, BETWEEN, AtMost(sp.Symbol("alpha0_1", nonnegative=True), 1)),
    "an equation": hide(RATIOS, BETWEEN, Equal(sp.Symbol("M0"), 1)),
    "what a symbol stands for": hide(RATIOS, MEANING, AtMost(sp.Symbol("m0"), 0)),
    "a sign": sign(RATIOS, next(iter(sorted(RATIOS.relations(2)[0].rhs.free_symbols, key=str)))),
    "another statement's words": hide(DECAY, "A1", AtMost(x, 1)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_hypothesis_is_refused(name):
    words = r"not what the words mean|no hypothesis says|nothing satisfies"
    with pytest.raises((AssertionError, UndecidedError), match=words):
        judge(HIDDEN[name], None, {})


def bounds():
    for name in PROOFS:
        for title, value in vars(importlib.import_module(f"proofs.{name}")).items():
            if isinstance(value, Statement):
                for index, relation in enumerate(value.relations(value.depths[0])):
                    if isinstance(relation, AtMost):
                        yield f"{name}.{title}.{index}", (value, index)


BOUNDS = dict(bounds())


@pytest.mark.parametrize("name", sorted(set(BOUNDS) - NOT_ATTAINED))
def test_bounds_cut_by_a_hundredth_fail(name):
    statement, index = BOUNDS[name]

    def claim(depth):
        relation = statement.relations(depth)[index]
        return AtMost(relation.lhs, sp.Rational(99, 100) * relation.rhs, relation.strict)

    assert search(dataclasses.replace(statement, claim=claim, arguments=None))[0] is not None


def test_bounds_called_attained_are_cut():
    attained = {slug for slug, entry in ledger.read().items() if entry.attained}
    cut = {BOUNDS[name][0].slug for name in set(BOUNDS) - NOT_ATTAINED}
    assert attained - cut == {"jacobian-noise-bound"}  # whose claim is an equation, with the variance itself
