"""Quantiles of the chi-squared distribution with whole degrees of freedom: Python numbers."""

from functools import lru_cache
from math import erfc, exp, inf, lgamma, log, sqrt
from statistics import NormalDist


@lru_cache(maxsize=2**12)
def upper_quantile(tail: float, freedom: int) -> float:
    """Return the value that a chi-squared variable of `freedom` degrees exceeds with probability `tail`."""
    if tail <= 0.0:
        return inf
    if tail >= 1.0:
        return 0.0
    # Wilson and Hilferty: the cube root is nearly normal. From there Newton's method for the logarithm of
    # the tail as a function of log x.
    spread = 2.0 / (9.0 * freedom)
    root = 1.0 - spread + NormalDist().inv_cdf(1.0 - max(tail, 1e-16)) * sqrt(spread)
    x = freedom * max(root, 0.1) ** 3
    for _ in range(100):
        above = _upper_tail(x, freedom)
        step = log(above / tail) * above / (x * _density(x, freedom))
        x *= exp(max(-1.0, min(1.0, step)))
        if abs(step) < 1e-13:
            break
    return x


def _upper_tail(x: float, freedom: int) -> float:
    """Return the probability above x, a finite sum for whole degrees of freedom."""
    # Q(a, h) with h = x / 2 and a = freedom / 2 obeys Q(a + 1, h) = Q(a, h) + h^a e^-h / Gamma(a + 1),
    # from Q(1/2, h) = erfc(sqrt h) for odd and Q(0, h) = 0 for even degrees of freedom.
    half, odd = x / 2.0, freedom % 2
    orders = (k + odd / 2 for k in range(freedom // 2))
    terms = sum(exp(a * log(half) - half - lgamma(a + 1.0)) for a in orders)
    return terms + (erfc(sqrt(half)) if odd else 0.0)


def _density(x: float, freedom: int) -> float:
    a = freedom / 2
    return exp((a - 1.0) * log(x / 2.0) - x / 2.0 - lgamma(a)) / 2.0
