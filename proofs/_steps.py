"""The steps of a proof: what is shown is a lemma, and lemmas must add up to the statement's own claim."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from proofs._rational import vanishes
from proofs._relations import (
    ATTEMPTS,
    POINTS,
    AtMost,
    Equal,
    RefutedError,
    Relation,
    UndecidedError,
    defined,
    draw_point,
    is_zero_number,
    search_points,
    substitute,
    symbols_of,
)
from proofs._solver import TIMEOUT, decide
from proofs._statement import Sample, Statement, draws

SIMPLE = 400  # operations up to which an expression is expanded
SIGNS = ("positive", "nonnegative", "negative", "nonpositive")


@dataclass(frozen=True)
class Lemma:
    """A relation that a step showed, or a sum of such relations with values put in.

    ``asked`` is what must hold of the values: the signs that the lemma's symbols have, and those of the
    factors of an inequality.
    """

    relation: Relation
    asked: tuple[AtMost, ...] = ()

    def at(self, values: Mapping[Any, Any]) -> Lemma:
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
            known[symbol] = _value(value)
            asked += _signs(symbol, known[symbol])
            if isinstance(symbol, sp.MatrixSymbol):
                known |= {n: m for n, m in zip(symbol.shape, value.shape, strict=True) if n.is_Symbol}
        sides = {name: _scalar(substitute(getattr(self.relation, name), known)) for name in ("lhs", "rhs")}
        return Lemma(_like(self.relation, **sides), tuple(asked))

    def __add__(self, other: Any) -> Lemma:
        """Add a lemma side by side, or one expression to both sides."""
        if not isinstance(other, Lemma):
            other = Lemma(Equal(_value(other), _value(other)))
        sides = {
            name: getattr(self.relation, name) + getattr(other.relation, name) for name in ("lhs", "rhs")
        }
        weakest = self.relation if isinstance(self.relation, AtMost) else other.relation
        strict = any(getattr(one.relation, "strict", False) for one in (self, other))
        return Lemma(_like(weakest, strict=strict, **sides), (*self.asked, *other.asked))

    __radd__ = __add__

    def __mul__(self, factor: Any) -> Lemma:
        """Multiply both sides; the factor of an inequality must not be negative."""
        factor = sp.sympify(factor)
        asked = (AtMost(sp.S.Zero, factor),) if isinstance(self.relation, AtMost) else ()
        strict = getattr(self.relation, "strict", False) and factor.is_positive is True
        sides = {name: getattr(self.relation, name) * factor for name in ("lhs", "rhs")}
        return Lemma(_like(self.relation, strict=strict, **sides), (*self.asked, *asked))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Lemma:
        """Divide both sides by an expression, or an equation's by another one's."""
        if not isinstance(divisor, Lemma):
            return self * (1 / sp.sympify(divisor))
        sides = {
            name: getattr(self.relation, name) / getattr(divisor.relation, name) for name in ("lhs", "rhs")
        }
        return Lemma(Equal(**sides), (*self.asked, *divisor.asked))


class Steps:
    """The only way for a proof to conclude anything; it counts the steps."""

    def __init__(self) -> None:
        """Start at no step."""
        self.count = 0
        self._depth = 0

    def identity(self, name: str, left: Any, right: Any, given: Sequence[Relation] = ()) -> Lemma:
        """Show ``left = right`` by expansion and simplification, or refute it in numbers."""
        self.count += 1
        if not _shown_zero(left, right):
            _refute(name, Equal(left, right), given)
        return Lemma(Equal(left, right))

    def nonnegative(self, name: str, expression: Any, terms: Sequence[Any]) -> Lemma:
        """Show ``expression = sum(terms)`` and that each term is non-negative by its symbols."""
        total = sp.Add(*terms)
        self.identity(f"{name}: certificate", expression, total)
        for term in terms:
            if not _shown_nonnegative(term):
                _refute(f"{name}: sign of {term}", AtMost(sp.Integer(0), term), ())
        strict = any(sp.sympify(term).is_positive is True for term in terms)
        return Lemma(AtMost(sp.Integer(0), sp.sympify(expression), strict))

    def implied(self, name: str, condition: Any) -> None:
        """Show a condition that sympy's assumptions decide (``(1 - rho).is_positive``)."""
        self.count += 1
        simplified = sp.simplify(condition)
        if simplified == sp.false:
            raise RefutedError(f"{name}: {condition} is false")
        if simplified != sp.true:
            raise UndecidedError(f"{name}: {condition}")

    def conclude(self, statement: Statement, derive: Callable[[int], Any], *, depths: Any = None) -> None:
        """Compare what the lemmas add up to with the statement's claim, at each of its depths and the next.

        Parameters
        ----------
        statement
            The statement that is proved.
        derive
            ``derive(depth)`` gives a lemma with values put in for each relation of the claim, in order. An
            identity must have the claim's two sides; an inequality the claim's difference of sides. None
            stands for a relation whose own sides an earlier step compared.
        depths
            Where to compare, if not at all depths.
        """
        self.count += 1
        depths = depths or (*statement.depths, statement.depths[-1] + 1)
        for depth in depths:
            self._depth = depth
            derived = derive(depth)
            derived = derived if isinstance(derived, (list, tuple)) else (derived,)
            claimed, given = statement.relations(depth), statement.given(depth)
            if len(derived) != len(claimed):
                raise UndecidedError(f"{statement.slug}: {len(derived)} of {len(claimed)} relations derived")
            sample = draws(statement, depth)
            asked = {}
            for index, (lemma, relation) in enumerate(zip(derived, claimed, strict=True)):
                name = f"{statement.slug}, depth {depth}, relation {index}"
                if lemma is None:
                    continue
                lemma = lemma if isinstance(lemma, Lemma) else Lemma(Equal(lemma, lemma))
                for pair in _compared(name, lemma.relation, relation):
                    _must_be_the_same(name, *pair, given, sample)
                if isinstance(relation, AtMost) and depth == depths[-1]:
                    _must_not_beg(name, lemma, relation, given)
                asked |= dict.fromkeys(lemma.asked)
            for condition in asked:
                _must_hold(f"{statement.slug}, depth {depth}", condition, given, sample)

    def hypothesis(self, statement: Statement, depth: int, index: int = 0) -> Lemma:
        """Take one relation of the claim at a smaller depth than the one that is compared: induction."""
        if depth >= self._depth:
            raise UndecidedError(f"{statement.slug}: depth {depth} is assumed to show depth {self._depth}")
        return Lemma(statement.relations(depth)[index])

    def base(self, statement: Statement, depths: Sequence[int], *, relations: Sequence[int] = ()) -> None:
        """Show the claim's identities themselves where a proof by induction starts."""
        for depth in depths:
            for index, relation in enumerate(statement.relations(depth)):
                if not relations or index in relations:
                    self.identity(f"depth {depth}, relation {index}", relation.lhs, relation.rhs)


