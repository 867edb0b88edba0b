"""Scores of positions and of segments, against batches in which each is a sample of its own.

The oracles cut numpy arrays and score the pieces by themselves.
"""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lai_core as lai
from tests.support.backends import BACKENDS
from tests.support.draws import GENERATORS
from tests.support.refusals import Table, refusals

SCORES = {"ghost": lai.ghost_scores, "lai": lai.lai_scores, "lli": lai.lli_scores}
NUMPY = BACKENDS[0]
FEW = settings(max_examples=15)  # of twelve extents


def arrays(rng, samples, length):
    """Draw what a small language model leaves: ids, inputs and output gradients of two layers, a gain."""
    return {
        "ids": rng.integers(0, 4, (samples, length)),
        "read": rng.standard_normal((samples, length, 2)),
        "inputs": rng.standard_normal((samples, length, 3)),
        "hidden": rng.standard_normal((samples, length, 4)),
        "gain": rng.standard_normal((samples, length, 4)),
        "outputs": rng.standard_normal((samples, length, 2)),
    }


def traced(drawn, backend=NUMPY):
    given = {name: backend.array(array) for name, array in drawn.items()}
    return lai.Trace(
        [
            lai.EmbeddingTrace(given["ids"], given["read"], rows=4),
            lai.LayerTrace(given["inputs"], given["hidden"], bias=True),
            lai.GainTrace(given["hidden"], given["gain"]),
            lai.LayerTrace(given["read"], given["outputs"][..., :1], bias=True),
            lai.LayerTrace(given["hidden"], given["outputs"], bias=True),
        ]
    )


def masked(drawn, backend, rng, estimator):
    """Leave positions out for LAI, which alone reads masks; give the trace and what is left."""
    shape, training = drawn["ids"].shape, traced(drawn, backend)
    if estimator != "lai":
        return training, np.ones(shape, bool)
    valid = rng.integers(0, 3, shape) > 0
    return lai.mask_positions(training, backend.array(valid)), valid


def score_of(validation, drawn, chosen, estimator, **options):
    """Score a sample of the chosen positions, `(n, t)` booleans; of none the score is 0."""
    if not chosen.any():
        return 0.0
    piece = traced({name: array[chosen][None] for name, array in drawn.items()})
    return float(SCORES[estimator](traced(validation), piece, **options)[0])


