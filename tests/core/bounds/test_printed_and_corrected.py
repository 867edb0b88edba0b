"""The approximation appendix on random networks: what is printed, what holds, and where they part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import bounds
from lai_core.assumptions import decay_rate
from tests.support.draws import GENERATORS, SHAPES
from tests.support.inequalities import at_most, hunt
from tests.support.networks import ALIGNED, ASSUMING, FAMILIES


class Facts:
    """One network's scores, and the arguments of its bounds."""

    def __init__(self, case):
        self.case, self.alpha, self.beta = case, case.alpha[0], case.beta[0]
        self.ghost, self.lai, self.lli = case.ghost[0], case.lai[0], case.lli[0]
        self.norms = (case.validation_norms[0, -1], case.training_norms[0, -1])
        both = np.concatenate([case.validation_norms[0], case.training_norms[0]], axis=1)
        self.rho = float(decay_rate(both).max()) if case.rho is None else float(case.rho[0])
        self.C_a, self.depth = float(case.activation_bound[0]), case.depth
        self.alpha_bar = float(self.alpha[-1].min())
        self.size = np.abs(self.alpha * self.beta).sum() + np.abs(self.alpha * self.beta[-1]).sum()

    def constants(self, *names):
        return {name: getattr(self, name) for name in names}


def draw(family, seed, shape):
    return Facts(FAMILIES[family](np.random.default_rng(seed), shape))


@pytest.mark.equation("app-lai-defs", "app-epsilon-pair", "zeta-bound", "norm-product-bound")
@pytest.mark.parametrize("family", FAMILIES)
@given(GENERATORS, SHAPES)
def test_influences_gaps_and_bounds_of_pairs(family, seed, shape):
    """Printed influences are minus the scores; a pair's gap is Ghost's kernel minus LAI's."""
    facts = draw(family, seed, shape)
    close = {"rtol": 1e-9, "atol": 1e-12 * (1 + facts.size)}
    alpha, beta = facts.alpha, facts.beta
    np.testing.assert_allclose(bounds.printed_ghost_influence(alpha, beta), -facts.ghost, **close)
    np.testing.assert_allclose(bounds.printed_lai_influence(alpha, beta), -facts.lai, **close)
    zeta, traces = bounds.gap(alpha, beta), (facts.case.validation.trace(), facts.case.training.trace())
    np.testing.assert_allclose(zeta.sum(0), facts.ghost - facts.lai, **close)
    np.testing.assert_allclose(zeta, lai.ghost_kernel(*traces) - lai.lai_kernel(*traces), **close)
    bound = bounds.pair_gap_bound(beta, C_a=facts.C_a)
    hunt(np.abs(zeta), bound, "gap")
    assert at_most(np.abs(zeta), bound, facts.size)
    bound = bounds.norm_product_bound(*facts.norms, **facts.constants("rho", "depth"))
    hunt(np.abs(beta), bound, "similarity")
    assert at_most(np.abs(beta), bound)
    if family == "extremal":
        np.testing.assert_allclose(beta, bound, rtol=1e-9)


def similarities_under_a1_to_a3(seed):
    """Draw bare similarities: all that A1, A2 and A3 leave open."""
    rng = np.random.default_rng(seed)
    depth, n_val, n_train = rng.integers(1, 5), 2, 3
    rho, C_a = rng.uniform(0, 1.2), rng.uniform(0.1, 2)
    norms = rng.uniform(0, 2, n_val), rng.uniform(0, 2, n_train)
    ceiling = np.array([rho ** (2 * (depth - 1 - k)) for k in range(depth)])[:, None, None]
    ceiling = ceiling * norms[0][:, None] * norms[1]
    share, sign = rng.uniform(0, 1, ceiling.shape), rng.uniform(-1, 1, ceiling.shape)
    return C_a**2 * sign, share * ceiling, norms, {"rho": rho, "C_a": C_a, "depth": int(depth)}


@pytest.mark.equation("app-conservative", "conservative-sharp")
@pytest.mark.parametrize("family", [None, *ASSUMING])
@given(GENERATORS, SHAPES)
def test_conservative_bounds_hold_under_the_assumptions(family, seed, shape):
    if family:
        facts = draw(family, seed, shape)
        beta, norms, constants = facts.beta, facts.norms, facts.constants("rho", "C_a", "depth")
        difference, size = np.abs(facts.ghost - facts.lai), facts.size
    else:
        alpha, beta, norms, constants = similarities_under_a1_to_a3(seed)
        difference, size = np.abs(bounds.gap(alpha, beta).sum(0)), 1.0
    sharp = bounds.sharp_conservative_bound(beta[-1], *norms, **constants)
    hunt(difference, sharp)
    assert at_most(difference, sharp, size)
    assert at_most(sharp, bounds.conservative_bound(beta[-1], *norms, **constants), size)


