"""False claims that the harness must refuse whatever their proofs are, by what each aims at.

True at the sizes that an author asks and false beyond; `MEANING` as a wild card; claims that the solver
cannot translate, false at few points. What finitely many sizes and points cannot see, such as a sum of forty
layers, a compared induction or the kernel decides.
"""

import sympy as sp

from proofs._harness import MEANING, AtMost, Equal, Statement, under
from proofs._symbols import product, total

x, y, u, v = sp.symbols("x y u v", real=True)
a = sp.Symbol("a", nonnegative=True)
n = sp.Symbol("n", integer=True, positive=True)


def claims(relation, *given, depths=(1,), slug="altered"):
    """State a relation, or one a depth."""
    claim = relation if callable(relation) else lambda depth: relation
    return Statement(slug=slug, scope="any", claim=claim, given=lambda depth: given, depths=depths)


def layers(relation, *given):
    return claims(relation, *given, depths=(1, 2, 3))


def numbers(depth, name="s", **sign):
    return sp.symbols(f"{name}:{depth}", **(sign or {"nonnegative": True}))


def spread(depth, most=12):
    entries = numbers(depth, "x", real=True)
    return AtMost(total(entries) ** 2, most * total(s**2 for s in entries))


BEYOND = {
    "Cauchy-Schwarz with twelve layers": layers(spread),
    "a sign from the tenth layer on": layers(
        lambda depth: AtMost(0, product(numbers(depth, "x", real=True)) ** 2 * (sp.Integer(9) - depth) ** 3)
    ),
    "an identity of three sizes from the fifth on": layers(
        lambda depth: Equal(total(numbers(depth)), total(numbers(depth)) + sp.binomial(depth, 5))
    ),
}
MEANT = {"what is claimed": claims(AtMost(x, y), *under(MEANING, (AtMost(x, y),)))}
POINTS = {
    "a sine that is zero at fractions": claims(AtMost(x**2, x**2 - sp.sin(2520 * sp.pi * x) ** 2 / 1000)),
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