def _compared(name: str, lemma: Relation, claim: Relation) -> list[tuple[Any, Any]]:
    """Pair what must be the same in a lemma and in the claim."""
    if isinstance(claim, Equal):
        if not isinstance(lemma, Equal):
            raise UndecidedError(f"{name}: an inequality for an equation")
        return [(lemma.lhs, claim.lhs), (lemma.rhs, claim.rhs)]
    if claim.strict and not getattr(lemma, "strict", False):
        raise UndecidedError(f"{name}: the claim is strict")
    return [(lemma.rhs - lemma.lhs, claim.rhs - claim.lhs)]


def _must_be_the_same(name: str, left: Any, right: Any, given: Sequence[Relation], sample: Sample) -> None:
    """Expand, or try exact points at which the hypotheses hold."""
    left, right = _scalar(_value(left)), _scalar(_value(right))
    difference = left - right
    entries = list(difference) if isinstance(difference, sp.MatrixBase) else [difference]
    entries = [entry for entry in entries if not _shown_to_vanish(entry)]
    draw = random.Random(name)
    symbols = symbols_of([Equal(entry, sp.S.Zero) for entry in entries], given)
    tried = 0
    for _ in range(ATTEMPTS if entries else 0):
        point = draw_point(symbols, draw, dict(sample(draw)))
        if not all(condition.holds(point) for condition in given):
            continue
        values = [substitute(entry, point) for entry in entries]
        if any(value.has(sp.nan, sp.zoo) for value in values):
            continue  # a quotient by zero
        if not all(map(is_zero_number, values)):
            raise RefutedError(f"{name}: {left} is derived, {right} is claimed; they differ at {point}")
        tried += 1
        if tried == POINTS:
            break
    if entries and tried < POINTS:
        raise UndecidedError(f"{name}: {tried} admissible points")


def _must_not_beg(name: str, lemma: Lemma, claim: Relation, given: Sequence[Relation]) -> None:
    """Refuse a lemma that asks for what is claimed, where the claim is not among the hypotheses."""
    slack = claim.rhs - claim.lhs
    for condition in lemma.asked:
        wanted = condition.rhs - condition.lhs
        if _is_a_multiple(slack, wanted) and not _assumed(condition, given) and not _by_signs(condition):
            raise UndecidedError(f"{name}: the claim itself is asked of what is put in: {condition}")


