"""Names of primitives that several readers need."""


def names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


ELEMENTWISE = names(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz
    complex conj convert_element_type copy cos cosh device_put digamma div eq eq_to erf erf_inv
    erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le le_to
    lgamma log log1p logistic lt lt_to max min mul name ne neg nextafter not optimization_barrier or
    polygamma population_count pow pvary random_fold_in real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sharding_constraint sign sin sinh sqrt square stop_gradient sub tan tanh
    threefry2x32 xor zeta
    """
)
"""Every entry of the output is made of the same entry of each input."""

CALLS = names("jit closed_call")
"""Calls of a function, which are read in place."""

RECOMPUTED = names("remat2")
"""Calls of a function that run again in the backward pass."""

CUSTOM_RULES = names("custom_jvp_call custom_vjp_call")
"""Calls of a function with a derivative rule of its own."""