@pytest.mark.equation("position-score")
@pytest.mark.parametrize("estimator", SCORES)
@FEW
@given(GENERATORS, st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_positions_score_as_single_position_samples(backend, estimator, rng, samples, length, summarized):
    validation, drawn = arrays(rng, 2, 3), arrays(rng, samples, length)
    training, valid = masked(drawn, backend, rng, estimator)
    side = traced(validation, backend)
    side = lai.summarize(side, estimator) if summarized else side
    found = backend.numpy(lai.position_scores(side, training, estimator))
    assert found.shape == (samples, length)
    for place in np.ndindex(samples, length):
        alone = np.zeros((samples, length), bool)
        alone[place] = valid[place]
        expected = score_of(validation, drawn, alone, estimator)
        np.testing.assert_allclose(found[place], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.equation("position-score")
@pytest.mark.parametrize(
    ("estimator", "positions"), [("ghost", "tokens"), ("lli", "tokens"), ("lai", "tokens"), ("lai", "mean")]
)
@FEW
@given(GENERATORS, st.integers(1, 3), st.integers(1, 5))
def test_segments_score_as_the_unpacked_batch(backend, estimator, positions, rng, samples, length):
    """Some positions belong to no segment, some segments have no position, others lie in two rows."""
    validation, drawn = arrays(rng, 2, 3), arrays(rng, samples, length)
    training, valid = masked(drawn, backend, rng, estimator)
    segments, side = rng.integers(0, 4, (samples, length)) - 1, traced(validation, backend)
    given = side, training, backend.array(segments), 4, estimator
    found = backend.numpy(lai.segment_scores(*given, positions=positions))
    options = {"positions": positions} if estimator == "lai" else {}
    expected = [score_of(validation, drawn, (segments == k) & valid, estimator, **options) for k in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_unread_records_need_no_positions():
    """LLI reads the last layer alone, LAI no gain."""
    rng = np.random.default_rng(2)
    both = [traced(arrays(rng, 2, 3)) for _ in range(2)]
    pooled = [lai.Trace([lai.LayerTrace(np.ones((2, 5))), *trace.layers]) for trace in both]
    found = lai.position_scores(*pooled, "lli")
    np.testing.assert_allclose(found, lai.position_scores(*both, "lli"))
    conditioned = [lai.Trace([lai.GainTrace(None, np.ones((2, 5))), *trace.layers]) for trace in both]
    np.testing.assert_allclose(lai.position_scores(*conditioned, "lai"), lai.position_scores(*both, "lai"))


@pytest.mark.parametrize(("estimator", "positions"), [("lli", "tokens"), ("lai", "tokens"), ("lai", "mean")])
def test_nonfinite_positions_spoil_only_their_segment(backend, estimator, positions):
    rng = np.random.default_rng(5)
    validation, drawn = (arrays(rng, *shape) for shape in ((2, 3), (2, 4)))
    segments = backend.array(np.array([[0, 0, 1, 2], [1, 2, 2, -1]]))
    spoilt = drawn | {"outputs": drawn["outputs"].copy()}
    spoilt["outputs"][0, 2, 0] = np.nan
    given, side = (segments, 3, estimator), traced(validation, backend)
    usual, found = (
        backend.numpy(lai.segment_scores(side, traced(one, backend), *given, positions=positions))
        for one in (drawn, spoilt)
    )
    np.testing.assert_array_equal(np.isnan(found), [False, True, False])
    np.testing.assert_allclose(found[[0, 2]], usual[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("count", [100, 200, 256])
def test_narrow_integer_segments_do_not_overflow(backend, count):
    """In int8 the number 255 would be -1."""
    rows = backend.array(np.array([[[1.0], [2.0], [3.0]]]))
    side = lai.Trace([lai.LayerTrace(rows, backend.array(np.ones((1, 3, 1))))])
    segments = backend.array(np.array([[99, -1, 99]], np.int8))
    found = backend.numpy(lai.segment_scores(side, side, segments, count, "lli"))
    np.testing.assert_array_equal(found, np.where(np.arange(count) == 99, 24.0, 0.0))
    means = backend.numpy(lai.segment_scores(side, side, segments, count, "lai", positions="mean"))
    np.testing.assert_array_equal(means, np.where(np.arange(count) == 99, 4.0, 0.0))


@pytest.mark.parametrize("positions", ["tokens", "mean"])
def test_segment_sums_keep_the_memory_budget(positions):
    """A batch of 4,000 segments of 8 positions: their table of 0 and 1 would take a GiB."""
    rng = np.random.default_rng(6)
    validation, training = (
        lai.Trace([lai.LayerTrace(rng.normal(size=(n, t, 3)), rng.normal(size=(n, t, 2)))])
        for n, t in ((2, 3), (40, 800))
    )
    segments = np.arange(32_000).reshape(40, 800) // 8
    tracemalloc.start()
    found = lai.segment_scores(
        validation, training, segments, 4_000, "lai", positions=positions, memory_budget=2**24
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26
    if positions == "tokens":
        by_position = lai.position_scores(validation, training, "lai")
        np.testing.assert_allclose(found, by_position.reshape(-1, 8).sum(1), rtol=1e-10, atol=1e-12)


TRACE = traced(arrays(np.random.default_rng(3), 2, 3))
HEAD = TRACE.layers[-1]
SEGMENTS = np.zeros((2, 3), int)
ROWS = "ValueError: training.layers[0].activations: expected the last layer's 3 positions, a row for each"
LAST = "'lli' needs them of the last layer alone, and exact_scores(per_position=True) of an adapter of none"
REFUSED: Table = {
    f"{ROWS}, got shape (2, 4); {LAST}": lambda: lai.position_scores(
        *[lai.Trace([lai.LayerTrace(np.ones((2, 4))), HEAD])] * 2, "lai"
    ),
    f"{ROWS}, got shape (2, 5, 4); {LAST}": lambda: lai.position_scores(
        *[lai.Trace([lai.LayerTrace(np.ones((2, 5, 4))), HEAD])] * 2, "lai"
    ),
    "ValueError: training.layers[0]: expected output gradients of shape (n, t, d), a row for …got (2, 1)": (
        lambda: lai.position_scores(
            *[lai.Trace([lai.LayerTrace(np.ones((2, 4)), np.ones((2, 1)))])] * 2, "lai"
        )
    ),
    "ValueError: positions: expected 'mean', with which the summary was made, got 'tokens'": lambda: (
        lai.position_scores(lai.summarize(TRACE, "lai", positions="mean"), TRACE, "lai")
    ),
    "ValueError: positions: expected one of 'tokens', 'mean', got 'flatten'": lambda: lai.segment_scores(
        TRACE, TRACE, SEGMENTS, 1, "lai", positions="flatten"
    ),
    "ValueError: segments: expected shape (n, t) = (2, 3), got (2,)": lambda: lai.segment_scores(
        TRACE, TRACE, SEGMENTS[:, 0], 1, "lai"
    ),
    "TypeError: segments: expected integers, got float64": lambda: lai.segment_scores(
        TRACE, TRACE, SEGMENTS * 1.0, 1, "lai"
    ),
    "ValueError: estimator: expected one of 'ghost', 'lai', 'lli', got 'exact'": lambda: lai.position_scores(
        TRACE, TRACE, "exact"
    ),
}


test_records_without_positions_are_refused = refusals(REFUSED)


@given(
    GENERATORS,
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from((0.07, 0.5, 1.0)),
    st.sampled_from(("kept", "batch")),
)
def test_keep_top_counts_valid_tokens_only(backend, rng, samples, length, fraction, normalize):
    scores = rng.standard_normal((samples, length))
    valid = rng.integers(0, 3, (samples, length)) > 0
    arrays = backend.array(scores), backend.array(valid)
    weights = backend.numpy(lai.keep_top(arrays[0], fraction, valid=arrays[1], normalize=normalize))
    counted = [index for index in np.ndindex(samples, length) if valid[index]]
    ranked = sorted(counted, key=lambda index: -scores[index])  # stable: among equals the first
    kept = ranked[: max(1, math.ceil(fraction * len(counted) - 1e-9))]
    expected = np.zeros((samples, length))
    for index in kept:
        expected[index] = 1 / len(kept if normalize == "kept" else counted)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


@pytest.mark.parametrize("policy", [lai.keep_positive, lai.reweight, lambda each: lai.keep_top(each, 0.3)])
def test_policies_weigh_positions_like_samples(backend, policy):
    scores = np.random.default_rng(4).normal(size=(3, 4))
    found = backend.numpy(policy(backend.array(scores)))
    np.testing.assert_array_equal(found.ravel(), backend.numpy(policy(backend.array(scores.ravel()))))
