"""Errors of scores and the policy that tests them, against scipy, and what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import lai_core as lai
from lai_core._theory.student import upper_quantile, upper_tail
from tests.support.draws import GENERATORS
from tests.support.entries import halves
from tests.support.refusals import Table, refusals

# Zeros, ties and constant columns are common: whole numbers.
tables = st.tuples(st.sampled_from((2, 3, 5)), st.sampled_from((1, 4))).flatmap(halves)
sizes = st.lists(st.integers(0, 4), min_size=5, max_size=5).filter(
    lambda drawn: sum(map(bool, drawn[:2])) > 1
)


@pytest.mark.equation("part-variance")
@given(tables, sizes)
def test_errors_are_of_weighted_regression(parts, drawn):
    """Of part scores over the root of their size on the root of their size; empty parts count for nothing."""
    weights = np.array(drawn[: len(parts)], float)
    some = weights > 0
    parts = parts * some[:, None]
    root = np.sqrt(weights[some])[:, None]
    slope, *_ = np.linalg.lstsq(root, parts[some] / root, rcond=None)
    freedom = some.sum() - 1
    squares = ((parts[some] / root - root * slope) ** 2).sum(0) / freedom
    error, total = np.sqrt(squares / weights.sum()), weights.sum()
    for each in (weights, list(weights)):
        np.testing.assert_allclose(
            lai.standard_errors(parts, sizes=each), total * error, rtol=1e-6, atol=1e-6
        )
    dropped = lai.drop_harmful(parts, rate=0.4, sizes=weights)
    np.testing.assert_array_equal(dropped, lai.drop_harmful(parts[some], rate=0.4, sizes=weights[some]))
    alike = lai.standard_errors(parts, sizes=[2.0] * len(parts))
    np.testing.assert_allclose(alike, parts.std(0, ddof=1) * len(parts) ** 0.5, rtol=1e-12, atol=1e-15)


@pytest.mark.equation("false-discovery-rate")
@given(GENERATORS, st.sampled_from((1, 5)))
def test_dropping_matches_scipys_false_discovery_control(rng, n):
    parts = rng.standard_normal((4, n)) + np.linspace(-0.1, 0.1, 4)[:, None] - rng.uniform(0.0, 3.0, n)
    p_values = stats.ttest_1samp(parts, 0.0, alternative="less").pvalue
    adjusted = stats.false_discovery_control(p_values, method="by")
    for rate in (0.05, 0.9, *(edge * x for edge in adjusted[adjusted < 0.999] for x in (1 - 1e-6, 1 + 1e-6))):
        weights = lai.drop_harmful(parts, rate=float(rate), normalize="batch")
        np.testing.assert_allclose(weights, (adjusted > rate) / n)


@pytest.mark.equation("false-discovery-rate")
def test_what_is_dropped_at_the_ends():
    """A p-value that is its limit rejects; parts without spread hurt where negative."""
    assert lai.drop_harmful(np.array([[1.0], [-1.0]]), rate=0.5).tolist() == [0.0]
    assert lai.drop_harmful(np.array([[-1.0, 1.0]])).tolist() == [0.5, 0.5]  # one part: of any error
    assert lai.standard_errors(np.array([[-1.0]])).tolist() == [np.inf]
    still = np.array([[-1.0, 0.0, 1.0]] * 4)
    assert (lai.drop_harmful(still, rate=0.1) > 0).tolist() == [False, True, True]


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_units_change_no_decision(unit):
    """In float32 squares of such scores are 0, or infinite; a part of no sample is none."""
    parts = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32) - 0.5
    expected = lai.drop_harmful(parts, rate=0.9)
    assert 0 < (expected == 0).sum() < 40
    scaled = np.vstack([parts * np.float32(unit), np.full((1, 40), np.nan, np.float32)])
    np.testing.assert_array_equal(lai.drop_harmful(scaled, rate=0.9, sizes=[1] * 6 + [0]), expected)


@pytest.mark.equation("false-discovery-rate")
def test_nonfinite_samples_do_not_ease_dropping():
    """Of two samples the p-values are .2 and none; the limits are .1 and .2 at a rate of .3."""
    parts = np.array([[0.0], [-1.0], [0.0], [-1.0]]) - 0.02
    p_value = stats.ttest_1samp(parts[:, 0], 0.0, alternative="less").pvalue
    parts = np.hstack([parts, np.full((4, 1), np.nan)])
    for rate, kept in ((2.9 * p_value, 1.0), (3.01 * p_value, 0.0)):
        assert lai.drop_harmful(parts, rate=float(rate)).tolist() == [kept, 0.0]


def test_on_every_namespace(backend):
    """One part with samples says nothing of its spread."""
    parts, some = np.array([[-1.0, np.nan, -2.0], [-1.1, 0.0, 3.0]]), np.array([[-1.0, 0.0], [0.0, 0.0]])
    given, wanted = backend.array(np.nan_to_num(parts)), np.nan_to_num(parts)
    found = lai.standard_errors(given), lai.drop_harmful(given, rate=0.3)
    expected = lai.standard_errors(wanted), lai.drop_harmful(wanted, rate=0.3)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(backend.numpy(one), other, rtol=1e-6)
    assert backend.numpy(lai.drop_harmful(backend.array(parts), rate=0.3)).tolist() == [0.0, 0.0, 1.0]
    for sizes in ([2, 0], [0, 0]):
        assert not np.isfinite(backend.numpy(lai.standard_errors(backend.array(some), sizes=sizes))).any()
    weights = lai.drop_harmful(backend.array(some), sizes=backend.array([2.0, 0.0]), rate=0.9)
    np.testing.assert_allclose(backend.numpy(weights), [0.5, 0.5])


@pytest.mark.parametrize("freedom", [1, 2, 5, 16, 63, 400, 10**6])
def test_student_tails_and_quantiles_match_scipy(freedom):
    degrees = np.asarray(float(freedom))
    for tail in (1e-17, 1e-9, 1e-4, 0.025, 0.3, 0.4999):
        expected = stats.t.isf(tail, freedom)
        assert upper_quantile(np, tail, degrees) == pytest.approx(expected, rel=1e-9)
    t = np.array([0.0, 1e-3, 0.3, 1.0, 2.5, 6.0, 40.0, 1e8])
    for values in (t, -t):
        np.testing.assert_allclose(upper_tail(np, values, degrees), stats.t.sf(values, freedom), rtol=1e-12)
    assert upper_tail(np, np.array([np.inf, -np.inf]), degrees).tolist() == [0.0, 1.0]
    single = upper_tail(np, t.astype(np.float32), degrees.astype(np.float32))
    np.testing.assert_allclose(single, stats.t.sf(t, freedom), rtol=2e-4, atol=1e-30)


PARTS = np.ones((3, 2))
REFUSED: Table = {
    "ValueError: parts: expected shape (m, n_train)…got (2,)": lambda: lai.standard_errors(PARTS[0]),
    "ValueError: parts: …m >= 1 parts…got (0, 2)": lambda: lai.standard_errors(PARTS[:0]),
    "ValueError: sizes: expected shape (3,), one size for each part, got (2,)": [
        lambda sizes=sizes: lai.standard_errors(PARTS, sizes=sizes) for sizes in ([1, 2], np.ones(2))
    ],
    "ValueError: sizes[1]: expected": lambda: lai.standard_errors(PARTS, sizes=[1.0, -1e-3, 1.0]),
    "TypeError: sizes: expected an array or a sequence of numbers, got int": (
        lambda: lai.standard_errors(PARTS, sizes=3)
    ),
}


test_bad_arguments_are_named = refusals(REFUSED)
