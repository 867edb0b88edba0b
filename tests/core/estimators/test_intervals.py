"""Intervals of scores and the policy that tests them, against scipy, and what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import lai_core as lai
from lai_core.estimators.policies import standard_errors

# Zeros, ties and constant columns are common: whole numbers.
tables = st.tuples(st.sampled_from((2, 3, 5)), st.sampled_from((1, 4))).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(-3, 3), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)
sizes = st.lists(st.integers(1, 4), min_size=5, max_size=5)


def numbers(table):
    return np.array(table, float)


@pytest.mark.equation("part-variance")
@given(tables, sizes, st.sampled_from((0.5, 0.95)))
def test_the_normal_interval_is_that_of_a_weighted_regression(backend, table, sizes, level):
    """Of part scores over the root of their size on the root of their size, through the origin."""
    parts, weights = numbers(table), np.array(sizes[: len(table)], float)
    root = np.sqrt(weights)[:, None]
    slope, *_ = np.linalg.lstsq(root, parts / root, rcond=None)
    residuals = ((parts / root - root * slope) ** 2).sum(0)
    freedom = len(parts) - 1
    error = np.sqrt(residuals / freedom / weights.sum()) * stats.t.isf((1 - level) / 2, freedom)
    low, high = lai.score_intervals(backend.array(parts), level=level, sizes=list(weights))
    expected = weights.sum() * (slope - error)[0], weights.sum() * (slope + error)[0]
    np.testing.assert_allclose((backend.numpy(low), backend.numpy(high)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.equation("empirical-bernstein")
@given(tables, st.sampled_from((0.5, 0.95)))
def test_the_bernstein_interval_is_the_theorem_on_the_unit_interval(backend, table, level):
    parts, n, log = numbers(table), len(table), np.log(4 / (1 - level))
    unit = (parts + 3.0) / 6.0  # whole numbers from -3 to 3, on [0, 1]
    width = np.sqrt(2 * unit.var(0, ddof=1) * log / n) + 7 * log / (3 * (n - 1))
    low, high = lai.score_intervals(backend.array(parts), level=level, bound=3.0)
    for found, end in ((low, unit.mean(0) - width), (high, unit.mean(0) + width)):
        np.testing.assert_allclose(backend.numpy(found), n * (6 * end - 3), rtol=1e-9)


@pytest.mark.equation("false-discovery-rate")
@given(
    st.integers(0, 2**31),
    st.sampled_from((1, 6, 20)),
    st.sampled_from((0.05, 0.5, 0.9)),
    st.sampled_from(("arbitrary", "positive")),
)
def test_what_is_dropped_is_what_scipy_adjusts_to_at_most_the_rate(backend, seed, n, rate, dependence):
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((6, n)) - rng.integers(0, 3, n)
    p_values = stats.ttest_1samp(parts, 0.0, alternative="less").pvalue
    adjusted = stats.false_discovery_control(
        p_values, method={"arbitrary": "by", "positive": "bh"}[dependence]
    )
    weights = lai.drop_harmful(backend.array(parts), rate=rate, dependence=dependence, normalize="batch")
    np.testing.assert_allclose(backend.numpy(weights), (adjusted > rate) / n)


@pytest.mark.equation("empirical-bernstein")
def test_bernsteins_test_rejects_where_the_interval_of_twice_the_level_lies_below_zero(backend):
    """One sample alone: the limit is the rate itself, and one side of an interval at 1 - 2 rate."""
    for mean in np.linspace(-1, 0.5, 31):
        parts = np.full((40, 1), mean) + np.linspace(-0.1, 0.1, 40)[:, None]
        weights = lai.drop_harmful(backend.array(parts), rate=0.05, bound=2.0)
        _, high = lai.score_intervals(backend.array(parts), level=0.9, bound=2.0)
        assert bool(backend.numpy(weights)[0] == 0) == bool(backend.numpy(high)[0] < 0)


def test_no_chance_is_above_one():
    """At a rate of 1 every test rejects."""
    parts = np.array([[0.5, -0.5], [-0.6, 0.4]])
    assert lai.drop_harmful(parts, rate=1.0, bound=1.0, dependence="positive").tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("bound", "least"), [(None, 0.93), (1.0, 0.95)])
def test_intervals_hold_the_mean_as_often_as_they_say(bound, least):
    """2,000 draws of 64 validation samples, signs and magnitudes skewed; the normal one nearly so."""
    rng = np.random.default_rng(1)
    draws = rng.beta(1.0, 3.0, (64, 2000)) * 2 - 1
    low, high = lai.score_intervals(draws, bound=bound)
    covered = ((low < 64 * -0.5) & (high > 64 * -0.5)).mean()
    assert least <= covered
    assert bound is not None or covered <= 0.97


@pytest.mark.equation("false-discovery-rate")
def test_few_of_the_dropped_do_no_harm_although_half_the_errors_are_opposite():
    """Of 40 samples 10 hurt; all share one error of the validation set, with either sign."""
    rng = np.random.default_rng(2)
    mean = np.where(np.arange(40) < 10, -0.6, 0.0)
    shares, found = [], []
    for _ in range(300):
        shared = rng.standard_normal((24, 1)) * rng.choice((-1, 1), 40)
        parts = mean + 0.7 * shared + 0.7 * rng.standard_normal((24, 40))
        dropped = lai.drop_harmful(parts, rate=0.2) == 0
        shares.append(dropped[10:].sum() / max(dropped.sum(), 1))
        found.append(dropped[:10].mean())
    assert np.mean(shares) <= 0.2 * 30 / 40
    assert np.mean(found) > 0.2


def test_a_sample_that_is_not_finite_is_not_kept_and_counts_as_tested(backend):
    parts = np.array([[1.0, np.nan, -2.0], [1.1, 0.0, -2.1], [0.9, np.inf, -1.9]])
    weights = backend.numpy(lai.drop_harmful(backend.array(parts)))
    np.testing.assert_allclose(weights, [1.0, 0.0, 0.0])


with_empty_parts = st.tuples(tables, st.lists(st.integers(0, 3), min_size=5, max_size=5)).filter(
    lambda drawn: sum(size > 0 for size in drawn[1][: len(drawn[0])]) > 1
)


@pytest.mark.equation("part-variance", "false-discovery-rate")
@given(with_empty_parts, st.booleans())
def test_parts_of_no_sample_count_for_nothing(backend, drawn, listed):
    """Not in the degrees of freedom either: results are those of the other parts alone."""
    parts, sizes = numbers(drawn[0]), np.array(drawn[1][: len(drawn[0])], float)
    some = sizes > 0
    parts[~some] = 0.0
    given = parts, sizes.tolist() if listed else backend.array(sizes)
    others = parts[some], sizes[some].tolist()
    found, expected = (
        [*lai.score_intervals(scores, sizes=each), standard_errors(scores, sizes=each)]
        for scores, each in ((backend.array(given[0]), given[1]), (backend.array(others[0]), others[1]))
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(backend.numpy(one), backend.numpy(other), rtol=1e-6, atol=1e-6)
    weights = [
        lai.drop_harmful(backend.array(scores), rate=0.4, sizes=each) for scores, each in (given, others)
    ]
    np.testing.assert_array_equal(backend.numpy(weights[0]), backend.numpy(weights[1]))


@pytest.mark.parametrize(("count", "empty"), [(16, 8), (8, 4), (4, 2)])
def test_intervals_with_empty_parts_hold_the_mean_as_often_as_they_say(count, empty):
    """Normal parts: the chance is the level; with the empty parts counted, .931, .904 and .805."""
    sizes = np.repeat([0.0, 3.0], [empty, count - empty])
    draws = np.random.default_rng(3).standard_normal((count, 40_000)) * np.sqrt(sizes)[:, None]
    low, high = lai.score_intervals(draws, sizes=sizes)
    covered = ((low < 0) & (high > 0)).mean()
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 40_000)


def test_one_part_with_samples_says_nothing_of_its_spread(backend):
    parts = backend.array([[-1.0, 0.0], [0.0, 0.0]])
    low, high = lai.score_intervals(parts, sizes=[2, 0])
    assert not np.isfinite(backend.numpy(low)).any()
    assert not np.isfinite(backend.numpy(high)).any()
    weights = lai.drop_harmful(parts, sizes=[2, 0], rate=0.9)
    np.testing.assert_allclose(backend.numpy(weights), [0.5, 0.5])


def test_bad_arguments_are_named():
    parts = np.ones((3, 2))
    for call, message in (
        (lambda: lai.score_intervals(parts[0]), r"parts: expected shape \(m, n_train\).*got \(2,\)"),
        (lambda: lai.score_intervals(parts[:1]), r"parts: .*two at least, got \(1, 2\)"),
        (lambda: lai.score_intervals(parts, level=1.0), "level: expected a finite number > 0.0 and < 1.0"),
        (lambda: lai.score_intervals(parts, sizes=[1, 2]), "sizes: expected one for each of 3 parts, got 2"),
        (lambda: lai.score_intervals(parts, sizes=np.ones(2)), r"sizes: expected shape \(3,\)"),
        (
            lambda: lai.score_intervals(parts, sizes=[1, 1, 1], bound=1.0),
            "sizes: expected None beside a bound",
        ),
        (lambda: lai.score_intervals(parts, bound=np.ones(3)), r"bound: expected shape \(2,\)"),
        (lambda: lai.drop_harmful(parts, rate=0.0), "rate: expected a finite number > 0.0"),
        (lambda: lai.drop_harmful(parts, dependence="none"), "dependence: expected one of"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="sizes: expected an array or a sequence of numbers, got int"):
        lai.score_intervals(parts, sizes=3)
