"""The steps of a proof: what is shown is a lemma, and lemmas must add up to the statement's own claim."""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp

from proofs._lemma import Lemma, scalar_of, value_of
from proofs._relations import (
    ATTEMPTS,
    POINTS,
    AtMost,
    Equal,
    RefutedError,
    Relation,
    UndecidedError,
    draw_point,
    glance,
    search_points,
    substitute,
    symbols_of,
)
from proofs._solver import TIMEOUT, decide
from proofs._statement import Statement
from proofs._zero import shown_by_signs, shown_equal, shown_nonnegative, shown_to_vanish


class Steps:
    """The only way for a proof to conclude anything."""

    def __init__(self) -> None:
        self._depth = 0

    def identity(self, name: str, left: Any, right: Any) -> Lemma:
        """Show ``left = right`` by expansion and simplification, or refute it in numbers."""
        if not shown_equal(left, right):
            _refute(name, Equal(left, right))
        return Lemma(Equal(left, right))

    def nonnegative(self, name: str, expression: Any, terms: Sequence[Any]) -> Lemma:
        """Show ``expression = sum(terms)`` and that each term is non-negative by its symbols."""
        total = sp.Add(*terms)
        self.identity(f"{name}: certificate", expression, total)
        for term in terms:
            if not shown_nonnegative(term):
                _refute(f"{name}: sign of {term}", AtMost(sp.Integer(0), term))
        strict = any(sp.sympify(term).is_positive is True for term in terms)
        return Lemma(AtMost(sp.Integer(0), sp.sympify(expression), strict))

    def conclude(
        self, statement: Statement, derive: Callable[[int], Any] | None = None, *, depths: Any = None
    ) -> Any:
        """Compare what the lemmas add up to with the statement's claim, at each of its depths and the next.

        Parameters
        ----------
        statement
            The statement that is proved.
        derive
            ``derive(depth)`` gives a lemma with values put in for each relation of the claim, in order. An
            identity must have the claim's two sides; an inequality the claim's difference of sides. None
            stands for a relation whose own sides an earlier step compared. May be the function decorated.
        depths
            Where to compare, if not at all depths.
        """
        if derive is None:
            return functools.partial(self.conclude, statement, depths=depths)
        depths = depths or (*statement.depths, statement.depths[-1] + 1)
        for depth in depths:
            self._depth = depth
            derived = derive(depth)
            derived = derived if isinstance(derived, (list, tuple)) else (derived,)
            claimed, given = statement.relations(depth), statement.given(depth)
            if len(derived) != len(claimed):
                raise UndecidedError(f"{statement.slug}: {len(derived)} of {len(claimed)} relations derived")
            asked = {}
            for index, (lemma, relation) in enumerate(zip(derived, claimed, strict=True)):
                name = f"{statement.slug}, depth {depth}, relation {index}"
                if lemma is None:
                    continue
                lemma = lemma if isinstance(lemma, Lemma) else Lemma(Equal(lemma, lemma))
                for pair in _compared(name, lemma.relation, relation):
                    _must_be_the_same(name, *pair, given)
                if isinstance(relation, AtMost) and depth == depths[-1]:
                    _must_not_beg(name, lemma, relation, given)
                asked |= dict.fromkeys(lemma.asked)
            for condition in asked:
                _must_hold(f"{statement.slug}, depth {depth}", condition, given)
        return derive

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
    if isinstance(claim, Equal):
        if not isinstance(lemma, Equal):
            raise UndecidedError(f"{name}: an inequality for an equation")
        return [(lemma.lhs, claim.lhs), (lemma.rhs, claim.rhs)]
    if claim.strict and not getattr(lemma, "strict", False):
        raise UndecidedError(f"{name}: the claim is strict")
    return [(lemma.rhs - lemma.lhs, claim.rhs - claim.lhs)]


def _must_be_the_same(name: str, left: Any, right: Any, given: Sequence[Relation]) -> None:
    """Expand, or try exact points at which the hypotheses hold."""
    left, right = scalar_of(value_of(left)), scalar_of(value_of(right))
    difference = left - right
    entries = list(difference) if isinstance(difference, sp.MatrixBase) else [difference]
    entries = [entry for entry in entries if not shown_to_vanish(entry)]
    if not entries:
        return
    zeros = [Equal(entry, sp.S.Zero) for entry in entries]
    wrong, tried = glance(name, zeros, given, points=POINTS, attempts=ATTEMPTS)
    if wrong is not None:
        raise RefutedError(f"{name}: {left} is derived, {right} is claimed; they differ at {wrong}")
    if tried < POINTS:
        raise UndecidedError(f"{name}: {tried} admissible points")


def _must_not_beg(name: str, lemma: Lemma, claim: Relation, given: Sequence[Relation]) -> None:
    """Refuse a lemma that asks for what is claimed, where the claim is not among the hypotheses."""
    slack = claim.rhs - claim.lhs
    for condition in lemma.asked:
        wanted = condition.rhs - condition.lhs
        if _is_a_multiple(slack, wanted) and not _assumed(condition, given) and not shown_by_signs(condition):
            raise UndecidedError(f"{name}: the claim itself is asked of what is put in: {condition}")


def _is_a_multiple(slack: Any, wanted: Any) -> bool:
    """Whether what is claimed is a positive number times what is asked."""
    if wanted == 0:
        return False
    if slack.free_symbols != wanted.free_symbols:
        return shown_to_vanish(slack - wanted)
    draw = random.Random("multiple")
    point = draw_point(symbols_of([Equal(slack, wanted)], ()), draw, {})
    above, below = (substitute(side, point) for side in (slack, wanted))
    times = above / below if below != 0 else sp.S.One
    return shown_to_vanish(slack - (times if times.is_Rational and times > 0 else 1) * wanted)


def _assumed(condition: AtMost, given: Sequence[Relation]) -> bool:
    return any(
        condition.rhs - condition.lhs == hypothesis.rhs - hypothesis.lhs
        for hypothesis in given
        if isinstance(hypothesis, AtMost) and hypothesis.strict >= condition.strict
    )


def _must_hold(name: str, condition: AtMost, given: Sequence[Relation]) -> None:
    """Show what a lemma asks of the values put in: by signs, by the solver, or at points."""
    if shown_by_signs(condition) or _assumed(condition, given):
        return
    decision = decide([condition], given, timeout=TIMEOUT // 10)
    if decision.verdict == "holds":
        return
    wrong = decision.point or search_points(name, [condition], given)
    if wrong is not None:
        raise RefutedError(f"{name}: a lemma asks {condition}, which fails at {wrong}")


def _refute(name: str, relation: Relation) -> None:
    """Raise `RefutedError` with numbers, or `UndecidedError` if none were found."""
    wrong, _ = glance(name, [relation], (), points=ATTEMPTS, attempts=ATTEMPTS // 10)
    if wrong is not None:
        raise RefutedError(f"{name}: {relation} fails at {wrong}")
    raise UndecidedError(f"{name}: {relation}")
