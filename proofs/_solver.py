"""Decide ``given => claim`` over all reals with an SMT solver, and read its counterexamples.

A statement whose symbols are real numbers at a given depth and width is a sentence of real
arithmetic, which z3 decides: *unsatisfiable* negation means that the statement holds at every point
of that depth, not at the points that a search happened to draw. What has no such reading (matrices
of symbolic size, exponents that are symbols, logarithms, cases) is left to points and to the proof's steps.

Translation. Sums and products are themselves; ``Abs``, ``Max`` and ``Min`` become conditionals; a root
:math:`y = x^{p/q}` is a fresh variable with :math:`y^q = x^p` and ``y >= 0``; a quotient :math:`a / b` is a
fresh variable with ``y b = a``, asked only where ``b`` is not zero: elsewhere the statement says nothing.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp
import z3

from proofs._rational import vanishes

EFFORT = 1_500_000
"""Steps of the solver for one question: a count, so that machines decide the same questions."""
LITTLE = EFFORT // 40
"""Steps for a question whose answer, unless it refutes, changes nothing: points are tried all the same."""
TIMEOUT = 5000
"""Milliseconds for one question: some of the solver's procedures do not count their steps."""
ASSUMPTIONS = {
    "positive": lambda x: x > 0,
    "negative": lambda x: x < 0,
    "nonnegative": lambda x: x >= 0,
    "nonpositive": lambda x: x <= 0,
    "nonzero": lambda x: x != 0,
}


class UntranslatableError(Exception):
    """The expression is no term of real arithmetic."""


class Translator:
    """Turns sympy expressions into terms of z3, with what must hold of the variables it introduces."""

    def __init__(self) -> None:
        self.variables: dict[Any, Any] = {}
        self.side_conditions: list[Any] = []
        self.known: dict[Any, Any] = {}
        self.partial = False  # whether something is divided or has a root

    def term(self, expression: Any) -> Any:
        """Translate one expression."""
        if expression not in self.known:
            self.known[expression] = self._term(expression)
        return self.known[expression]

    def _term(self, expression: Any) -> Any:
        match expression:
            case sp.Rational():
                return z3.Q(int(expression.p), int(expression.q))
            case sp.Symbol():
                return self._symbol(expression)
            case sp.Add():
                return functools.reduce(operator.add, map(self.term, expression.args))
            case sp.Mul():
                numerator, denominator = sp.fraction(expression)
                if denominator == 1 or denominator.is_Rational:
                    return functools.reduce(operator.mul, map(self.term, expression.args))
                return self._quotient(self.term(numerator), self.term(denominator))
            case sp.Pow():
                return self._power(*expression.args)
            case sp.Abs():
                inside = self.term(expression.args[0])
                return z3.If(inside >= 0, inside, -inside)
            case sp.Max() | sp.Min():
                greater = isinstance(expression, sp.Max)
                return functools.reduce(
                    lambda x, y: z3.If((x >= y) if greater else (x <= y), x, y),
                    map(self.term, expression.args),
                )
        raise UntranslatableError(f"{type(expression).__name__} {expression}")

    def _symbol(self, symbol: Any) -> Any:
        if symbol.is_extended_real is False or not symbol.is_real:
            raise UntranslatableError(f"{symbol} is not real")
        # two symbols of one name and different assumptions are two numbers
        name = symbol.name + "'" * sum(
            symbol.name == known.name for known in self.variables if known != symbol
        )
        variable = z3.Int(name) if symbol.is_integer else z3.Real(name)
        self.variables[symbol] = variable
        self.side_conditions += [
            condition(variable) for name, condition in ASSUMPTIONS.items() if getattr(symbol, f"is_{name}")
        ]
        return z3.ToReal(variable) if symbol.is_integer else variable

    def _quotient(self, numerator: Any, denominator: Any) -> Any:
        self.partial = True
        value = z3.FreshReal("quotient")
        self.side_conditions += [denominator != 0, value * denominator == numerator]
        return value

    def _power(self, base: Any, exponent: Any) -> Any:
        if not exponent.is_Rational:
            raise UntranslatableError(f"{base} ** {exponent}")
        if exponent < 0:
            return self._quotient(z3.Q(1, 1), self.term(sp.Pow(base, -exponent)))
        inside, (p, q) = self.term(base), (int(exponent.p), int(exponent.q))
        power = functools.reduce(operator.mul, [inside] * p)
        if q == 1:
            return power
        self.partial = True
        root = z3.FreshReal("root")
        self.side_conditions += [inside >= 0, root >= 0, functools.reduce(operator.mul, [root] * q) == power]
        return root


