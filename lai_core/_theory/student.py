"""Quantiles of Student's t distribution: Python numbers, known before an array is seen."""

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, pi
from statistics import NormalDist


@lru_cache(maxsize=2**16)
def upper_quantile(tail: float, freedom: int) -> float:
    """Return what a t variable of `freedom` degrees exceeds with probability `tail`."""
    if tail <= 0.0:
        return inf
    if tail >= 0.5:
        return 0.0 if tail == 0.5 else -upper_quantile(1.0 - tail, freedom)
    # Newton's method for the logarithm of the tail as a function of log x, of which it is concave: straight
    # for heavy tails, and close to its solution, the normal quantile, for light ones.
    x = max(NormalDist().inv_cdf(1.0 - tail), 1e-3)
    for _ in range(60):
        above = _upper_tail(x, freedom)
        step = log(above / tail) * above / (x * _density(x, freedom))
        x *= exp(step)
        if abs(step) < 1e-13:
            break
    return x


def _density(x: float, freedom: int) -> float:
    scale = lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - log(freedom * pi) / 2
    return exp(scale - (freedom + 1) / 2 * log1p(x * x / freedom))


def _upper_tail(x: float, freedom: int) -> float:
    """Return the probability above a positive x: half the incomplete beta function at v / (v + x^2)."""
    a, b, square = freedom / 2, 0.5, x * x
    inside, outside = freedom / (freedom + square), square / (freedom + square)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(inside) + b * log(outside))
    if inside < (a + 1) / (a + b + 2):
        return 0.5 * front * _continued_fraction(inside, a, b) / a
    return 0.5 - 0.5 * front * _continued_fraction(outside, b, a) / b


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Return that of the incomplete beta function, by Lentz's method; some 50 terms are the most it needs."""
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1.0 / (1.0 + term * d), 1.0 + term / c
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
