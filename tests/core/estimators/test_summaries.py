"""A summary scores like the whole validation set, however it was split, ordered, streamed or factored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.sketches import sketch_variance
from tests.support.backends import BACKENDS
from tests.support.traces import LAYOUTS, rows, trace

NUMPY = BACKENDS[0]


@pytest.mark.equation("aggregation")
@given(
    st.sampled_from(LAYOUTS[3:6]),
    st.sampled_from((("ghost", {}), ("lli", {}), ("lai", {}), ("lai", {"positions": "mean"}))),
    st.permutations(range(5)),
    st.integers(0, 99),
)
def test_any_split_and_order_adds_up(backend, layout, estimator, order, seed):
    validation, training = layout.draw(5, seed), trace(layout.draw(3, seed + 1), backend)
    name, options = estimator
    scores = getattr(lai, f"{name}_scores")
    whole = backend.numpy(scores(trace(validation, backend), training, **options))
    cut = 1 + seed % 4
    parts = [trace(rows(validation, list(part)), backend) for part in (order[:cut], order[cut:])]
    streamed = lai.summarize((part for part in parts), name, **options)
    added = sum(lai.summarize(part, name, **options) for part in reversed(parts))
    assert streamed.samples == added.samples == 5
    for summary in (streamed, added):
        got = backend.numpy(scores(summary, training, **options))
        np.testing.assert_allclose(got, whole, rtol=0, atol=1e-11 * max(1, np.abs(whole).max()))


def test_flatten_allows_positionless_last_layers(backend):
    def made(samples):
        drawn = np.random.default_rng(samples).normal
        inputs, pooled, outputs = (drawn(size=(samples, *shape)) for shape in ((4, 3), (2,), (5,)))
        last = lai.LayerTrace(backend.array(pooled), backend.array(outputs), bias=True)
        return lai.Trace([lai.LayerTrace(backend.array(inputs), bias=True), last])

    validation, training = made(6), made(4)
    pairwise = backend.numpy(lai.lai_kernel(validation, training, positions="flatten")).sum(axis=0)
    summary = lai.summarize(validation, "lai", positions="flatten")
    np.testing.assert_allclose(backend.numpy(lai.lai_scores(summary, training)), pairwise, rtol=1e-12)
    assert lai.fitting_positions(training) == ("mean", "flatten")


OUTPUTS, WIDTHS = 1300, (100, 60)
"""208,000 numbers of a sum, whose factors are fewer up to 142 samples."""


def batch(backend, samples, seed, positions=None, *, bias=True):
    """Return a trace with the output gradients of its last layer alone."""
    generator = np.random.default_rng(seed)
    lead = (samples,) if positions is None else (samples, positions)
    first, last, top = (backend.array(generator.normal(size=(*lead, width))) for width in (*WIDTHS, OUTPUTS))
    return lai.Trace([lai.LayerTrace(first, bias=bias), lai.LayerTrace(last, top, bias=bias)])


def close(backend, found, expected):
    found, expected = (
        one if isinstance(one, np.ndarray) else backend.numpy(one) for one in (found, expected)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.equation("aggregation")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("positions", "read"), [(None, "tokens"), (3, "tokens"), (3, "mean")])
@pytest.mark.parametrize("estimator", ["lai", "lli"])
def test_factored_sums_score_like_all_pairs(backend, estimator, positions, read, bias):
    validation, training = (batch(backend, n, n, positions, bias=bias) for n in (6, 4))
    summary = lai.summarize(validation, estimator, positions=read)
    tokens = positions and (read == "tokens" or estimator == "lli")
    assert summary.factored
    assert summary.totals[0][0].shape[0] == (18 if tokens else 6)
    options = {"positions": read} if estimator == "lai" else {}
    pairs = getattr(lai, f"{estimator}_kernel")(validation, training, **options)
    for side in (summary, summary.summed()):
        found = getattr(lai, f"{estimator}_scores")(side, training)
        close(backend, found, backend.numpy(pairs).sum(0))
    assert not summary.summed().factored


@pytest.mark.equation("aggregation")
def test_joining_folds_factors_into_smaller_sums(backend):
    parts, training = [batch(backend, 50, seed) for seed in range(3)], batch(backend, 5, 9)
    summaries = [lai.summarize(part, "lai") for part in parts]
    two, three = summaries[0] + summaries[1], sum(summaries)
    assert (two.factored, three.factored, two.samples, three.samples) == (True, False, 100, 150)
    expected = sum(backend.numpy(lai.lai_kernel(part, training)).sum(0) for part in parts)
    for found in (three, summaries[2] + two, lai.summarize(parts, "lai"), summaries[2].summed() + two):
        assert not found.factored
        close(backend, lai.lai_scores(found, training), expected)


def test_every_reader_takes_factors_as_sums(backend):
    validation, training = batch(backend, 6, 0, 2), batch(backend, 4, 1, 2)
    summary, moment = lai.summarize(validation, "lai"), backend.array(np.linspace(0.1, 2.0, OUTPUTS))
    for found in (
        lambda side: lai.lai_scores(side, training, layer_weights=[0.5, -2.0]),
        lambda side: lai.preconditioned_lai_scores(side, training, moment),
        lambda side: sketch_variance(side, training, width=10),
    ):
        close(backend, found(summary), found(summary.summed()))


def test_budgets_cover_held_and_folded_factors():
    """13 GB for GPT-2 as a sum: its factors are a few numbers a sample."""
    parts = [batch(NUMPY, 50, seed) for seed in range(3)]
    held, matrix = 50 * (OUTPUTS + sum(WIDTHS) + 1) * 8, OUTPUTS * (sum(WIDTHS) + 1) * 8
    kept = lai.summarize(parts[0], "lai")
    for call, needed in (
        (lambda room: lai.summarize(parts[0], "lai", memory_budget=room), held),
        (lambda room: lai.summarize(parts, "lai", memory_budget=room), matrix),
        (lambda room: kept.summed(memory_budget=room), matrix),
    ):
        assert call(needed).factored == (needed == held)
        message = f"expected at least {needed} bytes for the summary, got {needed - 1}"
        with pytest.raises(ValueError, match=message):
            call(needed - 1)


def test_adding_other_objects_is_refused():
    summary = lai.summarize(batch(NUMPY, 3, 0), "lai")
    assert 0 + summary is summary
    for other in (1, 0.0, None):
        for add in (lambda other=other: other + summary, lambda other=other: summary + other):
            with pytest.raises(TypeError, match="unsupported operand"):
                add()