@dataclass(frozen=True)
class Decision:
    """What was found: ``holds``, ``fails`` (at ``point``, where it is rational), ``open`` or ``empty``."""

    verdict: str
    point: Mapping[Any, Any] | None = None


def decide(
    claim: Sequence[Any], given: Sequence[Any], *, timeout: int = TIMEOUT, effort: int = EFFORT
) -> Decision:
    """Decide whether ``given`` implies ``claim`` for all real values of their symbols.

    Parameters
    ----------
    claim, given
        Relations with ``lhs``, ``rhs`` and ``strict`` (None for an equality).
    timeout
        Milliseconds for one question.
    effort
        The solver's steps for one question.

    Returns
    -------
    Decision
        ``open`` where the relations are no sentence of real arithmetic, or the effort did not suffice;
        ``empty`` where nothing satisfies what is given, or the claim divides by zero everywhere.
    """
    translator = Translator()
    try:
        assumed = [_relation(translator, relation) for relation in given]
        claimed = [_relation(translator, relation) for relation in claim]
    except UntranslatableError:
        return Decision("open")
    conditions = (*translator.side_conditions, *assumed)
    if (assumed or translator.partial) and _solver(timeout, *conditions, effort=effort).check() == z3.unsat:
        return Decision("empty")
    verdict = "holds"
    for relation, one in zip(claim, claimed, strict=True):  # one at a time: easier than their disjunction
        if _is_identity(relation):
            continue
        solver = _solver(timeout, *conditions, z3.Not(one), effort=effort)
        answer = solver.check()
        if answer == z3.sat:
            return Decision("fails", _point(translator, solver.model()))
        if answer == z3.unknown:
            verdict, effort = "open", LITTLE
    return Decision(verdict)


def _is_identity(relation: Any) -> bool:
    """Whether both sides are one rational function, for which no assumption is needed."""
    return not hasattr(relation, "strict") and all(map(vanishes, _entries(relation.lhs - relation.rhs)))


def _solver(timeout: int, *conditions: Any, effort: int = EFFORT) -> Any:
    """Make a solver for one question; one that is asked several decides fewer."""
    solver = z3.Solver()
    solver.set("rlimit", effort)
    solver.set("timeout", timeout)
    solver.add(*conditions)
    return solver


def boundary(given: Sequence[Any], symbols: Iterable[Any]) -> list[dict[Any, Any]]:
    """Find points of ``given`` at its ends: each inequality tight in turn, each symbol zero in turn."""
    ends = [(r.lhs, r.rhs) for r in given if getattr(r, "strict", None) is False]
    known = tuple(replace(r, lhs=_frozen(r.lhs), rhs=_frozen(r.rhs)) for r in given)
    found = [_end(known, *end) for end in (*ends, *((symbol, sp.S.Zero) for symbol in symbols))]
    return [dict(point) for point in found if point is not None]


@functools.lru_cache(maxsize=4096)  # a proof, its mutants and its altered claims assume the same
def _end(given: tuple[Any, ...], left: Any, right: Any) -> Mapping[Any, Any] | None:
    """Find a point of ``given`` where two expressions are equal."""
    translator = Translator()
    try:
        assumed = [_relation(translator, relation) for relation in given]
        end = translator.term(left) == translator.term(right)
    except UntranslatableError:
        return None
    solver = _solver(TIMEOUT // 10, *translator.side_conditions, *assumed, end)
    return _point(translator, solver.model()) if solver.check() == z3.sat else None


def _relation(translator: Translator, relation: Any) -> Any:
    """Translate a relation between scalars, or entry by entry between matrices."""
    compare: Callable[[Any, Any], Any] = {None: operator.eq, True: operator.lt, False: operator.le}[
        getattr(relation, "strict", None)
    ]
    pairs = zip(_entries(relation.lhs), _entries(relation.rhs), strict=True)
    return z3.And(*(compare(translator.term(left), translator.term(right)) for left, right in pairs))


def _frozen(side: Any) -> Any:
    return side.as_immutable() if isinstance(side, sp.MatrixBase) else side


def _entries(side: Any) -> Sequence[Any]:
    side = sp.sympify(side)
    if isinstance(side, sp.MatrixExpr):
        if any(not sp.sympify(size).is_Integer for size in side.shape):
            raise UntranslatableError(f"a matrix of symbolic size: {side}")
        side = side.as_explicit()
    return list(side) if isinstance(side, sp.MatrixBase) else [side]


def _point(translator: Translator, model: Any) -> dict[Any, Any] | None:
    values = {
        symbol: model.eval(variable, model_completion=True)
        for symbol, variable in translator.variables.items()
    }
    if not all(z3.is_rational_value(value) or z3.is_int_value(value) for value in values.values()):
        return None
    return {symbol: sp.Rational(str(value)) for symbol, value in values.items()}
