"""Look for a counterexample to a statement at each of its sizes: by the solver, else at points."""

from collections.abc import Mapping
from typing import Any

import sympy as sp

from proofs._rational import vanishes
from proofs._relations import POINTS, Equal, Relation, UndecidedError, allowed, glance, search_points
from proofs._solver import EFFORT, LITTLE, Decision, decide
from proofs._statement import SHORT, Statement, count, wider


def asked(depth: int, beyond: int) -> str:
    """Name a size at which a claim is decided."""
    return f"depth {depth}" + (", one width more" if beyond else "")


def search(statement: Statement) -> tuple[dict[Any, Any] | None, list[str]]:
    """Look for a counterexample at every size; where the solver gives up, at points.

    Returns
    -------
    counterexample : dict or None
        Values of the symbols that satisfy ``given`` and violate the claim.
    at_points : list of str
        The sizes at which nobody decided: there points were tried.

    Raises
    ------
    RuntimeError
        If the claim holds at the point that the solver names: the translation is wrong.
    UndecidedError
        If no point satisfies ``given`` where points are needed: the check would be empty.
    """
    if statement.witness is not None:
        depth, values = statement.witness
        return (dict(values) if _violated(statement, depth, values) else None), []
    left: list[tuple[int, int]] = []  # sizes at which nobody decided
    for depth, beyond in statement.sizes():
        with wider(beyond):
            relations, given = statement.relations(depth), statement.given(depth)
            larger = any(depth >= less and beyond >= fewer for less, fewer in left)
            decision = decide(relations, given, effort=LITTLE if larger else EFFORT)
            if decision.verdict == "empty":
                raise UndecidedError(f"{statement.slug}: nothing satisfies what it assumes at depth {depth}")
            found = _refuted(statement, depth, decision)
            if decision.verdict == "open" and not all(map(_is_identity, relations)):
                left.append((depth, beyond))
                name = f"{statement.slug}, depth {depth}"
                found = search_points(name, relations, given)
            if found is not None:
                return {"depth": depth, **found}, [asked(*size) for size in left]
    for depth, beyond in statement.far():  # well beyond, only what is refuted with little effort counts
        with wider(beyond):
            relations, given = statement.relations(depth), statement.given(depth)
            long = count(relations) > 3 * SHORT
            decision = Decision("open") if long else decide(relations, given, effort=LITTLE)
            found = _refuted(statement, depth, decision)
            if decision.verdict == "open":
                name = f"{statement.slug}, depth {depth}, {beyond} more"
                found, _ = glance(name, relations, given, points=POINTS // 2, attempts=POINTS * 4)
            if found is not None:
                return {"depth": depth, **found}, [asked(*size) for size in left]
    return None, [asked(*size) for size in left]


def _refuted(statement: Statement, depth: int, decision: Decision) -> dict[Any, Any] | None:
    """Give the solver's counterexample, which must be one."""
    if decision.verdict != "fails":
        return None
    if decision.point is not None and not _violated(statement, depth, decision.point):
        raise RuntimeError(f"{statement.slug}: true at the solver's {decision.point}")
    return {"point": "irrational"} if decision.point is None else dict(decision.point)


def _is_identity(relation: Relation) -> bool:
    """Whether both sides are one rational function, for which no assumption is needed."""
    if not isinstance(relation, Equal):
        return False
    difference = sp.sympify(relation.lhs - relation.rhs)
    entries = list(difference) if isinstance(difference, sp.MatrixBase) else [difference]
    try:
        return all(
            sp.cancel(sp.together(entry)) == 0 if (shown := vanishes(entry)) is None else shown
            for entry in entries
        )
    except sp.PolynomialError:
        return False


def _violated(statement: Statement, depth: int, values: Mapping[Any, Any]) -> bool:
    given = all(condition.holds(values) for condition in statement.given(depth))
    admissible = all(allowed(symbol, value) for symbol, value in values.items())
    return given and admissible and not all(r.holds(values) for r in statement.relations(depth))
