"""Powell's search over the entries of an example, for the largest share of a bound."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

EVALUATIONS = 1500
"""Of one start; a search that stands still ends before."""


class Bound(NamedTuple):
    """An inequality on examples that satisfy its assumptions, whatever their entries are.

    `sides` computes the smaller and the larger side from the entries, apart from each other.
    """

    slug: str
    entries: int
    sides: Callable[[np.ndarray], tuple[float, float]]


BOUNDS: dict[str, Bound] = {}
"""By name: the statement, and which part of it."""


def bound(slug: str, entries: int, side: str = "", *about: Any, **options: Any) -> Callable:
    """Register a function as the two sides of a statement's inequality, with what it takes beside entries."""

    def registered(function: Callable) -> Callable:
        def sides(of: np.ndarray) -> tuple[float, float]:
            return function(of, *about, **options)

        BOUNDS[f"{slug} ({side})" if side else slug] = Bound(slug, entries, sides)
        return function

    return registered


class _Enough(Exception):  # noqa: N818  # it is no error
    """Enough of the bound is reached."""


def climb(found: Bound, enough: float, starts: int) -> float:
    """Search from normal entries until enough is reached; the same on every run. Return what is reached."""
    best, rng = 0.0, np.random.default_rng(0)

    def missing(entries: np.ndarray) -> float:
        nonlocal best
        smaller, larger = found.sides(entries)
        share = smaller / larger if larger > 1e-9 else 0.0
        best = max(best, share)
        if best >= enough:
            raise _Enough
        return -share

    for _ in range(starts):
        try:
            options = {"maxfev": EVALUATIONS, "xtol": 1e-4, "ftol": 1e-7}
            minimize(missing, rng.standard_normal(found.entries), method="Powell", options=options)
        except _Enough:
            break
    return best
