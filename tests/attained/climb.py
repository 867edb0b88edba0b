"""Powell's search over the entries of an example, for the largest share of a bound."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

EVALUATIONS = 1500
"""Of one start; a search that stands still ends before."""


class Bound(NamedTuple):
    """An inequality on examples that satisfy its assumptions, whatever their entries are."""

    slug: str
    entries: int
    sides: Callable[[np.ndarray], tuple[float, float]]
    """From the entries to the smaller and the larger side, computed apart from each other."""
    side: str = ""

    @property
    def name(self) -> str:
        """Return the statement and which part of it."""
        return f"{self.slug} ({self.side})" if self.side else self.slug


class Reached(NamedTuple):
    """The largest share, and what it took."""

    reached: float
    starts: int
    evaluations: int


class _Enough(Exception):  # noqa: N818  # it is no error
    """Enough of the bound is reached."""


def climb(bound: Bound, enough: float, starts: int) -> Reached:
    """Search from normal entries until enough is reached; the same on every run."""
    best, count, started, rng = 0.0, 0, 0, np.random.default_rng(0)

    def missing(entries: np.ndarray) -> float:
        nonlocal best, count
        smaller, larger = bound.sides(entries)
        count += 1
        share = smaller / larger if larger > 1e-9 else 0.0
        best = max(best, share)
        if best >= enough:
            raise _Enough
        return -share

    while started < starts and best < enough:
        started += 1
        try:
            options = {"maxfev": EVALUATIONS, "xtol": 1e-4, "ftol": 1e-7}
            minimize(missing, rng.standard_normal(bound.entries), method="Powell", options=options)
        except _Enough:
            pass
    return Reached(best, started, count)
