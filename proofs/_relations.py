"""Relations between expressions, and the exact points at which they are tried."""

import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp

from proofs._rational import QQ, fraction_at, number_at
from proofs._solver import boundary

POINTS = 12
ATTEMPTS = 4000
FEW = 100
"""Operations of a claim up to which ten times as many points are tried."""
LARGEST = 12
"""Up to where integers are drawn."""
PRIMES = tuple(sp.primerange(5, 100))
"""Denominators: one for each point, so that no period is shared by all points."""


class RefutedError(Exception):
    """A step of a proof is wrong, and here are numbers that show it."""


class UndecidedError(Exception):
    """A step could be neither shown nor refuted: mend the proof."""


@dataclass(frozen=True)
class Equal:
    """``lhs = rhs``, for scalars, explicit matrices and matrix expressions."""

    lhs: Any
    rhs: Any
    of: str = field(default="", compare=False)

    def holds(self, values: Mapping[Any, Any]) -> bool:
        """Whether it is true at a point."""
        return is_zero_number(substitute(self.lhs, values) - substitute(self.rhs, values))


@dataclass(frozen=True)
class AtMost:
    """``lhs <= rhs``, for real scalars; ``strict`` for ``<``."""

    lhs: Any
    rhs: Any
    strict: bool = False
    of: str = field(default="", compare=False)

    def holds(self, values: Mapping[Any, Any]) -> bool:
        """Whether it is true at a point."""
        left, right = (fraction_at(sp.sympify(side), values) for side in (self.lhs, self.rhs))
        if left is not None and right is not None:
            return left < right if self.strict else left <= right
        slack = substitute(self.rhs, values) - substitute(self.lhs, values)
        if slack.has(sp.nan, sp.zoo):  # a quotient by zero
            return False
        slack = slack if slack.is_Rational else sp.nsimplify(slack)
        return bool(slack > 0) if self.strict else bool(slack >= 0)


Relation = Equal | AtMost
MEANING = "what the symbols stand for"
"""The hypothesis of relations that say what a symbol is: a cosine lies between -1 and 1."""


def under(hypothesis: str, relations: Iterable[Any]) -> tuple[Any, ...]:
    """Say which hypotheses of the ledger, in its words, some relations of a ``given`` stand for."""
    return tuple(replace(relation, of=hypothesis) for relation in relations)


def within(most: Any, *numbers: Any) -> tuple[AtMost, ...]:
    """State that each number is at most so large in absolute value."""
    return tuple(AtMost(sign * number, most) for number in numbers for sign in (1, -1))


def symbols_of(relations: Sequence[Relation], given: Sequence[Relation]) -> list[Any]:
    found: set[Any] = set()
    for relation in (*relations, *given):
        for side in (relation.lhs, relation.rhs):
            found |= getattr(side, "free_symbols", set())
    return sorted(found, key=str)


def draw_point(symbols: Sequence[Any], draw: random.Random, chosen: dict[Any, Any]) -> dict[Any, Any]:
    """Draw a rational value for every symbol, sizes of matrices before matrices.

    At every fourth point the symbols of one name and different indices are equal, and at every fourth about
    half of those that may be are zero: bounds are attained there.
    """
    matrices = [symbol for symbol in symbols if isinstance(symbol, sp.MatrixSymbol)]
    sizes = set().union(*(sp.sympify(n).free_symbols for m in matrices for n in m.shape))
    values = dict(chosen)
    prime, kind = draw.choice(PRIMES), draw.randrange(4)
    tied, sparse = kind == 0, kind == 1
    by_name: dict[Any, Any] = {}
    for symbol in (*sorted(sizes, key=str), *symbols):
        if symbol in values or symbol in matrices:
            continue
        drawn = sp.Integer(draw.randint(1, 3)) if symbol in sizes else _scalar(symbol, draw, prime)
        if sparse and symbol not in sizes and not symbol.is_nonzero and draw.randrange(2):
            drawn = sp.Integer(0)
        name = symbol.name.rstrip("0123456789_"), tuple(sorted(symbol.assumptions0.items()))
        values[symbol] = by_name.setdefault(name, drawn) if tied and symbol not in sizes else drawn
    for matrix in matrices:
        if matrix not in values:
            rows, columns = (int(sp.sympify(n).subs(values)) for n in matrix.shape)
            entries = [_rational(draw, prime) for _ in range(rows * columns)]
            values[matrix] = sp.ImmutableMatrix(rows, columns, entries)
    return values


