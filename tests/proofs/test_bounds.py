"""The bounds that the proofs are about, in numbers, are what `lai_core` computes."""

import numpy as np
import pytest
from hypothesis import given, settings

import lai_core as lai
from lai_core import assumptions, bounds, calibration
from proofs import (
    prove_assumptions,
    prove_conservative,
    prove_decay_bounds_gain,
    prove_gap,
    prove_geometric,
    prove_layer_weights,
    prove_ratios,
    prove_similarities,
)
from tests.support.draws import GENERATORS
from tests.support.statements import in_numbers, numbers


def from_top(rows):
    """Turn numbers of each validation sample, top first, into `(L, n_val, 1)`, bottom first."""
    return np.array(rows)[:, ::-1].T[..., None]


def printed(influence):
    def compute(n):
        alpha, beta = (np.sum(np.multiply(*side), -1)[:, None, None] for side in (n[:2], n[2:]))
        return influence(alpha, beta)

    return compute


def similarity(n):
    sides = [lai.Trace([lai.LayerTrace(np.ones((1, 1)), gradient[None])]) for gradient in n]
    return 4 * assumptions.similarities(*sides).beta


def nearer(n):
    alpha, beta = from_top(n[:1]), from_top(n[1:])
    alike = (alpha[:-1] * beta[-1]).sum()
    return alike**2 * (2 * bounds.mean_ratio(alpha, beta) - 1)


def decayed(n):
    rate, size, _ = n
    return assumptions.decay_rate(np.array([[rate**3 * size], [0], [0], [size]])) ** 3 * size


def one_sign(n):
    alpha, cosine, length = (np.array(side)[:, None, None] for side in n)
    return -bounds.printed_ghost_influence(alpha, cosine * length)


def aligned(n):
    rho, norm, other, *_, cosine = n
    return bounds.aligned_similarity_bound(np.array([[norm * other * cosine]]), rho=rho, depth=3)[0]


def norm_product(n):
    return bounds.norm_product_bound(np.array(n[1:2]), np.array(n[2:3]), rho=n[0], depth=3)[0]


def conservative(bound, *, aligned=True):
    """Give a bound the last similarities, if it needs them, the norms and the constants."""

    def compute(n):
        alpha, beta, norms, norm, rho, C_a, *alpha_bar = n
        last = [from_top(beta)[-1]] if aligned else []
        more = {"alpha_bar": alpha_bar[0]} if alpha_bar else {}
        return bound(*last, np.array(norms), np.array([norm]), rho=rho, C_a=C_a, depth=len(alpha[0]), **more)

    return compute


def geometric_gap(n):
    decayed = n[1] ** np.array([4.0, 2.0, 0.0])
    return -bounds.gap(np.ones((3, 1, 1)), decayed[:, None, None])


def less_the_error(n):
    """Subtract the relative error that Ghost's terms below the last layer make from its limit."""
    alpha, last, ratios = (np.array(part) for part in n)
    exact, kept = (alpha.sum(1) * last).sum(), (alpha[:, 0] * last).sum()
    below = (alpha[:, 1:] * ratios * last[:, None]).sum()
    return bounds.relative_limit(from_top(alpha), last[:, None]) - abs(exact - kept - below) / abs(exact)


def gap_range(end):
    def compute(n):
        low, high = (np.array([*of[::-1], 1.0]) for of in n[2:])
        return bounds.lai_gap_range(from_top(n[0]), np.array(n[1])[:, None], low, high)[end]

    return compute


def worse_fit(n):
    a, beta, last, weight = (np.array(part) for part in n)
    best = calibration.block_weights(*(np.array([[a * side]]) for side in (last, beta)))[0]
    return (a**2 * last**2).sum() * (weight - best) ** 2


def without_last(*sides, **constants):
    nothing = np.zeros((len(sides[0]), len(sides[1])))
    return bounds.lai_gap_bound_without_alignment(nothing, *sides, **constants)


