"""Ten false statements, each aimed at a way in which the harness could be deceived, with a proof of its own.

Symbols of one name, a claim that is nowhere defined, a bound that fails late, a claim that is asked for in
halves: none of the proofs looks at the claim that it is given, so that only the harness can refuse it.
"""

import itertools

import pytest
import sympy as sp

from proofs._harness import AtMost, RefutedError, Statement, Steps, UndecidedError, judge, width
from proofs._symbols import total, vector

x, y, u, v = sp.symbols("x y u v", real=True)
same_name = sp.Symbol("x", positive=True)
a = sp.Symbol("a", nonnegative=True)
size, more = sp.Symbol("size", nonnegative=True), sp.Symbol("more", positive=True)


def statement(claim, *given, depths=(1,)):
    return Statement(
        slug="attack",
        scope="any",
        claim=claim if callable(claim) else lambda depth: claim,
        given=lambda depth: given,
        depths=depths,
    )


def asking(*values, times=1):
    """Prove by asking that some expressions are not negative; their sum, ``times`` over, is the slack."""

    def proof(statement, steps):
        lemma = steps.nonnegative("what is asked", size, [size])
        steps.conclude(statement, lambda depth: times * total(lemma.at({size: value}) for value in values))

    return proof


def by_halves(slack):
    def proof(statement, steps):
        lemma = steps.nonnegative("what is asked", more, [more])
        half = lemma.at({more: slack / 2})
        steps.conclude(statement, lambda depth: half + half)

    return proof


def layer_by_layer(statement, steps):
    """Take each power away from one: right up to the fourth layer."""
    lemma = steps.nonnegative("what is asked", size, [size])
    steps.conclude(
        statement,
        lambda depth: total(lemma.at({size: 1 - a**k}) for k in range(depth)) + lemma.at({size: 4 - depth}),
    )


def pair_by_pair(statement, steps):
    """Add up squares of differences: enough for three entries."""
    lemma = steps.nonnegative("what is asked", size, [size])

    def derive(depth):
        entries = vector("v", width(2))
        pairs = itertools.combinations(entries, 2)
        rest = (3 - len(entries)) * entries.dot(entries)
        return total(lemma.at({size: (p - q) ** 2}) for p, q in pairs) + lemma.at({size: rest})

    steps.conclude(statement, derive)


def cauchy(depth):
    entries = vector("v", width(2))
    return AtMost(sum(entries) ** 2, 3 * entries.dot(entries))


NEEDLE = (x - sp.Rational(1, 7919)) ** 2 * sp.exp(y)
NOWHERE = 1 / (sp.Abs(x) - sp.Max(x, -x))
IMAGINARY = sp.sqrt(-1 - x**2, evaluate=False)
ATTACKS = {
    "two numbers of one name": (
        statement(AtMost(same_name, same_name + x)),
        asking(x + same_name, x - same_name, times=sp.Rational(1, 2)),
    ),
    "a hypothesis about another number of that name": (
        statement(AtMost(same_name, same_name * x), AtMost(1, same_name)),
        asking(same_name * (x - 1) / 2, same_name * (x - 1) / 2),
    ),
    "a quotient by zero everywhere": (
        statement(AtMost(1, NOWHERE)),
        asking((NOWHERE - 1) / 2, times=2),
    ),
    "a root of a negative number": (
        statement(AtMost(1, IMAGINARY)),
        asking((IMAGINARY - 1) / 2, times=2),
    ),
    "zero at one point, where no solver looks": (
        statement(AtMost(0, NEEDLE, strict=True)),
        by_halves(NEEDLE),
    ),
    "a bound that holds for four layers": (
        statement(lambda depth: AtMost(total(a**k for k in range(depth)), 4), AtMost(a, 1), depths=(1, 2, 3)),
        layer_by_layer,
    ),
    "a bound that holds for three entries": (statement(cauchy), pair_by_pair),
    "Chebyshev's sum without an order": (
        statement(AtMost((x + y) * (u + v), 2 * (x * u + y * v))),
        asking((x - y) * (u - v)),
    ),
    "the larger of sums for the sum of the larger": (
        statement(AtMost(sp.Max(x, y) + sp.Max(u, v), sp.Max(x + u, y + v))),
        asking(sp.Max(x + u, y + v) - sp.Max(x, y) - sp.Max(u, v)),
    ),
    "positive parts of a sum for their sum": (
        statement(AtMost(sp.Max(x, 0) + sp.Max(y, 0), sp.Max(x + y, 0))),
        asking((sp.Max(x + y, 0) - sp.Max(x, 0) - sp.Max(y, 0)) / 3, times=3),
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_the_harness_is_refused(name):
    false, proof = ATTACKS[name]
    with pytest.raises(
        (AssertionError, UndecidedError), match=r"is false at|nothing satisfies|itself is asked"
    ):
        judge(false, proof, {})


@pytest.mark.parametrize(
    "name", ["zero at one point, where no solver looks", "Chebyshev's sum without an order"]
)
def test_nor_does_its_proof_stand_alone(name):
    false, proof = ATTACKS[name]
    with pytest.raises((RefutedError, UndecidedError)):
        proof(false, Steps())
