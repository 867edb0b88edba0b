"""False claims that the harness must refuse whatever their proofs are, by what each aims at.

True at the sizes that an author asks and false beyond; `MEANING` as a wild card; claims that the solver
cannot translate, false at few points. What finitely many sizes and points cannot see, such as a sum of forty
layers, a compared induction or the kernel decides.
"""

import dataclasses

import sympy as sp

from proofs import prove_gain, prove_gap
from proofs._harness import MEANING, AtMost, Equal, Statement, under
from proofs._symbols import product, total

x, y, u, v = sp.symbols("x y u v", real=True)
a = sp.Symbol("a", nonnegative=True)
n = sp.Symbol("n", integer=True, positive=True)
pi, half = sp.pi, sp.Rational(1, 2)


def claims(relation, *given, depths=(1,), slug="altered"):
    """State a relation, or one a depth."""
    claim = relation if callable(relation) else lambda depth: relation
    return Statement(slug=slug, scope="any", claim=claim, given=lambda depth: given, depths=depths)


def layers(relation, *given):
    return claims(relation, *given, depths=(1, 2, 3))


def altered(statement, claim):
    """Put another claim into a proved statement."""
    return dataclasses.replace(statement, claim=claim, arguments=None)


def numbers(depth, name="s", **sign):
    return sp.symbols(f"{name}:{depth}", **(sign or {"nonnegative": True}))


def spread(depth, most=12):
    entries = numbers(depth, "x", real=True)
    return AtMost(total(entries) ** 2, most * total(s**2 for s in entries))


def from_a_size_on(statement, first):
    """Add to a proved statement's first relation what is not zero from some depth on."""

    def claim(depth):
        one, *others = statement.relations(depth)
        return (dataclasses.replace(one, rhs=one.rhs + sp.binomial(depth, first)), *others)

    return altered(statement, claim)


def with_extra(statement, extra):
    """Add something to the right side of a proved statement's first relation."""

    def claim(depth):
        first, *others = statement.relations(depth)
        return (dataclasses.replace(first, rhs=first.rhs + extra), *others)

    return altered(statement, claim)


BEYOND = {
    "Cauchy-Schwarz with twelve layers": layers(spread),
    "a sign from the tenth layer on": layers(
        lambda depth: AtMost(0, product(numbers(depth, "x", real=True)) ** 2 * (sp.Integer(9) - depth) ** 3)
    ),
    "a long identity of three sizes from the fifth on": from_a_size_on(prove_gain.NEAREST, 5),
}
MEANT = {"what is claimed": claims(AtMost(x, y), *under(MEANING, (AtMost(x, y),)))}
POINTS = {
    "a sine of 84 pi x": claims(Equal(x**2, x**2 + sp.sin(84 * pi * x))),
    "a proved bound and a sine of another period": with_extra(
        prove_gap.BOUND, -(sp.sin(2520 * pi * x) ** 2) / 1000
    ),
    "factorials of five": claims(AtMost(sp.factorial(n), 120)),
    "equal numbers alone": claims(AtMost(sp.Piecewise((1, sp.Eq(x, y)), (0, True)) * 2 ** (x - y), 0)),
    "zero to the power of zero": claims(AtMost(a**n, a)),
    "a logarithm of large numbers": claims(AtMost(sp.log(1 + a), 2)),
}
OBSCURE = {
    f"{kind}: {name}": statement
    for kind, table in {"beyond": BEYOND, "meaning": MEANT, "points": POINTS}.items()
    for name, statement in table.items()
}
