"""The gradient noise scale: estimates over all outcomes, and Fieller's interval against its definition."""

import itertools
import math
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given

from lai_core.diagnosis import estimate_noise_scale, fieller_interval, gradient_noise
from proofs import prove_noise_scale
from tests.support.refusals import Table, refusals

ENTRY = st.integers(-6, 6).map(float)
RATIOS = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 400)])


@pytest.mark.equation("gradient-noise")
@given(st.lists(st.tuples(ENTRY, ENTRY), min_size=1, max_size=4), st.integers(2, 3))
def test_estimates_are_unbiased_over_all_batches(population, n):
    rows = np.array(population)
    found = []
    for batch in itertools.product(rows, repeat=n):
        gradients = np.stack(batch)
        norms = np.linalg.norm(gradients, axis=1)
        found.append(gradient_noise(norms, float(np.linalg.norm(gradients.mean(0)))))
    noise, signal = np.mean(found, axis=0)
    np.testing.assert_allclose(noise, rows.var(0).sum(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(signal, (rows.mean(0) ** 2).sum(), rtol=1e-9, atol=1e-9)


@pytest.mark.equation("gradient-noise")
def test_a_squared_mean_gradient_counterexample():
    """It is no estimate of the signal: two rows that cancel on average leave half their noise in it."""
    batches = [np.array(batch) for batch in itertools.product((1.0, -1.0), repeat=2)]
    assert np.mean([batch.mean() ** 2 for batch in batches]) == 0.5
    assert np.mean([gradient_noise(np.abs(one), abs(one.mean())) for one in batches], axis=0)[1] == 0.0


@pytest.mark.equation("fieller-interval")
@given(st.lists(st.tuples(ENTRY, ENTRY), min_size=2, max_size=8), st.sampled_from([0.5, 0.9, 0.95]))
@example([(0.0, -2.0), (1.0, 1.0)], 0.5)  # c is a rounding of 0, and b is below it
def test_fieller_interval_inverts_the_t_test(drawn, confidence):
    x, y = np.array(drawn).T
    t = scipy.stats.t.ppf((1 + confidence) / 2, len(x) - 1)
    low, high = map(float, fieller_interval(x, y, confidence=confidence))

    def distance(ratio):
        left = x - ratio * y
        return abs(left.mean()) - t * left.std(ddof=1) / math.sqrt(len(x))

    size = np.abs(x).max() + 1
    for ratio in RATIOS:
        if distance(ratio) < -1e-9 * (size + ratio):
            assert low * (1 - 1e-6) - 1e-9 <= ratio <= high * (1 + 1e-6) + 1e-9
    for end in (low, high):
        if 1e-6 < end < 1e6:
            assert abs(distance(end)) <= 1e-6 * (size + end)


@pytest.mark.equation("fieller-interval")
@pytest.mark.parametrize("count", [2, 4])
def test_interval_ends_solve_the_proved_quadratic(count):
    x, y = np.random.default_rng(count).normal(size=(2, count)) + np.array([[3.0], [40.0]])
    t = scipy.stats.t.ppf(0.75, count - 1)
    quadratic = prove_noise_scale.distance(count)
    values = {f"x{i}": one for i, one in enumerate(x)} | {f"y{i}": one for i, one in enumerate(y)}
    for end in map(float, fieller_interval(x, y, confidence=0.5)):
        at = values | {"k": t * t, "rho": end}
        found = quadratic.subs({symbol: at[symbol.name] for symbol in quadratic.free_symbols})
        assert abs(float(found)) < 1e-9
        assert 0.0 < end < 1.0


@pytest.mark.equation("fieller-interval")
@pytest.mark.parametrize(("scale", "bounded", "jackknife"), [(20.0, 1.0, 0.94), (1000.0, 0.08, 0.58)])
def test_interval_covers_noise_scales(scale, bounded, jackknife):
    """The figures of docs/theory/uncertainty.md: where the signal is weak a jackknife's 95% is 58%."""
    rng, width, n, steps = np.random.default_rng(0), 50, 16, 50
    mean = np.full(width, scale**-0.5)
    found = []
    for _ in range(1000):
        gradients = mean + rng.normal(size=(steps, n, width))
        square, length = (gradients**2).sum((1, 2)) / n, (gradients.mean(1) ** 2).sum(1)
        noise = (square - length) * n / (n - 1)
        signal = square - noise
        one = estimate_noise_scale(noise, signal)
        without = (noise.sum() - noise) / (signal.sum() - signal)
        middle = steps * one.noise / one.signal - (steps - 1) * without.mean()
        spread = math.sqrt((steps - 1) * without.var())
        within = abs(middle - scale) < 1.96 * spread
        found.append((one.low <= scale <= one.high, one.high < math.inf, within))
    np.testing.assert_allclose(np.mean(found, axis=0), [0.946, bounded, jackknife], atol=0.02)


def test_nonfinite_steps_are_left_out():
    noise, signal = np.array([[4.0, 5.0, math.nan, 6.0], [1.0, 1.2, 1.0, 0.9]])
    assert estimate_noise_scale(noise, signal).steps == 3
    signal[0] = math.inf
    assert estimate_noise_scale(noise, signal).steps == 2


def test_signals_indistinguishable_from_zero_are_reported():
    noise, signal = np.array([9.0, 10.0, 11.0]), np.array([-0.5, 0.1, 0.9])
    said = "gradient noise scale: more than 6.53 rows (95% of 3 steps), the signal is not told from 0"
    assert str(estimate_noise_scale(noise, signal)) == said
    found = estimate_noise_scale(noise, -np.abs(noise), confidence=0.995)
    assert found.low == math.inf
    assert str(found) == "gradient noise scale: not told (99.5% of 3 steps), the signal's estimate is below 0"


X, Y = np.array([9.0, 10.0, 11.0]), np.array([1.9, 2.0, 2.1])


@pytest.mark.parametrize(
    ("x", "y", "ends"),
    [
        (np.zeros(3), np.ones(3), (0.0, 0.0)),
        (np.ones(3), np.zeros(3), (math.inf, math.inf)),
        (-X, Y, (math.inf, math.inf)),
        (X, -Y, (math.inf, math.inf)),
        (np.array([1.0, math.nan]), np.ones(2), (math.nan, math.nan)),
    ],
)
def test_ratios_at_their_ends(x, y, ends):
    """Of constants; of opposite signs, where no ratio is positive; of what is no number."""
    np.testing.assert_array_equal(fieller_interval(x, y), ends)


@pytest.mark.parametrize(
    ("noise", "signal", "scale"),
    [(-0.1, 1.0, -0.1), (-0.15, 2.0, -0.075), (-0.05, -1.0, math.inf), (1.0, 0.0, math.inf), (1.0, 0.5, 2.0)],
)
def test_small_negative_noise_is_rounding(noise, signal, scale):
    """As far as a tenth of the signal."""
    assert estimate_noise_scale(np.full(2, noise), np.full(2, signal)).scale == scale


ONES = np.ones(3)
REFUSED: Table = {
    "ValueError: noise: expected a mean that is not negative, got -0.15: the mean gradient was longer than "
    "the rows'; pass as mean_norm that of their mean, not of their sum": [
        partial(estimate_noise_scale, np.full(2, -0.15), np.full(2, signal)) for signal in (1.0, 0.5, -1.0)
    ],
    "ValueError: signal: expected shape (3,), got (4,)": partial(estimate_noise_scale, ONES, np.ones(4)),
    "ValueError: noise: expected 2 steps or more that are finite, got 1": (
        partial(estimate_noise_scale, ONES[:1], ONES[:1])
    ),
    "ValueError: norms: expected those of 2 rows or more, got 1": partial(gradient_noise, ONES[:1], 1.0),
    "ValueError: numerators: expected those of 2 pairs or more, got 1": (
        partial(fieller_interval, ONES[:1], ONES[:1])
    ),
    "ValueError: confidence: expected a number in (0, 1), got": [
        partial(fieller_interval, ONES, ONES, confidence=given) for given in (0.0, 1.0, math.nan, -1.0)
    ],
}


test_what_tells_no_scale_is_refused = refusals(REFUSED)
