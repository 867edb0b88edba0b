"""What both adapters lean on: the fit of layer weights, the default meaning of positions, the checks."""

import itertools
import math
from dataclasses import replace
from functools import partial

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

import lai_core as lai
from lai_core import _adapters
from tests.support.backends import BACKENDS
from tests.support.refusals import Table, refusals

DRAWS = np.random.default_rng(0)


def layers(n=5):
    hidden = lai.LayerTrace(DRAWS.normal(size=(n, 4)), DRAWS.normal(size=(n, 3)), bias=True)
    return hidden, lai.LayerTrace(DRAWS.normal(size=(n, 3)), DRAWS.normal(size=(n, 2)))


def test_layer_parts_add_up_to_kernels():
    hidden, last = layers()
    trace = lai.Trace([hidden, last])
    parts = [_adapters.layer_parts(record, last, "tokens", trains=True) for record in (hidden, last)]
    np.testing.assert_allclose(sum(part[0] for part in parts), lai.lai_kernel(trace, trace), rtol=1e-12)
    np.testing.assert_allclose(sum(part[1] for part in parts), lai.ghost_kernel(trace, trace), rtol=1e-12)


def test_frozen_layers_contribute_to_lai_alone():
    hidden, last = layers()
    seen, exact = _adapters.layer_parts(hidden, last, "tokens", trains=False)
    assert np.abs(seen).max() > 0
    assert not exact.any()


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_fitted_weights_are_slopes_over_pairs(backend):
    draws = DRAWS.normal(size=(2, 3, 4, 4))
    counted = ~np.eye(4, dtype=bool)
    draws[:, :, 0, 0] = np.nan  # what is not counted may be anything
    parts = [(backend.array(x), backend.array(y)) for x, y in zip(*draws, strict=True)]
    found = _adapters.fit_weights(parts, backend.array(counted))
    slopes = [np.linalg.lstsq(x[counted][:, None], y[counted])[0][0] for x, y in zip(*draws, strict=True)]
    np.testing.assert_allclose(backend.numpy(found), slopes, rtol=1e-5)


def test_positions_default_to_tokens_where_shared():
    tokens = lai.LayerTrace(np.ones((2, 3, 4)), np.ones((2, 3, 5)))
    patches = lai.LayerTrace(np.ones((2, 7, 4)))
    assert _adapters.default_positions(lai.Trace([tokens])) == "tokens"
    assert _adapters.default_positions(lai.Trace([patches, tokens])) == "mean"


def test_summed_gradients_are_per_parameter():
    hidden, last = layers()
    found = _adapters.sum_gradients(lai.Trace([hidden, replace(last, weight="head")]), 2**30)
    assert list(found) == [(0, "weight"), (0, "bias"), ("head", "weight")]
    expected = [
        hidden.output_gradients.T @ hidden.activations,
        hidden.output_gradients.sum(0),
        last.output_gradients.T @ last.activations,
    ]
    for (one,), other in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


SEGMENTS = hnp.arrays(np.int64, st.tuples(st.integers(1, 3), st.integers(1, 5)), elements=st.integers(-1, 3))


@pytest.mark.parametrize("backend", BACKENDS[:2], ids=str)  # shapes depend on what is in them
@given(SEGMENTS)
@example(np.array([[0, 1], [2, 2]]))
@example(np.array([[0, 1, 2, 3]]))
@example(np.array([[0, 1, 0], [2, -1, 2]]))  # in pieces
def test_replaced_segments_leave_neighbours_unchanged(backend, segments):
    found = [tuple(map(backend.numpy, one)) for one in _adapters.yield_replacements(backend.array(segments))]
    flat, names = segments.ravel(), np.unique(segments)
    following = dict(zip(names, np.roll(names, -1), strict=True))
    for moved, index in found:
        for row, own in zip(moved, segments, strict=True):
            assert all(len(set(row[own == name])) == 1 for name in own)
        for name in names:
            places, others = (np.flatnonzero(flat == one) for one in (name, following[name]))
            expected = np.where(moved.ravel()[places], np.resize(others, len(places)), places)
            np.testing.assert_array_equal(index[places], expected)
    for row, own in enumerate(segments):
        for one, other in itertools.permutations(set(own), 2):
            assert any(
                moved[row][own == one].all() and not moved[row][own == other].any() for moved, _ in found
            )


def test_positions_scores_are_summed_by_segment():
    scores, segments = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, math.nan]]), np.array([[0, 0, 2], [2, -1, 1]])
    np.testing.assert_array_equal(_adapters.sum_by_segment(scores, segments, 3), [3.0, math.nan, 12.0])


def test_score_agreement_needs_three_samples():
    own, full = DRAWS.normal(size=(2, 2, 3))
    found = _adapters.agreements(own, full)
    expected = [np.corrcoef(one, other)[0, 1] for one, other in zip(own, full, strict=True)]
    assert list(found) == ["scores", "gradients"]
    assert [*found.values()] == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"^inputs: expected three samples or more, .* got 2$"):
        _adapters.agreements(own[:, :2], full[:, :2])


def test_half_the_digits_may_be_lost():
    _adapters.check_agreement(_adapters.SelfCheck(2.0**-26, {}, 0.0), 2.0**-52, "")
    with pytest.raises(ValueError, match=r"relative errors of 1\.5e-08 for exact scores; look"):
        _adapters.check_agreement(_adapters.SelfCheck(0.0, {}, 1.0001 * 2.0**-26), 2.0**-52, "look")


def test_options_that_go_together_are_accepted():
    for each in (("start",), ("start", 0.1, "mean", "sgd"), ("midpoint", None, "sum", "sgd")):
        options(*each)()


def options(at="start", rate=None, reduction="mean", optimizer=None):
    return partial(_adapters.check_exact_options, at, rate, reduction, optimizer)


REFUSED: Table = {
    "ValueError: at: expected one of 'start', 'midpoint', got 'ends'": options("ends"),
    "ValueError: reduction: expected one of 'mean', 'sum', got 'sums'": options(reduction="sums"),
    "ValueError: learning_rate: at='midpoint' needs an optimizer, or the learning rate of an SGD step": (
        options("midpoint")
    ),
    "ValueError: learning_rate: scores at the start are per unit learning rate": options(rate=0.1),
    **{
        f"TypeError: learning_rate: expected a number, or None, got {rate!r}": options("midpoint", rate)
        for rate in ("0.1", True, {})
    },
    "TypeError: training: expected a pair (inputs, targets), got ": [
        partial(_adapters.check_batch, "training", batch) for batch in (None, [1, 2], (1, 2, 3))
    ],
    "ValueError: estimator: expected one of 'ghost', 'lai', 'lli', got 'exact'": (
        lambda: _adapters.kernel_of("exact")
    ),
    "ValueError: segments: expected shape (n, t) = (2, 3), got (1, 3)": (
        lambda: _adapters.sum_by_segment(np.ones((2, 3)), np.zeros((1, 3), int), 3)
    ),
}


test_conflicting_options_are_named = refusals(REFUSED)
