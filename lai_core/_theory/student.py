r"""Student's t distribution in array operations: its tail, and the quantile of one tail.

The tail is an incomplete beta integral. With v degrees of freedom, a = v / 2 and w = exp(-r^2 / a),

    int_0^x w^(a - 1) (1 - w)^(-1/2) dw  =  (2 / a) int_tau^inf exp(-r^2) r / sqrt(1 - exp(-r^2 / a)) dr,

where x = v / (v + t^2) and so tau^2 = a log(1 + t^2 / v). The integrand on the right is smooth and falls like
that of a normal tail whatever v is. The tail at t = 0 is 1/2, which gives the constant in front.
"""

from math import exp, log

from lai_core._engine.namespace import Array, Namespace, device_of

STEP = 0.1
EXPONENTS = [STEP * index for index in range(-34, 23)]
NODES = [exp(x - exp(-x)) for x in EXPONENTS]
WEIGHTS = [STEP * (1.0 + exp(-x)) * node for x, node in zip(EXPONENTS, NODES, strict=True)]
"""The double exponential rule for integrals from 0 to infinity: 57 nodes are exact to 1e-13."""
ITERATIONS = 12
"""Of Newton's method: these give 1e-9 for 1 to a million degrees of freedom, tails from 1e-17 to .499999."""


def upper_tail(xp: Namespace, t: Array, freedom: Array) -> Array:
    """Return the probability that a t variable exceeds `t`, of any sign; freedom is at least 1."""
    size = xp.abs(t)
    # Beyond, t^2 overflows in float32, and the tail of even one degree of freedom is below 1e-15.
    far = size > 1e15
    lower, a = _lower_limit(xp, xp.where(far, xp.zeros_like(size), size), freedom)
    tail = 0.5 * _integral(xp, lower, a) / _integral(xp, 0.0 * a, a)
    tail = xp.where(far, xp.zeros_like(tail), tail)
    return xp.where(t < 0, 1.0 - tail, tail)


def upper_quantile(xp: Namespace, tail: float, freedom: Array) -> Array:
    """Return what a t variable exceeds with probability `tail`, in (0, 1/2); freedom is at least 1."""
    # Newton's method for the logarithm of the tail as a function of log t, of which it is concave: straight
    # for heavy tails, and close to its solution for light ones: the normal tail is below exp(-t^2 / 2) / 2.
    t = xp.zeros_like(freedom) + (-2.0 * log(2.0 * tail)) ** 0.5
    wanted = 2.0 * tail * _integral(xp, 0.0 * freedom, freedom / 2.0)
    for _ in range(ITERATIONS):
        lower, a = _lower_limit(xp, t, freedom)
        above = _integral(xp, lower, a)
        # d tau / d log t = t^2 v / (2 tau (v + t^2)), and the integral falls by the integrand
        falls = _integrand(xp, lower, a) * t * t * freedom / (2.0 * lower * (freedom + t * t))
        t = t * xp.exp(xp.log(above / wanted) * above / falls)
    return t


def _lower_limit(xp: Namespace, t: Array, freedom: Array) -> tuple[Array, Array]:
    """Return tau and a."""
    a = freedom / 2.0
    return xp.sqrt(a * xp.log1p(t * t / freedom)), a


def _integral(xp: Namespace, lower: Array, a: Array) -> Array:
    nodes, weights = (xp.asarray(x, dtype=lower.dtype, device=device_of(lower)) for x in (NODES, WEIGHTS))
    points = xp.expand_dims(lower, axis=-1) + nodes
    return xp.sum(_integrand(xp, points, xp.expand_dims(a, axis=-1)) * weights, axis=-1)


def _integrand(xp: Namespace, r: Array, a: Array) -> Array:
    return xp.exp(-r * r) * r / xp.sqrt(-xp.expm1(-r * r / a))
