"""Ghost against LAI: when each varies less, relative to the mean too, and about the conditional mean."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lai_core import variance
from tests.support.draws import GENERATORS
from tests.support.inequalities import hunt
from tests.support.outcomes import moments

LAYERS, OUTCOMES = 3, 5


def any_law(seed):
    """Draw similarities with any dependence: `(L, m)`, probabilities, alphas of any sign."""
    rng = np.random.default_rng(seed)
    similarities = rng.standard_normal((LAYERS, OUTCOMES)) + rng.standard_normal((LAYERS, 1))
    weights = rng.dirichlet(np.ones(OUTCOMES)) * 0.9 + 0.1 / OUTCOMES
    return similarities, weights, rng.standard_normal(LAYERS)


def conditional_law(seed):
    """Draw similarities with E[beta_l | beta*] = c_l beta*: noise that is centred given the signal."""
    rng = np.random.default_rng(seed)
    shared, chances = rng.standard_normal(3) + rng.choice([-2.0, 0.0, 2.0]), rng.dirichlet(np.ones(3))
    gains = np.append(rng.standard_normal(LAYERS - 1), 1.0)
    columns, weights = [], []
    for value, chance in zip(shared, chances, strict=True):
        rest = np.append(rng.standard_normal(LAYERS - 1), 0.0)
        for sign in (1, -1):
            columns.append(gains * value + sign * rest)
            weights.append(chance / 2)
    return np.array(columns).T, np.array(weights), rng.standard_normal(LAYERS), gains


def spreads_of(similarities, weights):
    return np.sqrt([moments(row, weights)[1] for row in similarities])


@pytest.mark.equation("variance-criterion")
@given(seed=GENERATORS, conditional=st.booleans())
def test_regression_slopes_decide_the_variance_order(seed, conditional):
    """Slopes on beta* leave signal and noise uncorrelated; conditional gains where there are any."""
    similarities, weights, alpha, *known = (conditional_law if conditional else any_law)(seed)
    shared = similarities[-1]
    assume(np.ptp(shared) > 0)
    design = np.sqrt(weights)[:, None] * np.stack([shared, np.ones_like(shared)], axis=1)
    gains = np.linalg.lstsq(design, (np.sqrt(weights) * similarities).T, rcond=None)[0][0]
    if known:
        np.testing.assert_allclose(gains, known[0], rtol=1e-6, atol=1e-6)
    rests = similarities - gains[:, None] * shared
    np.testing.assert_allclose(rests * weights @ (shared - shared @ weights), 0.0, atol=1e-9)
    numbers = moments(shared, weights)[1], moments(alpha @ rests, weights)[1]
    found = variance.variance_criterion(alpha, gains, *map(np.asarray, numbers))
    lai = moments(alpha.sum() * shared, weights)[1]
    assert found == pytest.approx(moments(alpha @ similarities, weights)[1] - lai, rel=1e-7, abs=1e-7)


@pytest.mark.equation("variance-order", "lai-lower-variance")
@given(seed=GENERATORS)
def test_spreads_bound_ghost_variance(seed):
    """LAI at least as much as that, where alphas have one sign and no layer spreads more than the last."""
    similarities, weights, alpha = any_law(seed)
    spreads = spreads_of(similarities, weights)
    bound, lai = variance.variance_order(alpha, spreads)
    exact = moments(alpha @ similarities, weights)[1]
    hunt(exact, bound)
    assert exact <= bound * (1 + 1e-9) + 1e-12
    assert lai == pytest.approx(moments(alpha.sum() * similarities[-1], weights)[1], rel=1e-9)
    assert bound == pytest.approx(np.sum(np.abs(alpha) * spreads) ** 2, rel=1e-9)
    assume((spreads > 0).all())
    less, alpha = np.minimum(spreads, spreads[-1]), np.abs(alpha)
    bound, lai = variance.variance_order(alpha, less)
    ghost = moments(alpha @ (similarities * (less / spreads)[:, None]), weights)[1]
    assert ghost <= bound * (1 + 1e-9) <= lai * (1 + 2e-9)


@pytest.mark.equation("scale-free-variance")
@given(seed=GENERATORS)
def test_relative_ghost_variance_is_never_smaller(seed):
    similarities, weights, alpha, gains = conditional_law(seed)
    mean, signal = moments(similarities[-1], weights)
    assume(min(abs(mean), abs(alpha @ gains), abs(alpha.sum())) > 1e-3)
    noise = moments(alpha @ (similarities - gains[:, None] * similarities[-1]), weights)[1]
    ghost, lai = variance.scale_free_variance(alpha, gains, *map(np.asarray, (mean, signal, noise)))
    for found, outcomes in ((ghost, alpha @ similarities), (lai, alpha.sum() * similarities[-1])):
        centre, spread = moments(outcomes, weights)
        assert found == pytest.approx(spread / centre**2, rel=1e-6)
    assert ghost >= lai * (1 - 1e-12)


@pytest.mark.equation("unit-gain-variance", "lai-lower-variance")
@given(seed=GENERATORS, outcomes=st.integers(2, 5))
def test_unit_gains_make_ghost_noisy_lai(seed, outcomes):
    rng = np.random.default_rng(seed)
    alpha, shared = rng.integers(-2, 3, LAYERS) * 1.0, rng.integers(-2, 3, outcomes) * 1.0
    rests = rng.integers(-2, 3, (LAYERS, outcomes)) * 1.0
    noise = alpha @ rests
    covariance = np.mean(shared * noise) - np.mean(shared) * np.mean(noise)
    found = variance.unit_gain_difference(alpha, np.asarray(np.var(noise)), np.asarray(covariance))
    lai = np.var(alpha.sum() * shared)
    assert found == pytest.approx(np.var(alpha @ (shared + rests)) - lai, abs=1e-9)
    assert found >= 0 or alpha.sum() * covariance < 0
