"""Quantiles of the chi-squared distribution with whole degrees of freedom: Python numbers."""

from functools import lru_cache
from math import erfc, exp, inf, lgamma, log, sqrt


@lru_cache(maxsize=2**12)
def upper_quantile(tail: float, freedom: int) -> float:
    """Return the value that a chi-squared variable of `freedom` degrees exceeds with probability `tail`."""
    if tail <= 0.0:
        return inf
    if tail >= 1.0:
        return 0.0
    low, high = 0.0, float(freedom)
    while _upper_tail(high, freedom) > tail:
        low, high = high, 2.0 * high
    while low < (middle := (low + high) / 2.0) < high:  # until they are neighbours
        low, high = (middle, high) if _upper_tail(middle, freedom) > tail else (low, middle)
    return low


def _upper_tail(x: float, freedom: int) -> float:
    """Return the probability above x, a finite sum for whole degrees of freedom."""
    # Q(a, h) with h = x / 2 and a = freedom / 2 obeys Q(a + 1, h) = Q(a, h) + h^a e^-h / Gamma(a + 1),
    # from Q(1/2, h) = erfc(sqrt h) for odd and Q(0, h) = 0 for even degrees of freedom.
    half, odd = x / 2.0, freedom % 2
    orders = (k + odd / 2 for k in range(freedom // 2))
    terms = sum(exp(a * log(half) - half - lgamma(a + 1.0)) for a in orders)
    return terms + (erfc(sqrt(half)) if odd else 0.0)
