"""Fifteen false statements that look true, each with a proof that would hand over whatever is claimed.

A constant tightened where nobody looks, a hypothesis dropped, norms swapped, a depth off by one, a strict
sign at equality, a sign convention. What rejects them is the claim, and the rule that no lemma asks for it.
"""

import dataclasses

import pytest
import sympy as sp

from proofs import prove_gap, prove_geometric, prove_jacobian_noise, prove_rank, prove_selection
from proofs._harness import AtMost, Equal, RefutedError, Statement, Steps, UndecidedError, judge
from proofs._symbols import product, total

x, y, u, v = sp.symbols("x y u v", real=True)
a, b, m, n = sp.symbols("a b m n", nonnegative=True)
r = sp.Symbol("r", positive=True)


def beg(statement, steps):
    """Hand over what is claimed, as a lemma about a number that is not negative."""
    size = sp.Symbol("size", nonnegative=True)
    lemma = steps.nonnegative("anything", size, [size])

    def claimed(depth):
        found = []
        for relation in statement.relations(depth):
            if isinstance(relation, Equal):
                found.append(steps.identity("as claimed", relation.lhs, relation.rhs))
            else:
                found.append(lemma.at({size: relation.rhs - relation.lhs}))
        return found

    steps.conclude(statement, claimed)


def claims(relation, *given, depths=(1,)):
    return Statement(
        slug="subtle",
        scope="any",
        claim=relation if callable(relation) else lambda depth: relation,
        given=(lambda depth: given) if not given or not callable(given[0]) else given[0],
        depths=depths,
    )


def grown(statement, change, *, given=None):
    """Change a proved statement's first relation, or what it assumes."""
    altered = dataclasses.replace(
        statement, claim=lambda depth: change(statement, depth), **({"given": given} if given else {})
    )
    return dataclasses.replace(altered, arguments=None)


def one_layer_less(statement, depth):
    return AtMost(statement.relations(depth)[0].lhs, statement.relations(max(depth - 1, 1))[0].rhs)


def both_orders(depth):
    """Telescope with the rests above: the same for one and two commuting layers."""
    first = [sp.Matrix(2, 2, sp.symbols(f"B{k}_:4", real=True)) for k in range(depth)]
    rests = [sp.Matrix(2, 2, sp.symbols(f"D{k}_:4", real=True)) for k in range(depth)]
    whole = [p + q for p, q in zip(first, rests, strict=True)]
    terms = [product([*whole[:k], rests[k], *whole[k + 1 :]]) for k in range(depth)]
    return Equal(product(whole) - product(first), sum(terms[1:], terms[0]))


def noise_of_one_unit(depth):
    return prove_jacobian_noise.BOUND.relations(depth)[0]


def late_excess(depth):
    gains, rests = (sp.symbols(f"{name}:{depth}", nonnegative=True) for name in "gn")
    whole = product([p + q for p, q in zip(gains, rests, strict=True)])
    return AtMost(whole - product(gains), total(rests) * product([sp.Max(g, 1) for g in gains]))


SUBTLE = {
    "a cosine from the mean of the ends": claims(
        AtMost(((1 + r) / 2) ** 2, 4 * r / (1 + r) ** 2), AtMost(r, 1)
    ),
    "a sign strictly agreed where both ends meet": claims(
        AtMost(m * a - n * b, x * (a - b), strict=True), AtMost(m, x), AtMost(x, n)
    ),
    "the middle weight without ordered ends": claims(AtMost((u + v) / 2 - x, (v - u) / 2), AtMost(x, v)),
    "a regret that forgets what helps and is dropped": claims(
        AtMost(
            sp.Max(x, 0) - sp.Piecewise((x, y > 0), (0, True)), sp.Piecewise((abs(x - y), y > 0), (0, True))
        )
    ),
    "an excess without its positive part": claims(
        AtMost(sp.Max(x, 0) - sp.Piecewise((x, y > 0), (0, True)), a - abs(y)),
        AtMost(x - y, a),
        AtMost(y - x, a),
    ),
    "a telescoping sum with whole layers on both sides": claims(both_orders, depths=(1,)),
    "an excess of first order": claims(late_excess, depths=(1, 2)),
    "a residual block by Pythagoras": claims(
        AtMost(n**2 + 2 * x * n * m + m**2, (1 + a**2) * n**2), AtMost(x, 1), AtMost(-x, 1), AtMost(m, a * n)
    ),
    "the largest column for the spectral norm": claims(
        AtMost((x * u + y * v) ** 2, (u**2 + v**2) * sp.Max(x**2, y**2))
    ),
    "Kantorovich without the square": claims(
        AtMost(2 * sp.sqrt(r) / (1 + r), 4 * r / (1 + r) ** 2), AtMost(r, 1)
    ),
    "the Bernstein constant one": claims(
        AtMost(x, m * a + n * b**2),
        AtMost(x, y * a + n * a**2 / 6),
        AtMost(y, m + n * b),
        AtMost(a, b),
    ),
    "the geometric bound a layer short": grown(prove_geometric.LLI, one_layer_less),
    "a pair's bound without the last similarity's size": grown(
        prove_gap.BOUND, lambda s, depth: AtMost(s.relations(depth)[0].lhs, s.relations(depth)[0].rhs / depth)
    ),
    "signs agree though only one end is known": grown(
        prove_selection.AGREEMENT,
        lambda s, depth: s.relations(depth)[0],
        given=lambda depth: tuple(
            c for c in prove_selection.AGREEMENT.given(depth) if c.lhs == prove_rank.LOW
        ),
    ),
    "noise of one and the same sample": claims(
        lambda depth: Equal(2 * noise_of_one_unit(depth).lhs, noise_of_one_unit(depth).rhs)
    ),
}


@pytest.mark.parametrize("name", SUBTLE)
def test_a_false_statement_that_looks_true_is_rejected(name):
    with pytest.raises(AssertionError, match="the statement is false at"):
        judge(SUBTLE[name], beg, {})


@pytest.mark.parametrize("name", SUBTLE)
def test_nor_can_its_proof_hand_it_over(name):
    with pytest.raises((RefutedError, UndecidedError)):
        beg(SUBTLE[name], Steps())


def test_a_true_statement_is_not_proved_by_asking_for_it():
    true = claims(AtMost(2 * x * y, x**2 + y**2))
    with pytest.raises(UndecidedError, match="the claim itself is asked"):
        judge(true, beg, {})
