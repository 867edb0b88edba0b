"""Statements: a claim, what it assumes, the sizes at which it is decided, and its numbers."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import sympy as sp

from proofs._relations import Relation

SHORT = 100
BEYOND = {3: SHORT, 12: 3 * SHORT}
"""How far beyond its author's sizes a claim is tried, and the operations up to which it is."""
_BEYOND: ContextVar[int] = ContextVar("beyond", default=0)


def width(authors: int) -> int:
    """Give a fixed size of a statement (widths, samples, outcomes): its author's, or one more when judged."""
    return authors + _BEYOND.get()


@contextmanager
def wider(beyond: int) -> Iterator[None]:
    """Make every `width` this much more."""
    token = _BEYOND.set(beyond)
    try:
        yield
    finally:
        _BEYOND.reset(token)


@dataclass(frozen=True)
class Statement:
    """A claim, what it assumes, and how to turn it into numbers."""

    slug: str  # the ledger's name of the statement
    scope: str  # what is symbolic and what is fixed
    # ``claim(depth)`` gives a relation or a tuple of relations between sympy objects. A claim without
    # depth ignores the argument and leaves ``depths`` alone.
    claim: Callable[[int], Relation | tuple[Relation, ...]]
    # ``given(depth)`` gives the relations assumed, beside those that the symbols themselves carry
    # (``nonnegative=True``, ...), each `under` the hypothesis that it stands for
    given: Callable[[int], tuple[Relation, ...]] = lambda depth: ()
    # the depths at which the claim is decided, beside the next one; sizes that do not grow with the
    # depth are a `width`, and decided at one more, too
    depths: tuple[int, ...] = (1,)
    # ``arguments(depth)`` gives the (nested) symbols that `numbers` takes, in order
    arguments: Callable[[int], Sequence[Any]] | None = None
    # ``(depth, values)`` at which a mutant is false, where a search would seldom find it
    witness: tuple[int, Mapping[Any, Any]] | None = None
    # what else the proof takes from the statement, reached as ``statement.part.name``
    parts: Mapping[str, Any] = field(default_factory=dict)
    _known: dict[tuple[int, int], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def part(self) -> SimpleNamespace:
        """The parts by name."""
        return SimpleNamespace(**self.parts)

    def relations(self, depth: int) -> tuple[Relation, ...]:
        """Give the claim at a depth, always as a tuple."""
        size = depth, _BEYOND.get()
        if size not in self._known:  # a statement's mutants start from its claim
            claim = self.claim(depth)
            self._known[size] = claim if isinstance(claim, tuple) else (claim,)
        return self._known[size]

    def sizes(self) -> Iterator[tuple[int, int]]:
        """List where the claim is decided: each depth, also at one width more, and the next depth."""
        for depth in self.depths:
            yield depth, 0
            authors = self.relations(depth), self.given(depth)
            with wider(1):
                more = self.relations(depth), self.given(depth)
            if more != authors:
                yield depth, 1
        yield self.depths[-1] + 1, 0

    def far(self) -> Iterator[tuple[int, int]]:
        """List sizes two beyond, and three and twelve where the claim stays short: a bound may fail late."""
        last, widths = self.depths[-1], {beyond for _, beyond in self.sizes()}
        if len(self.depths) > 1:
            for more in _affordable(lambda more: self.relations(last + more)):
                yield last + more, 0
        if 1 in widths:
            for more in _affordable(self._wide):
                yield self.depths[0], more

    def _wide(self, more: int) -> tuple[Relation, ...]:
        with wider(more):
            return self.relations(self.depths[0])

    def numbers(self, side: str = "rhs", *, depth: int = 1, index: int = 0) -> Callable[..., Any]:
        """Make a numerical function of ``arguments(depth)`` for one side of one relation."""
        if self.arguments is None:
            raise ValueError(f"statement {self.slug!r} does not say its arguments")
        arguments = [_nested(argument) for argument in self.arguments(depth)]
        expression = getattr(self.relations(depth)[index], side)
        if isinstance(expression, sp.MatrixExpr):
            expression = expression.as_explicit()
        return sp.lambdify(arguments, expression, modules="numpy")


def _affordable(at: Callable[[int], Sequence[Relation]]) -> Iterator[int]:
    """Go to three and to twelve sizes more, while the claim is short and grows no faster than a square.

    One that is longer is tried two sizes beyond.
    """
    length = count(at(1))
    if SHORT < length < math.inf:
        yield 2
    for more, longest in BEYOND.items():
        if length > longest:
            return
        yield more
        grown = count(at(more))
        if grown > 3 * max(length, SHORT // 5):
            return
        length = grown


def count(relations: Sequence[Relation]) -> float:
    """Count the operations of a claim between numbers, or between matrices entry by entry."""
    sides = [sp.sympify(side) for relation in relations for side in (relation.lhs, relation.rhs)]
    if any(isinstance(side, sp.MatrixExpr) and not isinstance(side, sp.MatrixBase) for side in sides):
        return math.inf
    return sum(sp.count_ops(list(side) if isinstance(side, sp.MatrixBase) else side) for side in sides)


def _nested(argument: Any) -> Any:
    if isinstance(argument, sp.MatrixBase):
        return list(argument) if argument.shape[1] == 1 else argument.tolist()
    if isinstance(argument, sp.MatrixSymbol):
        return argument
    if isinstance(argument, sp.Expr):  # a formula of one symbol, such as p / (1 + p), stands for that symbol
        (argument,) = argument.free_symbols
    return [_nested(item) for item in argument] if isinstance(argument, (tuple, list)) else argument
