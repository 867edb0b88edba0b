"""Intervals over seeds, and what becomes of a claim: 95% intervals of Student's t, paired by seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.95
Methods = Mapping[str, Mapping[str, Mapping[str, Any]]]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean of one number a seed, its interval and the numbers; no interval of a single one."""
    low, high = interval(values)
    return {
        "mean": _digits(np.mean(values)),
        "low": low,
        "high": high,
        "values": [_digits(v) for v in values],
    }


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the t interval of the mean; the mean itself where all values are equal."""
    if len(values) < 2:
        return None, None
    values = [_digits(value) for value in values]
    if np.ptp(values) == 0.0:  # scipy's statistic divides by the spread
        return _digits(values[0]), _digits(values[0])
    found = stats.ttest_1samp(values, 0.0).confidence_interval(LEVEL)
    return _digits(found.low), _digits(found.high)


def compared(
    methods: Methods, one: str, other: str, metric: str, *, paper: str, at_least: float = 0.0, sign: int = 1
) -> dict[str, Any]:
    """Judge that one method is above another by `at_least`, seed by seed.

    Parameters
    ----------
    methods
        Those of a record.
    one, other, metric
        Whose difference in what.
    paper
        What the paper reports of it.
    at_least
        The bound: the claim holds where the whole interval lies above it, is refuted where all lies below.
    sign
        -1 where lower is better.
    """
    pair = (methods[name][metric]["values"] for name in (one, other))
    return judged([sign * (a - b) for a, b in zip(*pair, strict=True)], paper=paper, at_least=at_least)


def judged(
    values: Sequence[float], *, paper: str, at_least: float = 0.0, at_most: float | None = None
) -> dict[str, Any]:
    """Judge that the mean of one number a seed is above a bound; below one, where `at_most` is given."""
    low, high = interval(values)
    verdict = "undecided"
    if low is not None and high is not None:
        above, below = (
            (low > at_least, high < at_least) if at_most is None else (high < at_most, low > at_most)
        )
        verdict = "holds" if above else "refuted" if below else "undecided"
    return {"paper": paper, "found": _digits(np.mean(values)), "interval": [low, high], "verdict": verdict}


def _digits(value: Any) -> float:
    """Round to seven digits: more would differ from machine to machine."""
    return float(f"{float(value):.7g}") + 0.0  # no negative zero
