"""Rational functions without sympy's rewriting: whether one is zero, and what it is at a point.

A value that is not zero modulo a prime shows in a moment that the function is not zero. Where it is zero, the
numerator is computed as a polynomial, which decides, in a small part of the time that expanding takes.
"""

import functools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

PRIME = 2**61 - 1
QQ = sp.QQ.dtype
"""Rationals without sympy's trees."""
WORK = 200_000
"""Products of terms for one expression; what takes more is left to points."""


def vanishes(expression: Any) -> bool | None:
    """Decide whether a rational function is zero; None where roots, bars or the like may make it so."""
    expression = sp.sympify(expression)
    if not isinstance(expression, sp.Expr) or isinstance(expression, sp.MatrixExpr):
        return None
    if isinstance(expression, sp.Rational):
        return bool(expression == 0)
    atoms = sorted(_atoms(expression), key=str)
    draw = random.Random(len(atoms))
    rational = all(isinstance(atom, sp.Symbol) for atom in atoms)
    try:
        residue = _residue(expression, {atom: draw.randrange(1, PRIME) for atom in atoms})
    except ValueError:  # a quotient by zero
        return None
    if residue:
        return False if rational else None
    ring = sp.polys.rings.PolyRing([f"x{i}" for i in range(len(atoms))], sp.QQ, sp.polys.orderings.lex)
    try:
        numerator, _ = _Fractions(dict(zip(atoms, ring.gens, strict=True)), ring.one).of(expression)
    except OverflowError:
        return None
    return numerator == 0 or (False if rational else None)


def fraction_at(expression: Any, known: Mapping[Any, Any]) -> Any | None:
    """Evaluate in sympy's own rationals; None where it is more than arithmetic, or a quotient by zero."""
    values: list[Any] = []
    try:
        for operation, parts in _operations(expression):
            if operation is None:
                found = known.get(parts, parts)
                if not isinstance(found, sp.Rational):
                    return None
                values.append(QQ(int(found.p), int(found.q)))
            else:
                values.append(operation([values[part] for part in parts]))
    except ArithmeticError:
        return None
    return values[-1]


def number_at(expression: Any, known: Mapping[Any, Any]) -> Any | None:
    """Evaluate likewise, to sympy's numbers."""
    found = fraction_at(expression, known)
    return None if found is None else sp.Rational(int(found.numerator), int(found.denominator))


ARITHMETIC = {sp.Add: sum, sp.Mul: math.prod, sp.Max: max, sp.Min: min, sp.Abs: lambda parts: abs(*parts)}


@functools.lru_cache(maxsize=4096)  # an expression is evaluated at many points
def _operations(expression: Any) -> list[tuple[Callable[[list], Any] | None, Any]]:
    """List what is computed, in order: a function of earlier places, or, without one, what stands alone."""
    found: list[tuple[Callable[[list], Any] | None, Any]] = []
    places: dict[Any, int] = {}

    def place(node: Any) -> int:
        if node not in places:
            if type(node) in ARITHMETIC:
                found.append((ARITHMETIC[type(node)], [place(part) for part in node.args]))
            elif _is_power(node):
                found.append((lambda parts, by=int(node.exp): parts[0] ** by, [place(node.base)]))
            else:
                found.append((None, node))
            places[node] = len(found) - 1
        return places[node]

    place(expression)
    return found


def _is_power(node: Any) -> bool:
    return isinstance(node, sp.Pow) and bool(node.exp.is_Integer)


def _atoms(expression: Any) -> set[Any]:
    """Find what is neither a sum, a product, a whole power nor a number."""
    found: set[Any] = set()
    met: set[Any] = set()
    pending = [expression]
    while pending:
        node = pending.pop()
        if node in met or isinstance(node, sp.Rational):
            continue
        met.add(node)
        if isinstance(node, (sp.Add, sp.Mul)):
            pending += node.args
        elif _is_power(node):
            pending.append(node.base)
        else:
            found.add(node)
    return found


def _residue(node: Any, known: dict[Any, int]) -> int:
    """Evaluate modulo the prime."""
    if node in known:
        return known[node]
    if isinstance(node, sp.Rational):
        value = int(node.p) * pow(int(node.q), -1, PRIME)
    elif isinstance(node, sp.Add):
        value = sum(_residue(part, known) for part in node.args)
    elif isinstance(node, sp.Mul):
        value = 1
        for part in node.args:
            value = value * _residue(part, known) % PRIME
    else:
        value = pow(_residue(node.base, known), int(node.exp), PRIME)
    known[node] = value % PRIME
    return known[node]


class _Fractions:
    """Numerators and denominators as polynomials, with no more than some work."""

    def __init__(self, known: dict[Any, Any], one: Any) -> None:
        self.known, self.one, self.left = {atom: (x, one) for atom, x in known.items()}, one, WORK

    def of(self, node: Any) -> tuple[Any, Any]:
        """Give numerator and denominator of an expression."""
        if node not in self.known:
            self.known[node] = self._of(node)
        return self.known[node]

    def _of(self, node: Any) -> tuple[Any, Any]:
        if isinstance(node, sp.Rational):
            return self.one * sp.QQ(int(node.p), int(node.q)), self.one
        above, below = self.one, self.one
        if isinstance(node, sp.Add):
            parts: dict[Any, Any] = {}
            for numerator, denominator in map(self.of, node.args):
                parts[denominator] = parts.get(denominator, 0) + numerator
            above = self.one * 0
            for denominator, numerator in parts.items():
                above = self.times(above, denominator) + self.times(numerator, below)
                below = self.times(below, denominator)
            return above, below
        if isinstance(node, sp.Mul):
            for numerator, denominator in map(self.of, node.args):
                above, below = self.times(above, numerator), self.times(below, denominator)
            return above, below
        numerator, denominator = self.of(node.base)
        for _ in range(abs(int(node.exp))):
            above, below = self.times(above, numerator), self.times(below, denominator)
        return (above, below) if node.exp > 0 else (below, above)

    def times(self, left: Any, right: Any) -> Any:
        """Multiply, while there is work left."""
        self.left -= len(left) * len(right)
        if self.left < 0:
            raise OverflowError
        return left * right
