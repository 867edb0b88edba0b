"""Which rows of a batch make its gradient, and which gradient norms are unusual.

Everything here is arithmetic on a few Python floats.
"""

import math
import statistics
from collections.abc import Callable, Sequence

APART_DEVIATIONS = 3.0
APART_RATIO = 3.0
"""A row stands apart if the log of its norm is this many robust standard deviations above the median, and
the norm this many medians: the first alone names rows of batches with nearly equal norms, the second alone
rows of every fitted model, whose norms range over many powers of ten."""
REST = 0.5**0.5
"""Rows that stand apart make the gradient if without them it is at most this long: half of its square."""
ALONE = (10.0, 0.3), (1000.0, REST)
"""Rows make the gradient, whether they stand apart or not, if their norms are the first number of medians and
without them at most the second part of the gradient is left."""
USUAL = 1.5
"""What is left without the named rows is usual if it is at most this many times a usual gradient."""
MOST = 8
"""One row in this many is named at most, or two: more are no outliers."""
SPANS = 0.9, 0.5
"""Positions are named that have this part of a row's mass; the second, where the first takes half of them."""
CANCELLING = 2.0
"""Rows cancel if the longest gradient of those that stand apart is this many times the batch's."""


def find_apart(norms: Sequence[float]) -> list[int]:
    """Return the rows whose norms stand apart from the others', by descending norm."""
    logs = [math.log(max(norm, 1e-300)) for norm in norms]
    if len(logs) < 3:
        return []
    middle = statistics.median(logs)
    spread = 1.4826 * statistics.median(abs(one - middle) for one in logs)
    limit = middle + max(APART_DEVIATIONS * spread, math.log(APART_RATIO))
    return sorted((row for row, one in enumerate(logs) if one > limit), key=lambda row: -norms[row])


def find_makers(
    norms: Sequence[float],
    products: Sequence[float],
    length: float,
    length_without: Callable[[Sequence[int]], list[float]],
    excess: float | None = None,
) -> list[int]:
    """Return the fewest rows without which the gradient is no longer what it is; none if no few are.

    Parameters
    ----------
    norms, products
        Of each row, `|g_j|` and `<g_j, G>`.
    length
        `|G|`.
    length_without
        Of rows in order, `|G|` without the first, without the first two, and so on.
    excess
        How many times the usual gradient G is, where that is known: rows that are long, though no longer
        than some rows always are, are then named until what is left is usual; where no few rows leave that,
        it says nothing of a row.

    Returns
    -------
    list of int
        By descending `<g_j, G>`.
    """
    if not length > 0:
        return []
    if len(norms) == 1:
        return [0] if excess is not None and excess > USUAL else []
    most, median = max(2, len(norms) // MOST), statistics.median(norms)
    longest = max(range(len(norms)), key=lambda row: products[row])
    candidates = (
        find_apart(norms)
        if excess is None
        else [row for row, norm in enumerate(norms) if norm > APART_RATIO * median]
    )
    candidates = sorted((row for row in candidates if products[row] > 0), key=lambda row: -products[row])
    candidates = candidates[:most]
    goal = REST if excess is None else min(REST, USUAL / excess)
    named: list[int] = []
    for count, left in enumerate(length_without(candidates) if candidates else (), 1):
        if left <= REST * length:
            named = candidates[:count]
        if left <= goal * length:
            break
    else:
        # a run that explodes as a whole: its longest rows are named by what its batch alone says
        if named and excess is not None:
            return find_makers(norms, products, length, length_without)
    others = statistics.median(norm for row, norm in enumerate(norms) if row != longest)
    long = [row for row, norm in enumerate(norms) if norm > ALONE[0][0] * others and products[row] > 0]
    long = sorted(long, key=lambda row: -products[row])[:most]
    for count, left in enumerate(length_without(long) if long and not named else (), 1):
        least = min(norms[row] for row in long[:count])
        rules = ALONE if count == 1 else ALONE[1:]  # of several, some always are 10 medians long
        if any(least > ratio * others and left <= rest * length for ratio, rest in rules):
            named = long[:count]
            break
    # a row as long as one that is named is named beside it
    return named + [
        row for row in candidates if named and row not in named and norms[row] >= norms[named[-1]] / 2
    ]


def find_cancelling(norms: Sequence[float], apart: Sequence[int], length: float) -> list[int]:
    """Return the rows that stand apart if their gradients cancel in the batch's, else none."""
    return [row for row in apart if norms[row] > CANCELLING * length] if len(apart) > 1 else []


def find_hidden(layers: dict[str, list[float]]) -> tuple[int, str, float] | None:
    """Return the row that stands furthest apart in one layer: the row, the layer, the ratio to its median."""
    # Rows without a gradient in a layer, as most rows have none in an expert, are not of its median.
    best: tuple[int, str, float] | None = None
    for name, norms in layers.items():
        there = [row for row, norm in enumerate(norms) if norm > 0]
        own = [norms[row] for row in there]
        for place in find_apart(own)[:1]:
            ratio = own[place] / statistics.median(own)
            if best is None or ratio > best[2]:
                best = there[place], name, ratio
    return best


def find_span(mass: Sequence[float]) -> tuple[int, int] | None:
    """Return the shortest range of positions with most of the mass; None if it takes half of them or more."""
    if not 0 < sum(mass) < math.inf:
        return None
    for part in SPANS:
        first, last = _find_range(mass, part * sum(mass))
        if 2 * (last - first + 1) < len(mass):
            return first, last
    return None


def _find_range(mass: Sequence[float], least: float) -> tuple[int, int]:
    """Return the shortest range with at least this mass."""
    best, start, inside = (0, len(mass) - 1), 0, 0.0
    for stop, value in enumerate(mass):
        inside += value
        while start < stop and inside - mass[start] >= least:
            inside, start = inside - mass[start], start + 1
        if inside >= least and stop - start < best[1] - best[0]:
            best = (start, stop)
    return best
