"""The formulas that the noise and variance proofs are about, in numbers, are what `lai_core` computes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lai_core as lai
from lai_core import propagation, variance
from lai_core.estimators import gates
from proofs import (
    prove_backward_operator,
    prove_centred_parts,
    prove_gain,
    prove_gates,
    prove_ghost_variance,
    prove_jacobian_noise,
    prove_perturbation_norm,
    prove_product_perturbation,
    prove_random_weights,
    prove_similarity_forms,
    prove_variance_bounds,
    prove_variance_comparison,
    prove_weight_sums,
)
from tests.support.statements import in_numbers

NUMBER = np.zeros(())


def array(values):
    return np.asarray(values, dtype=float)


def law_of(numbers):
    """Return alpha, gains and the moments that a law with these outcomes has."""
    alpha, gains, similarities, weights = (array(part) for part in numbers)
    weights = np.append(weights, 1 - weights.sum())
    rests = similarities - gains[:, None] * similarities[-1]
    both = np.concatenate([similarities[-1:], rests])
    both = both - (both @ weights)[:, None]
    covariances = both * weights @ both.T
    return alpha, gains, np.asarray(covariances[0, 0]), covariances[0, 1:], covariances[1:, 1:]


def sums_of(numbers):
    """Return the moments of random alphas and similarities with two outcomes each."""
    alphas, betas, p, q = numbers
    found = []
    for values, chance in ((array(alphas), p), (array(betas), q)):
        weights = np.array([chance, 1 - chance])
        found += [values @ weights, (values * weights) @ values.T]
    return found


def conditional_of(numbers):
    """Return alpha, gains, and the moments E b, Var b, Var Y of the laws with a conditional mean."""
    alpha, gains, noise, (b0, b1, p) = (array(part) for part in numbers)
    p = p / (1 + p)  # the symbol, of which the proofs take this chance
    mean = p * b0 + (1 - p) * b1
    spread = p * (1 - p) * (b0 - b1) ** 2
    return alpha, gains, np.asarray(mean), np.asarray(spread), np.asarray((alpha @ noise) ** 2)


def recursion(n):
    weight, s, g = n
    jacobian = propagation.layer_jacobian(weight, 3 * s**2 + 1)
    return propagation.vjp_recursion([jacobian], g)[0]


def paths(n):
    edges = {(0, 1): n[0][0], (0, 2): n[0][1], (1, 2): n[0][2]}
    return propagation.separating_operator({k: array([[v]]) for k, v in edges.items()}, layer=0, last=2)


def printed_remainder_excess(n):
    A, D, E, c, g, x, h, y = n
    printed = propagation.printed_remainder([A], [D], [E], array(c), (g, x), (h, y))
    return printed - propagation.remainder_terms([A], [D], [E], array(c), g + x, h + y).sum()


def noise_moments(n):
    u, w, X, Y = n
    covariances = [sum(np.outer(v, v) for v in side) for side in (X, Y)]
    return propagation.jacobian_noise_variance(u, covariances[0], w, covariances[1])


def printed_shape(n):
    rho, sigma = (array(side) for side in n)
    kappa, one = np.asarray(2 * np.prod(rho**2)), np.ones(())
    return propagation.similarity_variance_as_printed(NUMBER, NUMBER, kappa, rho, sigma**2, NUMBER, one, one)


def random_layer(which):
    def compute(n):
        g, h, v = n
        layer = propagation.RandomLayer.linear(width=2, variance=v)
        inputs = (np.asarray((g @ g) * (h @ h)), np.asarray((g @ h) ** 2))
        return propagation.random_weights_moments([layer], *inputs)[which]

    return compute


def mean_gates(n):
    r, s, t, g, h = n
    last = np.zeros((1, len(r)))  # of a last layer without input, the lower one's term is left
    lower = lai.LayerTrace(np.ones((1, 1)))
    sides = [
        gates.GateTrace(lai.Trace([lower, lai.LayerTrace(last, top[None])]), [gate[None]], [r**2])
        for gate, top in ((s, g), (t, h))
    ]
    return gates.gate_lai_scores(*sides)[0]


def scale_free(n):
    alpha, gains, mean, spread, noise = conditional_of(n)
    ghost, lai = variance.scale_free_variance(alpha, gains, mean, spread, noise)
    return (ghost - lai) * ((alpha @ gains) * mean * alpha.sum() * mean) ** 2


def unconditional(n):
    m, _, s, t = n
    one = np.ones(1)
    return variance.ghost_variance_lower_bound(np.array([m]), one, np.asarray(s**2), np.asarray(t**2))


def signed(n):
    m, q, V, rest = n
    one = np.ones(1)
    arguments = (np.array([m]), one, np.asarray(V), np.array([q / m]), np.array([[rest / m**2]]))
    return variance.signed_covariance_bound(*arguments)


def conditional_bound(n):
    m, _, V, rest = n
    return variance.printed_ghost_variance(
        np.array([m]), np.ones(1), np.asarray(V), np.array([[rest / m**2]])
    )


def signal_or_noise(which):
    """Compute one of the two parts of Ghost in one outcome; the signal is a last layer without weight."""

    def compute(n):
        similarities = array([*(array(n[1]) * n[3] + array(n[2])), n[3]])[:, None]
        return variance.signal_and_noise(array([*n[0], 0]), array([*n[1], 1]), similarities)[which]

    return compute


def mean_less_centre(split):
    """Subtract a centre from the mean that a function finds; the last weight is what is left of 1."""

    def compute(n):
        weights = array([*n[1], 1 - sum(n[1])])
        return split(array(n[0]), weights)[0] - array(n[2])

    return compute


def sizes(n):
    return [np.abs(array(side)) for side in n]


def ghost_less_printed(n):
    alpha, gains, signal, cross, rest = law_of(n)
    whole = variance.ghost_variance(alpha, gains, signal, cross, rest)
    return whole - variance.printed_ghost_variance(alpha, gains, signal, rest)


def remainder(n):
    return propagation.remainder_terms([n[0]], [n[1]], [n[2]], array(n[3]), n[4], n[5]).sum()


def decomposition(n):
    return sum(propagation.similarity_decomposition(n[0], array(n[1]), n[2], n[3]))


def both_signals(n):
    return variance.ghost_signal_noise(array(n[0]), array(n[1]), array([n[3]]), array(n[2])[:, None])


def minkowski(n):
    return variance.minkowski_lower_bound(array(n[0] ** 2), array(n[1] ** 2))


def order(n):
    return variance.variance_order(np.abs(n[0]), array(n[1]))


def criterion(n):
    alpha, gains, _, spread, noise = conditional_of(n)
    return variance.variance_criterion(alpha, gains, spread, noise)


def first_similarity(n):
    return propagation.layer_similarities([n[0]], [n[1]])[0]


backward, centred, product = prove_backward_operator, prove_centred_parts, prove_product_perturbation
forms, ghost, comparison = prove_similarity_forms, prove_ghost_variance, prove_variance_comparison
norm, noise, least, weights = (
    prove_perturbation_norm,
    prove_jacobian_noise,
    prove_variance_bounds,
    prove_random_weights,
)

CASES = [
    # statement, depth, what lai_core computes from the same numbers; the side, which of several relations
    (backward.RECURSION, 1, recursion),
    (backward.CHAIN, 3, lambda n: propagation.backward_operator(n[0]) @ n[1]),
    (backward.PATHS, 2, paths),
    (centred.JACOBIANS, 3, mean_less_centre(propagation.jacobian_split)),
    (centred.FLUCTUATIONS, 3, mean_less_centre(propagation.output_fluctuation)),
    (centred.PARTS, 2, lambda n: sum(propagation.gradient_decomposition(*n))),
    (product.TELESCOPING, 3, lambda n: propagation.telescoping_perturbation(n[0], n[1])),
    (product.FIRST_ORDER, 3, lambda n: propagation.first_order_perturbation(n[0], n[1])),
    (norm.NORM, 3, lambda n: propagation.perturbation_norm_bound(*sizes(n[:2]))),
    (norm.PRINTED, 3, lambda n: propagation.first_order_norm_bound(*sizes(n[:2]))),
    (forms.BILINEAR, 1, lambda n: n[2] @ propagation.similarity_operator([n[0]], [n[1]]) @ n[3]),
    (forms.DECOMPOSITION, 1, decomposition),
    (forms.REMAINDER, 1, remainder),
    (forms.PRINTED, 1, printed_remainder_excess),
    (forms.LAST, 3, lambda n: propagation.shared_signal(n[0], n[1])),
    (forms.SIGNAL, 3, first_similarity, "lhs"),
    (forms.LENGTHS, 1, first_similarity, "lhs"),
    (prove_gain.NEAREST, 3, lambda n: propagation.trace_gain([n[0]]), "rhs", 1),
    (prove_gain.PRINTED, 3, lambda n: propagation.isotropic_gain([n[0]]), "lhs"),
    (noise.FORMULA, 2, noise_moments),
    (noise.BOUND, 2, lambda n: propagation.jacobian_noise_bound(*(array(x) for x in n))),
    (noise.SHAPE, 3, printed_shape, "lhs"),
    (weights.RECURSION, 2, random_layer(0)),
    (weights.RECURSION, 2, random_layer(1), "rhs", 1),
    (ghost.EXACT, 2, lambda n: variance.ghost_variance(*law_of(n))),
    (ghost.NOISE, 3, lambda n: variance.noise_variance(law_of(n)[0], law_of(n)[4])),
    (ghost.PRINTED, 2, ghost_less_printed),
    (ghost.LAI, 3, lambda n: variance.lai_variance(law_of(n)[0], law_of(n)[2])),
    (prove_weight_sums.SUMS, 2, lambda n: variance.random_weight_sum(*sums_of(n))),
    (ghost.GHOST, 3, both_signals),
    (ghost.PAIR, 3, signal_or_noise(0)),
    (ghost.PAIR, 3, signal_or_noise(1), "rhs", 1),
    (ghost.READ, 3, lambda n: variance.lai_signal(array(n[0]), array([n[3]]))),
    (least.OPPOSED, 1, minkowski, "lhs"),
    (least.UNCONDITIONAL, 1, unconditional, "lhs"),
    (least.CONDITIONAL, 1, conditional_bound, "lhs"),
    (least.SIGNED, 1, lambda n: signed(n)[0], "lhs"),
    (least.SIGNED, 1, lambda n: signed(n)[1], "lhs", 1),
    (comparison.ORDER, 3, lambda n: order(n)[0]),
    (comparison.ORDER, 3, lambda n: order(n)[1], "rhs", 1),
    (comparison.CRITERION, 2, criterion),
    (comparison.RELATIVE, 2, scale_free),
    (prove_gates.MEAN, 2, mean_gates),
]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.equation(case[0].slug), id=f"{case[0].slug}-{number}")
        for number, case in enumerate(CASES)
    ],
)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**20))
def test_proved_formulas_match_computed_numbers(case, seed):
    statement, depth, compute, *place = case
    numbers, expected = in_numbers(statement, depth, seed, *place)
    found = np.asarray(compute(numbers), dtype=float).squeeze()
    np.testing.assert_allclose(found, expected.squeeze(), rtol=1e-7, atol=1e-8)