def draw_within(symbols: Sequence[Any], given: Sequence[Relation], draw: random.Random) -> dict[Any, Any]:
    """Draw a point, then one value after the other between the ends of what is given, often at an end."""
    values = draw_point(symbols, draw, {})
    scalars = (r for r in given if isinstance(sp.sympify(r.lhs), sp.Expr))
    for symbol, lines in _bounds(tuple(symbols), tuple(scalars)):
        lows, highs = [], []
        for equal, *line in lines:
            slope, rest = (fraction_at(part, values) for part in line)
            if slope and rest is not None:
                lows += [-rest / slope] * (slope > 0 or equal)
                highs += [-rest / slope] * (slope < 0 or equal)
        if not lows + highs:
            continue
        lows += [QQ(0)] * bool(symbol.is_nonnegative)
        highs += [QQ(0)] * bool(symbol.is_nonpositive)
        value = _between(lows, highs, fraction_at(symbol, values), draw)
        if value or not symbol.is_nonzero:
            values[symbol] = sp.Rational(value.numerator, value.denominator)
    return values


@functools.lru_cache(maxsize=256)
def _bounds(symbols: tuple[Any, ...], given: tuple[Relation, ...]) -> list[tuple[Any, list]]:
    """List symbols in the order of drawing, with what bounds each: slope and rest of a slack linear in it.

    A relation bounds the symbol of it that is drawn last. Symbols that stand alone on a side of a relation
    are drawn after the others.
    """
    slacks = [(isinstance(r, Equal), sp.sympify(r.rhs - r.lhs)) for r in given]
    alone = [side for r in given for side in (r.lhs, r.rhs, -r.lhs, -r.rhs)]
    later = [symbol for symbol in symbols if isinstance(symbol, sp.Symbol) and not symbol.is_integer]
    later.sort(key=lambda symbol: (alone.count(symbol), -sum(slack.has(symbol) for _, slack in slacks)))
    found = []
    while later:
        symbol, *later = later
        last = [(equal, x) for equal, x in slacks if x.has(symbol) and x.free_symbols.isdisjoint(later)]
        lines = ((equal, sp.diff(x, symbol), x.xreplace({symbol: sp.S.Zero})) for equal, x in last)
        found.append((symbol, [line for line in lines if symbol not in line[1].free_symbols]))
    return found


def _between(lows: list, highs: list, value: Any, draw: random.Random) -> Any:
    """Keep a value, or draw one between the ends, often at one of them."""
    low, high = max(lows, default=None), min(highs, default=None)
    inside = (low is None or low <= value) and (high is None or value <= high)
    if (inside and draw.randrange(2)) or (low is not None and high is not None and low > high):
        return value
    share = draw.choice((QQ(0), QQ(1), QQ(draw.randint(0, 8), 8)))
    if low is None:
        return value if high is None else high - share * abs(value)
    return low + share * (abs(value) if high is None else high - low)


def _scalar(symbol: Any, draw: random.Random, prime: int) -> Any:
    if symbol.is_integer:
        low = 1 if symbol.is_positive else 0 if symbol.is_nonnegative else -4
        return sp.Integer(draw.randint(low, LARGEST))
    value = _rational(draw, prime)
    if symbol.is_negative or symbol.is_nonpositive:
        value = -abs(value)
    elif symbol.is_nonnegative:
        value = abs(value)
    return (
        value
        if value != 0 or symbol.is_zero is not False
        else sp.Rational(1, 2) * (-1 if symbol.is_negative else 1)
    )


def _rational(draw: random.Random, prime: int) -> sp.Rational:
    """Draw a small integer, or a fraction of the point's prime, as often below one as above."""
    denominator = draw.choice((1, 2, prime))
    most = 9 if denominator < prime else draw.choice((1, 9)) * prime
    return sp.Rational(draw.randint(-most, most), denominator)


