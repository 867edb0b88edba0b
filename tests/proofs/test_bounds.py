"""The proofs are about the formulas that the code computes: both at random points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import (
    assumptions,
    bounds,
    calibration,
)
from proofs import (
    prove_assumptions,
    prove_conservative,
    prove_decay_bounds_gain,
    prove_gap,
    prove_geometric,
    prove_layer_weights,
    prove_ratios,
    prove_selection,
    prove_similarities,
)
from tests.support.draws import GENERATORS
from tests.support.inequalities import SEEDS
from tests.support.statements import numbers

DEPTHS = st.integers(1, 3)
ZERO = {"desired": 0.0, "atol": 1e-12}


def close(found, proved):
    np.testing.assert_allclose(found, proved, rtol=1e-9, atol=1e-12)


class Point:
    """Random numbers for one depth, two validation samples and one training sample."""

    def __init__(self, seed, depth):
        rng = self.rng = np.random.default_rng(seed)
        self.depth = depth
        self.alpha, self.beta = rng.standard_normal((2, depth, 2, 1))
        self.n, self.m = rng.uniform(0.1, 2, 2), float(rng.uniform(0.1, 2))
        self.rho, self.C_a, self.alpha_bar = (float(x) for x in rng.uniform(0.1, 1.5, 3))
        self.norms = self.n, np.array([self.m])

    def constants(self, *names):
        return {name: getattr(self, name) for name in names}


def from_top(array):
    """Turn `(L, n_val, 1)`, bottom first, into a list per validation sample, top first."""
    return [list(array[::-1, z, 0]) for z in range(array.shape[1])]


@pytest.mark.equation("app-lai-defs", "similarities")
@given(GENERATORS, DEPTHS)
def test_definitions(seed, depth):
    vectors = np.random.default_rng(seed).standard_normal((4, depth, 2))
    a, b, g, h = vectors
    alpha, beta = ((x * y).sum(-1)[:, None, None] for x, y in ((a, b), (g, h)))
    arguments = [[list(v) for v in group] for group in vectors]
    for index, printed in enumerate((bounds.printed_ghost_influence, bounds.printed_lai_influence)):
        proved = numbers(prove_similarities.STATEMENT, "lhs", depth=depth, index=index)(*arguments)
        close(printed(alpha, beta), proved)
    trace = [lai.Trace([lai.LayerTrace(x[:1], y[:1])]) for x, y in ((a, g), (b, h))]
    proved = numbers(prove_similarities.PRODUCT, "rhs", depth=2)(list(g[0]), list(h[0])) / 4
    close(assumptions.similarities(*trace).beta[0, 0, 0], proved)


@pytest.mark.equation("app-epsilon-pair", "zeta-bound", "lai-nearer-than-lli")
@given(SEEDS, DEPTHS)
def test_gap(seed, depth):
    point = Point(seed, depth)
    alpha, beta = point.alpha[:, :1], point.beta[:, :1]
    lists = from_top(alpha)[0], from_top(beta)[0]
    for side in ("lhs", "rhs"):
        close(bounds.gap(alpha, beta), numbers(prove_gap.STATEMENT, side, depth=depth)(*lists))
    proved = numbers(prove_gap.BOUND, depth=depth)(lists[1], point.C_a)
    close(bounds.pair_gap_bound(beta, C_a=point.C_a), proved)
    if depth > 1:
        proved = numbers(prove_gap.NEARER, "rhs", depth=depth)(*lists)
        alike = (alpha[:-1] * beta[-1]).sum()
        found = alike**2 * (2 * bounds.mean_ratio(alpha, beta) - 1)
        np.testing.assert_allclose(found, proved, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("gradient-norm-decay", "bounded-activations", "non-negative-alignment")
@given(GENERATORS, DEPTHS)
def test_assumptions(seed, depth):
    point = Point(seed, depth)
    bottom = numbers(prove_assumptions.DECAY, "lhs", depth=depth)(point.rho, point.m, 1.0)
    norms = np.array([bottom] + [0.0] * (depth - 1) + [point.m])[:, None]
    np.testing.assert_allclose(assumptions.decay_rate(norms), point.rho)
    proved = numbers(prove_assumptions.STATEMENT, depth=1)([0.0], [0.0], point.C_a)
    np.testing.assert_allclose(assumptions.activation_bound(np.array([[point.C_a]])) ** 2, proved)
    cosines, lengths = point.rng.uniform(0, 1, (2, depth, 1, 1))
    proved = numbers(prove_assumptions.SIGN, depth=depth)(
        *(list(x[:, 0, 0]) for x in (np.abs(point.alpha[:, :1]), cosines, lengths))
    )
    printed = bounds.printed_ghost_influence(np.abs(point.alpha[:, :1]), cosines * lengths)
    close(-printed, proved)
    assert assumptions.smallest_cosine(cosines) == cosines.min()


@pytest.mark.equation("non-expansive", "alignment-decay", "norm-product-bound")
@given(GENERATORS, DEPTHS)
def test_decay_of_similarities(seed, k):
    point = Point(seed, k)
    cosine = float(point.rng.uniform(-1, 1))
    arguments = (point.rho, point.n[0], point.m, 0.0, 0.0, 0.0, cosine)
    last = np.array([[point.n[0] * point.m * cosine]])
    found = bounds.aligned_similarity_bound(last, rho=point.rho, depth=k + 1)[0, 0, 0]
    close(found, numbers(prove_assumptions.BARS, depth=k)(*arguments))
    close(found * np.sign(cosine), numbers(prove_assumptions.ALIGNED, depth=k)(*arguments))
    found = bounds.norm_product_bound(point.n[:1], np.array([point.m]), rho=point.rho, depth=k + 1)[0, 0, 0]
    close(found, numbers(prove_assumptions.NORMS, depth=k)(*arguments[:6]))


@pytest.mark.equation(
    "app-conservative",
    "conservative-sharp",
    "gap-without-alignment",
    "lai-lower-bound",
    "app-relative-conservative",
)
@given(SEEDS, DEPTHS)
def test_conservative_bounds(seed, depth):
    point = Point(seed, depth)
    last, constants = point.beta[-1], point.constants("rho", "C_a", "depth")
    lists = from_top(point.alpha), from_top(point.beta), list(point.n)
    arguments = (*lists, point.m, point.rho, point.C_a)
    sharp = bounds.sharp_conservative_bound(last, *point.norms, **constants)
    for statement, found in (
        (prove_conservative.STATEMENT, bounds.conservative_bound(last, *point.norms, **constants)),
        (prove_conservative.SHARP, sharp),
        (
            prove_conservative.ALONE,
            bounds.lai_gap_bound_without_alignment(last, *point.norms, **constants),
        ),
        (
            prove_conservative.ALONE_LLI,
            bounds.lli_gap_bound_without_alignment(*point.norms, **constants),
        ),
    ):
        close(found, numbers(statement, depth=depth)(*arguments))
    proved = numbers(prove_conservative.LOWER, "lhs", depth=depth)(*lists[:2], point.alpha_bar)
    close(bounds.lai_lower_bound(last, alpha_bar=point.alpha_bar), proved)
    proved = numbers(prove_conservative.RELATIVE, depth=depth)(*arguments, point.alpha_bar)
    found = bounds.relative_conservative_bound(last, *point.norms, **constants, alpha_bar=point.alpha_bar)
    np.testing.assert_allclose(found, proved, rtol=1e-7)


@pytest.mark.equation("app-abs-gap", "app-rel-gap", "lli-gap", "lli-relative-gap", "relative-limit")
@given(SEEDS, DEPTHS)
def test_geometric_bounds(seed, depth):
    point = Point(seed, depth)
    lists = from_top(point.alpha), from_top(point.beta)
    rho, rate = point.rho, point.rho / 2
    ones = np.ones((depth, 1, 1))
    decayed = rate ** (2.0 * np.arange(depth - 1, -1, -1))[:, None, None]
    printed = bounds.geometric_bound_as_printed(np.ones((1, 1)), rho=rho, C_a=1.0, depth=depth)
    statement = prove_geometric.STATEMENT
    close(printed, numbers(statement, "lhs", depth=depth)(rho, rate))
    gap = -bounds.gap(ones, decayed)[0, 0]
    close(gap, numbers(statement, depth=depth)(rho, rate))
    relative = bounds.lli_relative_bound(rho=rho, C_a=1.0, alpha_bar=1.0, depth=depth)
    statement = prove_geometric.RELATIVE
    close(relative, numbers(statement, "lhs", depth=depth)(rho, rate))
    close(gap / depth, numbers(statement, depth=depth)(rho, rate))
    found = bounds.lli_gap_bound(point.beta[-1], **point.constants("rho", "C_a", "depth"))
    close(found, numbers(prove_geometric.LLI, depth=depth)(*lists, point.rho, point.C_a))
    found = bounds.lli_relative_bound(**point.constants("rho", "C_a", "alpha_bar", "depth"))
    arguments = (*lists, point.rho, point.C_a, point.alpha_bar)
    close(found, numbers(prove_geometric.LLI_RELATIVE, depth=depth)(*arguments))
    no_error = from_top(point.alpha), list(point.beta[-1][:, 0]), [[1.0] * (depth - 1)] * len(point.beta[-1])
    limit = numbers(prove_geometric.LIMIT, "lhs", depth=depth, index=1)(*no_error)
    close(bounds.relative_limit(point.alpha, point.beta[-1]), limit)


@pytest.mark.equation("lai-two-sided", "ghost-lai-range", "relative-below-one")
@given(GENERATORS, DEPTHS)
def test_ratios(seed, depth):
    point = Point(seed, depth)
    alpha, last = np.abs(point.alpha), np.abs(point.beta[-1])
    low, high = np.sort(point.rng.uniform(0, 1, (2, depth)), axis=0)
    ends = list(low[::-1][1:]), list(high[::-1][1:])
    arguments = (from_top(alpha), list(last[:, 0]), *ends)
    for index, side in enumerate(("lhs", "rhs")):
        proved = numbers(prove_ratios.STATEMENT, side, depth=depth, index=index)(*arguments)
        close(bounds.lai_gap_range(alpha, last, low, high)[index], proved)
    found = [end[0] for end in bounds.ghost_over_lai_range(alpha, low, high)]
    scores = from_top(alpha), list(last[:, 0])
    layer_aware = float((alpha.sum(0) * last).sum())
    for index, side in enumerate(("lhs", "rhs")):
        proved = numbers(prove_ratios.QUOTIENT, side, depth=depth, index=index)(*scores, *found)
        close(found[index] * layer_aware, proved)
        np.testing.assert_allclose(min(share_slacks(depth, from_top(alpha), ends, found)[index::2]), **ZERO)
    error = bounds.relative_error_bound(alpha)[0]
    proved = numbers(prove_ratios.BELOW_ONE, "rhs", depth=depth, index=1)(*scores, 1 - error)
    close(error * layer_aware, proved)
    nothing = [[0.0] * (depth - 1)] * 2
    slacks = share_slacks(depth, from_top(alpha), nothing, (1 - error, 1.0))
    np.testing.assert_allclose(min(slacks[::2]), **ZERO)


def share_slacks(depth, alpha, ends, found):
    """Put numbers into what the proof assumes of s and t: the best ones leave no slack."""
    rows, _, _, *bounds_of = prove_ratios.names(depth)
    symbols = [*(a for row in rows for a in row), *(b for end in bounds_of for b in end[1:])]
    values = [*(a for row in alpha for a in row), *(b for end in ends for b in end)]
    point = dict(zip([*symbols, prove_ratios.s, prove_ratios.t], [*values, *found], strict=True))
    return [float((x.rhs - x.lhs).subs(point)) for x in prove_ratios.shares(depth)]


@pytest.mark.equation("selection-regret")
@given(GENERATORS, DEPTHS)
def test_selection(seed, n):
    rng = np.random.default_rng(seed)
    exact, approximate = rng.standard_normal((2, n))
    scale = float(rng.uniform(0, 2))
    lost, distance = (
        numbers(prove_selection.REGRET, side, depth=n)(list(exact), list(approximate), scale)
        for side in ("lhs", "rhs")
    )
    close(bounds.selection_regret(exact, approximate), lost)
    assert bounds.selection_regret_bound(exact, approximate) <= distance * (1 + 1e-9)


@pytest.mark.equation("decay-bounds-gain")
@given(GENERATORS, DEPTHS)
def test_gains(seed, depth):
    rho = float(np.random.default_rng(seed).uniform(0.1, 1.5))
    zeros = [[0.0, 0.0], [0.0, 0.0]]
    proved = numbers(prove_decay_bounds_gain.STATEMENT, depth=depth)(rho, zeros, zeros)
    np.testing.assert_allclose(bounds.decay_powers(rho=rho, depth=depth + 1)[0], proved)


@pytest.mark.equation("admissible-weights", "calibrated-decoupled")
@given(SEEDS)
def test_layer_weights(seed):
    """Three pairs, two layers: the printed bound's weight, and the slope that fits best."""
    point, rng = Point(seed, 2), np.random.default_rng(seed)
    top = bounds.decay_powers(rho=point.rho, depth=2)[0]
    proved = numbers(prove_layer_weights.STATEMENT, "rhs")(0.5, 0.5, point.rho**2, 1.0)
    np.testing.assert_allclose(top, proved)
    alpha, beta = rng.standard_normal((2, 2, 1, 3))
    weight = calibration.decoupled_weights(alpha, beta)[0]
    arguments = (list(alpha[0, 0]), list(beta[0, 0]), list(beta[1, 0]), weight)
    proved = numbers(prove_layer_weights.DECOUPLED, "lhs", depth=3)(*arguments)
    np.testing.assert_allclose(proved, 0.0, atol=1e-12 * (1 + weight**2))