@pytest.mark.equation("app-relative-conservative", "lai-lower-bound")
@pytest.mark.parametrize("family", ALIGNED)
@given(GENERATORS, SHAPES)
def test_relative_bounds_hold_for_agreeing_embeddings(family, seed, shape):
    facts = draw(family, seed, shape)
    lower = bounds.lai_lower_bound(facts.beta[-1], alpha_bar=max(facts.alpha_bar, 0.0))
    assert at_most(lower, np.abs(facts.lai), facts.size)
    if facts.alpha_bar > 1e-6 and (facts.beta[-1].sum(0) > 1e-6).all():
        constants = facts.constants("rho", "C_a", "alpha_bar", "depth")
        bound = bounds.relative_conservative_bound(facts.beta[-1], *facts.norms, **constants)
        error = np.abs(facts.ghost - facts.lai) / np.abs(facts.lai)
        hunt(error, bound)
        assert at_most(error, bound)
        assert at_most(facts.depth - 1, bound)


@pytest.mark.equation("app-relative-conservative")
def test_the_relative_bound_multiplies_norms():
    """C_a^2 / alpha = 8; the norms' products are 6 and 12 over a beta of 9; rho^2 + rho^4 = 5/16."""
    norms = np.array([2.0, 4.0]), np.array([3.0])
    bound = bounds.relative_conservative_bound(
        np.array([[4.0], [5.0]]), *norms, rho=0.5, C_a=2.0, alpha_bar=0.5, depth=3
    )
    assert bound[0] == 8 * (2 + 18 / 9 * 5 / 16)


@pytest.mark.equation("lli-gap", "alignment-decay", "alignment-implies-decay", "lli-relative-gap")
@pytest.mark.parametrize("family", ASSUMING)
@given(GENERATORS, SHAPES)
def test_printed_geometric_bounds_hold_for_lli(family, seed, shape):
    facts = draw(family, seed, shape)
    constants, last = facts.constants("rho", "C_a", "depth"), facts.beta[-1]
    bound = bounds.lli_gap_bound(last, **constants)
    difference = np.abs(facts.ghost - facts.lli)
    hunt(difference, bound)
    assert at_most(difference, bound, facts.size)
    printed = bounds.geometric_bound_as_printed(last, **constants)
    np.testing.assert_allclose(bound, printed, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(bounds.lli_gap_bound(-last, **constants), bound)
    each = bounds.aligned_similarity_bound(last, **facts.constants("rho", "depth"))
    np.testing.assert_array_equal(
        bounds.aligned_similarity_bound(-last, **facts.constants("rho", "depth")), each
    )
    assert at_most(np.abs(facts.beta), each)
    decay = np.array([facts.rho ** (2 * (facts.depth - 1 - k)) for k in range(facts.depth)])
    assert at_most(facts.beta, decay[:, None, None] * last)
    if facts.alpha_bar > 1e-6 and (last.sum(0) > 1e-6).all():
        bound = bounds.lli_relative_bound(**constants, alpha_bar=facts.alpha_bar)
        error = difference / np.abs(facts.lli)
        hunt(error, np.full_like(error, bound), "relative")
        assert at_most(error, bound)


@pytest.mark.equation("gap-without-alignment")
@pytest.mark.parametrize("family", FAMILIES)
@given(GENERATORS, SHAPES)
def test_decay_and_bounded_activations_limit_gaps(family, seed, shape):
    facts = draw(family, seed, shape)
    constants = facts.constants("rho", "C_a", "depth")
    lli, both = (
        bounds.lai_gap_bound_without_alignment(last, *facts.norms, **constants)
        for last in (np.zeros_like(facts.beta[-1]), facts.beta[-1])
    )
    for name, score, bound in (("lli", facts.lli, lli), ("lai", facts.lai, both)):
        difference = np.abs(facts.ghost - score)
        hunt(difference, bound, name)
        assert at_most(difference, bound, facts.size)


@pytest.mark.equation("decay-bounds-gain", "app-abs-gap")
@given(st.integers(1, 40), st.sampled_from((0.5, 0.9, 1.0)))
def test_gain_ceilings_are_attained_without_noise(depth, rho):
    """A contraction rho I repeated has these gains; the sum is one also where the closed form is not."""
    powers = [rho ** (2 * (depth - 1 - k)) for k in range(depth)]
    np.testing.assert_allclose(bounds.decay_powers(rho=rho, depth=depth), powers, rtol=1e-12)
    found = bounds.geometric_sum(rho=rho, depth=depth)
    np.testing.assert_allclose(found, sum(powers) - 1, rtol=1e-12, atol=1e-15)
