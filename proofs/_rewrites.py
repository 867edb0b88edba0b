"""Rewrites of a claim: the vocabulary in which a proof lists its mutants.

A rewrite takes a statement and gives another one that differs in one place. The harness applies it, so that a
builder writes the true claim alone, and holds every mutant false and refused by the statement's own proof.

What is put in may be a function of the depth. ``only`` is the index of the relation that is rewritten (else
each one is), ``of`` the side: "lhs", "rhs" or "both".
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from proofs._relations import Relation
from proofs._statement import Statement

Rewrite = Callable[[Statement], Statement]


def relation(change: Callable[[Relation, int], Relation], *, only: int | None = None) -> Rewrite:
    """Replace a relation by ``change(relation, depth)``."""

    def rewrite(statement: Statement) -> Statement:
        def claim(depth: int) -> tuple[Relation, ...]:
            old = enumerate(statement.relations(depth))
            return tuple(change(r, depth) if only in (None, index) else r for index, r in old)

        return replace(statement, claim=claim)

    return rewrite


def side(change: Callable[[Any, int], Any], *, only: int | None = None, of: str = "rhs") -> Rewrite:
    """Replace a side by ``change(side, depth)``."""
    sides = ("lhs", "rhs") if of == "both" else (of,)
    return relation(
        lambda old, depth: replace(old, **{name: change(getattr(old, name), depth) for name in sides}),
        only=only,
    )


def becomes(new: Any, *, only: int | None = None, of: str = "rhs") -> Rewrite:
    """Write another side."""
    return side(lambda old, depth: _at(new, depth), only=only, of=of)


def times(factor: Any, *, only: int | None = None, of: str = "rhs") -> Rewrite:
    """Multiply a side."""
    return side(lambda old, depth: old * _at(factor, depth), only=only, of=of)


def plus(term: Any, *, only: int | None = None, of: str = "rhs") -> Rewrite:
    """Add to a side."""
    return side(lambda old, depth: old + _at(term, depth), only=only, of=of)


def put(values: Any, *, only: int | None = None, of: str = "rhs") -> Rewrite:
    """Put values in the place of symbols, or of other parts of a side, all at once."""
    return side(lambda old, depth: _expression(old).xreplace(_at(values, depth)), only=only, of=of)


def each(name: str, change: Any, *, only: int | None = None, of: str = "rhs") -> Rewrite:
    """Put ``change(symbol)``, or a number, in the place of each symbol of a name, whatever its index."""

    def changed(old: Any, depth: int) -> Any:
        symbols = (symbol for symbol in _expression(old).free_symbols if _stem(symbol) == name)
        return old.xreplace({symbol: sp.sympify(_at(change, symbol)) for symbol in symbols})

    return side(lambda old, depth: changed(_expression(old), depth), only=only, of=of)


def exchanged(*, only: int | None = None) -> Rewrite:
    """Exchange the two sides of a relation."""
    return relation(lambda old, depth: replace(old, lhs=old.rhs, rhs=old.lhs), only=only)


def without(hypothesis: str, *, about: str = "") -> Rewrite:
    """Drop what is given under a hypothesis, or the part of it about the symbols of a name."""

    def dropped(r: Relation) -> bool:
        symbols = (symbol for side in (r.lhs, r.rhs) for symbol in _expression(side).free_symbols)
        return r.of == hypothesis and (not about or about in map(_stem, symbols))

    return given(lambda r, depth: None if dropped(r) else r)


def given(change: Callable[[Relation, int], Relation | None]) -> Rewrite:
    """Change what is given, or drop it where ``change(relation, depth)`` is None."""

    def rewrite(statement: Statement) -> Statement:
        def changed(depth: int) -> tuple[Relation, ...]:
            new = (change(old, depth) for old in statement.given(depth))
            return tuple(relation for relation in new if relation is not None)

        return replace(statement, given=changed)

    return rewrite


def signless(name: str) -> Rewrite:
    """Take the sign from the symbols of a name, in the claim and in the arguments that its proof takes."""

    def free(old: Any) -> Any:
        if isinstance(old, (list, tuple)):
            return type(old)(map(free, old))
        old = _expression(old)
        named = (symbol for symbol in old.free_symbols if _stem(symbol) == name)
        return old.xreplace({symbol: sp.Symbol(symbol.name, real=True) for symbol in named})

    def freed(relations: tuple[Relation, ...]) -> tuple[Relation, ...]:
        return tuple(replace(r, lhs=free(r.lhs), rhs=free(r.rhs)) for r in relations)

    def rewrite(statement: Statement) -> Statement:
        named = statement.arguments
        return replace(
            statement,
            claim=lambda depth: freed(statement.relations(depth)),
            given=lambda depth: freed(statement.given(depth)),
            arguments=None if named is None else lambda depth: free(tuple(named(depth))),
        )

    return rewrite


def at(depth: int, values: Mapping[Any, Any]) -> Rewrite:
    """Say where a mutant is false, if a search would seldom find it; see `every`."""
    return lambda statement: replace(statement, witness=(depth, values))


def every(*rewrites: Rewrite) -> Rewrite:
    """Apply several rewrites, one after the other."""

    def rewrite(statement: Statement) -> Statement:
        for one in rewrites:
            statement = one(statement)
        return statement

    return rewrite


def _at(value: Any, place: Any) -> Any:
    """Call what is a function of a depth or of a symbol; sympy's symbols can be called, too."""
    return value(place) if callable(value) and not isinstance(value, sp.Basic) else value


def _expression(old: Any) -> Any:
    return sp.ImmutableMatrix(old) if isinstance(old, sp.MatrixBase) else sp.sympify(old)


def _stem(symbol: Any) -> str:
    return symbol.name.rstrip("0123456789_")