chain, gap, geometric, ratios = prove_conservative, prove_gap, prove_geometric, prove_ratios
CASES = [
    # statement, depth, what lai_core computes from the same numbers; the side, which of several relations
    (prove_similarities.STATEMENT, 3, printed(bounds.printed_ghost_influence), "lhs"),
    (prove_similarities.STATEMENT, 3, printed(bounds.printed_lai_influence), "lhs", 1),
    (prove_similarities.PRODUCT, 2, similarity),
    (gap.STATEMENT, 3, lambda n: bounds.gap(from_top(n[:1]), from_top(n[1:])), "lhs"),
    (gap.STATEMENT, 3, lambda n: bounds.gap(from_top(n[:1]), from_top(n[1:]))),
    (gap.BOUND, 3, lambda n: bounds.pair_gap_bound(from_top(n[:1]), C_a=n[1])),
    (gap.NEARER, 3, nearer),
    (prove_assumptions.DECAY, 3, decayed, "lhs"),
    (prove_assumptions.STATEMENT, 1, lambda n: assumptions.activation_bound(np.array([[n[2]]])) ** 2),
    (prove_assumptions.SIGN, 3, one_sign),
    (prove_assumptions.BARS, 2, aligned),
    (prove_assumptions.ALIGNED, 2, lambda n: aligned(n) * np.sign(n[-1])),
    (prove_assumptions.NORMS, 2, norm_product),
    (chain.STATEMENT, 3, conservative(bounds.conservative_bound)),
    (chain.SHARP, 3, conservative(bounds.sharp_conservative_bound)),
    (chain.ALONE, 3, conservative(bounds.lai_gap_bound_without_alignment)),
    (chain.ALONE_LLI, 3, conservative(without_last, aligned=False)),
    (chain.LOWER, 3, lambda n: bounds.lai_lower_bound(from_top(n[1])[-1], alpha_bar=n[2]), "lhs"),
    (chain.RELATIVE, 3, conservative(bounds.relative_conservative_bound)),
    (
        geometric.STATEMENT,
        3,
        lambda n: bounds.geometric_bound_as_printed(np.ones((1, 1)), rho=n[0], C_a=1.0, depth=3),
        "lhs",
    ),
    (geometric.STATEMENT, 3, geometric_gap),
    (
        geometric.RELATIVE,
        3,
        lambda n: bounds.lli_relative_bound(rho=n[0], C_a=1.0, alpha_bar=1.0, depth=3),
        "lhs",
    ),
    (geometric.RELATIVE, 3, lambda n: geometric_gap(n) / 3),
    (geometric.LLI, 3, lambda n: bounds.lli_gap_bound(from_top(n[1])[-1], rho=n[2], C_a=n[3], depth=3)),
    (
        geometric.LLI_RELATIVE,
        3,
        lambda n: bounds.lli_relative_bound(rho=n[2], C_a=n[3], alpha_bar=n[4], depth=3),
    ),
    (geometric.LIMIT, 3, less_the_error, "lhs", 1),
    (ratios.STATEMENT, 3, gap_range(0), "lhs"),
    (ratios.STATEMENT, 3, gap_range(1), "rhs", 1),
    (prove_decay_bounds_gain.STATEMENT, 3, lambda n: bounds.decay_powers(rho=n[0], depth=4)[0]),
    (prove_layer_weights.DECOUPLED, 3, worse_fit, "lhs"),
]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.equation(case[0].slug), id=f"{case[0].slug}-{number}")
        for number, case in enumerate(CASES)
    ],
)
@settings(max_examples=10)
@given(seed=GENERATORS)
def test_proved_bounds_match_computed_numbers(case, seed):
    statement, depth, compute, *place = case
    drawn, expected = in_numbers(statement, depth, seed, *place)
    np.testing.assert_allclose(np.squeeze(compute(drawn)), expected.squeeze(), rtol=1e-8, atol=1e-10)


@pytest.mark.equation("relative-below-one")
@given(GENERATORS)
def test_shares_are_the_best_admissible_ones(seed):
    """The best share leaves no slack in what the proof assumes of it."""
    (alpha, last, *_), _ = in_numbers(ratios.STATEMENT, 3, seed, "lhs")
    error = float(bounds.relative_error_bound(from_top(alpha))[0])
    proved = numbers(ratios.BELOW_ONE, "rhs", depth=3, index=1)(alpha, last, 1 - error)
    np.testing.assert_allclose(error * (np.sum(alpha, 1) @ last), proved, rtol=1e-9, atol=1e-12)
    point = dict(zip([*np.ravel(ratios.names(3)[0]), ratios.s], [*np.ravel(alpha), 1 - error], strict=True))
    slacks = [float((x.rhs - x.lhs).subs(point)) for x in ratios.unit_shares(3) if x.of == ratios.SHARE]
    np.testing.assert_allclose(min(slacks), 0.0, atol=1e-12)
