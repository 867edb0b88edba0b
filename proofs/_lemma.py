"""What the steps of a proof show: lemmas, with values put in, added up and multiplied."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import sympy as sp

from proofs._relations import AtMost, Equal, Relation, UndecidedError, substitute

SIDES = ("lhs", "rhs")
SIGNS = ("positive", "nonnegative", "negative", "nonpositive")


@dataclass(frozen=True)
class Lemma:
    """A relation that a step showed, or a sum of such relations with values put in.

    ``asked`` is what must hold of the values: the signs that the lemma's symbols have, and those of the
    factors of an inequality.
    """

    relation: Relation
    asked: tuple[AtMost, ...] = ()

    def at(self, values: Mapping[Any, Any]) -> Self:
        """Put values in the place of the lemma's symbols.

        A matrix also gives its sizes. An inequality, in the place of a symbol that is not negative, stands
        for what its greater side has more. A symbol that is not zero asks nothing of its value: a statement
        says nothing where it divides by zero.
        """
        known = {}
        asked = list(self.asked)
        for symbol, value in values.items():
            if isinstance(value, Lemma):
                known[symbol] = value.relation.rhs - value.relation.lhs
                asked += [*value.asked, *(() if symbol.is_nonnegative else _signs(symbol, known[symbol]))]
                continue
            known[symbol] = value_of(value)
            asked += _signs(symbol, known[symbol])
            if isinstance(symbol, sp.MatrixSymbol):
                known |= {n: m for n, m in zip(symbol.shape, value.shape, strict=True) if n.is_Symbol}
        sides = {name: scalar_of(substitute(getattr(self.relation, name), known)) for name in SIDES}
        return type(self)(_like(self.relation, **sides), tuple(asked))

    def __add__(self, other: Any) -> Self:
        """Add a lemma side by side, or one expression to both sides."""
        if not isinstance(other, Lemma):
            other = type(self)(Equal(value_of(other), value_of(other)))
        sides = {name: getattr(self.relation, name) + getattr(other.relation, name) for name in SIDES}
        weakest = self.relation if isinstance(self.relation, AtMost) else other.relation
        strict = any(getattr(one.relation, "strict", False) for one in (self, other))
        return type(self)(_like(weakest, strict=strict, **sides), (*self.asked, *other.asked))

    __radd__ = __add__

    def __mul__(self, factor: Any) -> Self:
        """Multiply both sides; the factor of an inequality must not be negative."""
        factor = sp.sympify(factor)
        asked = (AtMost(sp.S.Zero, factor),) if isinstance(self.relation, AtMost) else ()
        strict = getattr(self.relation, "strict", False) and factor.is_positive is True
        sides = {name: getattr(self.relation, name) * factor for name in SIDES}
        return type(self)(_like(self.relation, strict=strict, **sides), (*self.asked, *asked))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Self:
        """Divide both sides by an expression, or an equation's by another one's."""
        if not isinstance(divisor, Lemma):
            return self * (1 / sp.sympify(divisor))
        sides = {name: getattr(self.relation, name) / getattr(divisor.relation, name) for name in SIDES}
        return type(self)(Equal(**sides), (*self.asked, *divisor.asked))


def _signs(symbol: Any, value: Any) -> list[AtMost]:
    """List what a symbol's assumptions ask of the value in its place."""
    if not isinstance(symbol, sp.Symbol):
        return []
    if symbol.is_integer and value.is_integer is not True:
        raise UndecidedError(f"{value} for the integer {symbol}")
    holds = [sign for sign in SIGNS if getattr(symbol, f"is_{sign}")]
    return [
        AtMost(sp.S.Zero, value if sign in SIGNS[:2] else -value, sign in ("positive", "negative"))
        for sign in holds[:1]  # the first one is the strictest
    ]


def _like(relation: Relation, *, lhs: Any, rhs: Any, strict: bool | None = None) -> Relation:
    if isinstance(relation, Equal):
        return Equal(lhs, rhs)
    return AtMost(lhs, rhs, relation.strict if strict is None else strict)


def value_of(value: Any) -> Any:
    value = sp.sympify(value)
    return value.as_explicit() if isinstance(value, sp.MatrixExpr) else value


def scalar_of(value: Any) -> Any:
    """Take the entry of a matrix of one entry."""
    return value[0, 0] if isinstance(value, sp.MatrixBase) and value.shape == (1, 1) else value