def substitute(expression: Any, values: Mapping[Any, Any]) -> Any:
    expression = sp.sympify(expression)
    if isinstance(expression, sp.Expr) and (found := number_at(expression, values)) is not None:
        return found
    scalars = {s: sp.sympify(v) for s, v in values.items() if not isinstance(s, sp.MatrixSymbol)}
    sized = {
        symbol: sp.MatrixSymbol(symbol.name, *value.shape)
        for symbol, value in values.items()
        if isinstance(symbol, sp.MatrixSymbol)
    }
    binds = expression.has(sp.Sum, sp.Product, sp.Integral, sp.Derivative, sp.Subs, sp.Lambda)
    result = expression.subs(scalars) if binds else expression.xreplace(scalars)  # ten times as fast
    result = result.subs({sized[s]: v for s, v in values.items() if s in sized})
    result = result.doit()
    return result.as_explicit() if isinstance(result, sp.MatrixExpr) else result


def is_zero_number(value: Any) -> bool:
    if isinstance(value, sp.MatrixBase):
        return all(is_zero_number(entry) for entry in value)
    return bool(value == 0) if value.is_Rational else bool(sp.simplify(value) == 0)


def defined(relations: Sequence[Relation], point: Mapping[Any, Any]) -> bool:
    undefined = (sp.nan, sp.zoo, sp.oo, -sp.oo)
    try:
        sides = [substitute(side, point) for relation in relations for side in (relation.lhs, relation.rhs)]
    except ValueError:  # the larger of a number and of none
        return False
    return not any(side.has(*undefined) for side in sides)


def allowed(symbol: Any, value: Any) -> bool:
    """Whether a witness respects what its symbol assumes."""
    if not isinstance(symbol, sp.Symbol):
        return True
    wanted = ("real", "integer", "positive", "nonnegative", "negative", "nonpositive", "nonzero")
    value = sp.sympify(value)
    return all(getattr(value, f"is_{name}") is True for name in wanted if getattr(symbol, f"is_{name}"))


def search_points(
    name: str,
    relations: Sequence[Relation],
    given: Sequence[Relation],
) -> dict[Any, Any] | None:
    """Try the ends of what is assumed, as the solver finds them, and random points.

    Raises
    ------
    UndecidedError
        If hardly a point satisfies what is given: the check would be empty.
    """
    for end in boundary(given, symbols_of(relations, given)):
        point = draw_point(symbols_of(relations, given), random.Random(name), end)
        # where something is divided by zero the statement says nothing
        if (
            defined((*given, *relations), point)
            and all(r.holds(point) for r in given)
            and not all(r.holds(point) for r in relations)
        ):
            return point
    # a claim that is short is evaluated soon, and at many points
    sides = [sp.sympify(side) for each in (*relations, *given) for side in (each.lhs, each.rhs)]
    short = sum(map(sp.count_ops, sides)) <= FEW
    points = POINTS * (40 if short else 4)
    wrong, admissible = glance(name, relations, given, points=points, attempts=ATTEMPTS)
    if wrong is None and admissible < POINTS:
        raise UndecidedError(f"{name}: {admissible} admissible points")
    return wrong


def glance(
    name: str,
    relations: Sequence[Relation],
    given: Sequence[Relation],
    *,
    points: int,
    attempts: int,
) -> tuple[dict[Any, Any] | None, int]:
    """Try random points: give one that violates, and the number of those that satisfy what is given."""
    draw = random.Random(name)
    symbols = symbols_of(relations, given)
    admissible = 0
    for _ in range(attempts):
        chosen: dict[Any, Any] = {}
        if given and draw.randrange(4):
            chosen = draw_within(symbols, given, draw)
        point = draw_point(symbols, draw, chosen)
        if not all(condition.holds(point) for condition in given):
            continue
        if not all(relation.holds(point) for relation in relations):
            if defined(relations, point):
                return point, admissible
            continue  # where something is divided by zero the statement says nothing
        admissible += 1
        if admissible == points:
            break
    return None, admissible