def _is_a_multiple(slack: Any, wanted: Any) -> bool:
    """Whether what is claimed is a positive number times what is asked."""
    if wanted == 0:
        return False
    if slack.free_symbols != wanted.free_symbols:
        return _shown_to_vanish(slack - wanted)
    draw = random.Random("multiple")
    point = draw_point(symbols_of([Equal(slack, wanted)], ()), draw, {})
    above, below = (substitute(side, point) for side in (slack, wanted))
    times = above / below if below != 0 else sp.S.One
    return _shown_to_vanish(slack - (times if times.is_Rational and times > 0 else 1) * wanted)


def _assumed(condition: AtMost, given: Sequence[Relation]) -> bool:
    """Whether a condition is a hypothesis, as it stands."""
    return any(
        condition.rhs - condition.lhs == hypothesis.rhs - hypothesis.lhs
        for hypothesis in given
        if isinstance(hypothesis, AtMost) and hypothesis.strict >= condition.strict
    )


def _must_hold(name: str, condition: AtMost, given: Sequence[Relation], sample: Sample) -> None:
    """Show what a lemma asks of the values put in: by signs, by the solver, or at points."""
    if _by_signs(condition) or _assumed(condition, given):
        return
    decision = decide([condition], given, timeout=TIMEOUT // 10)
    if decision.verdict == "holds":
        return
    wrong = decision.point or search_points(name, [condition], given, sample)
    if wrong is not None:
        raise RefutedError(f"{name}: a lemma asks {condition}, which fails at {wrong}")


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


def _value(value: Any) -> Any:
    value = sp.sympify(value)
    return value.as_explicit() if isinstance(value, sp.MatrixExpr) else value


def _scalar(value: Any) -> Any:
    """Take the entry of a matrix of one entry."""
    return value[0, 0] if isinstance(value, sp.MatrixBase) and value.shape == (1, 1) else value


def _refute(name: str, relation: Relation, given: Sequence[Relation]) -> None:
    """Raise `RefutedError` with numbers, or `UndecidedError` if none were found."""
    draw = random.Random(name)
    symbols = symbols_of((relation,), given)
    for _ in range(ATTEMPTS // 10):
        values = draw_point(symbols, draw, {})
        admissible = all(condition.holds(values) for condition in given)
        if admissible and not relation.holds(values) and defined((relation,), values):
            raise RefutedError(f"{name}: {relation} fails at {values}")
    raise UndecidedError(f"{name}: {relation}")


def _shown_zero(left: Any, right: Any) -> bool:
    return _is_zero(*(sp.ImmutableMatrix(x) if isinstance(x, sp.MatrixBase) else x for x in (left, right)))


def _shown_to_vanish(entry: Any) -> bool:
    """Whether an expression is zero as a rational function, or by expansion where it is none and not long."""
    decided = vanishes(entry)
    return sp.count_ops(entry) <= SIMPLE and sp.expand(entry) == 0 if decided is None else decided


@functools.lru_cache(maxsize=512)  # a proof meets its mutants and altered claims with the same steps
def _is_zero(left: Any, right: Any) -> bool:
    difference = left - right
    if isinstance(difference, sp.MatrixBase):
        return all(_is_zero(entry, sp.S.Zero) for entry in difference)
    if (decided := vanishes(difference)) is not None:
        return decided
    difference = sp.expand(sp.expand(difference.doit()).doit())
    difference = difference.replace(lambda e: isinstance(e, sp.Trace), _trace)
    if isinstance(difference, sp.MatrixExpr):
        return isinstance(difference, sp.ZeroMatrix)
    return difference == 0 or sp.simplify(difference) == 0


def _trace(trace: sp.Trace) -> Any:
    """One spelling for ``tr(A B) = tr(B A) = tr(B' A')``, and sums and factors outside."""
    inside = sp.expand(trace.arg.doit()).doit()
    if isinstance(inside, sp.MatAdd):
        return sum((_trace(sp.Trace(term)) for term in inside.args), sp.Integer(0))
    factor, product = inside.as_coeff_mmul()
    spellings = []
    for word in (product, product.T.doit()):
        letters = word.args if isinstance(word, sp.MatMul) else (word,)
        turns = (letters[i:] + letters[:i] for i in range(len(letters)))
        spellings += [sp.MatMul(*turn, evaluate=False) for turn in turns]
    return factor * sp.Trace(min(spellings, key=str))


def _by_signs(condition: AtMost) -> bool:
    """Whether what is asked of a value, to be above 0, holds by the signs of its symbols."""
    slack = sp.sympify(condition.rhs - condition.lhs)
    return slack.is_positive is True if condition.strict else _shown_nonnegative(slack)


def _shown_nonnegative(term: Any) -> bool:
    term = sp.sympify(term)
    if term.is_nonnegative or sp.factor(term).is_nonnegative or sp.expand(term).is_nonnegative:
        return True
    return term.is_Mul and all(_shown_nonnegative(factor) for factor in term.args)
