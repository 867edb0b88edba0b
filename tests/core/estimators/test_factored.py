"""A sum that stays factors scores like the sum, whatever is joined, until the sum is the smaller."""

import lai_storage
import numpy as np
import pytest
from numpy.random import default_rng

import lai_core as lai
from lai_core.estimators.sketches import sketch_variance
from tests.support.backends import BACKENDS

OUTPUTS, WIDTHS = 1300, (100, 60)
"""208,000 numbers of a sum, whose factors are fewer up to 142 samples."""


def batch(backend, samples, seed, positions=None, *, bias=True):
    """Return a trace with the output gradients of its last layer alone."""
    generator = default_rng(seed)
    lead = (samples,) if positions is None else (samples, positions)

    def drawn(width):
        return backend.array(generator.normal(size=(*lead, width)))

    first, last = (drawn(width) for width in WIDTHS)
    top = lai.LayerTrace(last, drawn(OUTPUTS), bias=bias)
    return lai.Trace([lai.LayerTrace(first, bias=bias), top])


def close(backend, found, expected):
    """Assert that scores are alike but for rounding."""
    found, expected = backend.numpy(found), backend.numpy(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.equation("aggregation")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("positions", "read"), [(None, "tokens"), (3, "tokens"), (3, "mean")])
@pytest.mark.parametrize("estimator", ["lai", "lli"])
def test_factors_score_like_all_pairs(backend, estimator, positions, read, bias):
    validation, training = (batch(backend, n, n, positions, bias=bias) for n in (6, 4))
    summary = lai.summarize(validation, estimator, positions=read)
    assert summary.factored
    assert summary.totals[0][0].shape[0] == (
        18 if positions and (read == "tokens" or estimator == "lli") else 6
    )
    options = {"positions": read} if estimator == "lai" else {}
    pairs = getattr(lai, f"{estimator}_kernel")(validation, training, **options)
    expected = backend.array(backend.numpy(pairs).sum(0))
    score = getattr(lai, f"{estimator}_scores")
    close(backend, score(summary, training), expected)
    close(backend, score(summary.summed(), training), expected)
    assert not summary.summed().factored


@pytest.mark.equation("aggregation")
def test_joined_summaries_fold_where_the_sum_is_the_smaller(backend):
    parts = [batch(backend, 50, seed) for seed in range(3)]
    training = batch(backend, 5, 9)
    summaries = [lai.summarize(part, "lai") for part in parts]
    two, three = summaries[0] + summaries[1], sum(summaries)
    assert (two.factored, three.factored, two.samples, three.samples) == (True, False, 100, 150)
    pairs = [backend.numpy(lai.lai_kernel(part, training)) for part in parts]
    expected = backend.array(sum(pair.sum(0) for pair in pairs))
    for found in (three, summaries[2] + two, lai.summarize(parts, "lai"), summaries[2].summed() + two):
        assert not found.factored
        close(backend, lai.lai_scores(found, training), expected)


def test_summaries_of_factors_join_others_and_those_of_two_parameters():
    backend, few = BACKENDS[0], [batch(BACKENDS[0], 20, seed) for seed in range(2)]
    training, last = batch(backend, 5, 9), lai.Trace([few[0].layers[-1]])
    for estimator, score in (("lai", lai.lai_scores), ("lli", lai.lli_scores)):
        one, two = (lai.summarize(part, estimator) for part in few)
        expected = score(one, training) + score(two, training)
        for whole, factored in ((one + two, True), (one + two.summed(), False), (one.summed() + two, False)):
            assert whole.factored == factored
            close(backend, score(whole, training), expected)
    assert [lai.summarize(last, name).factored for name in ("lai", "lli", "ghost")] == [True, True, False]


def test_layer_weights_the_metric_and_a_sketchs_variance_read_factors_as_sums(backend):
    validation, training = batch(backend, 6, 0, 2), batch(backend, 4, 1, 2)
    summary, moment = lai.summarize(validation, "lai"), backend.array(np.linspace(0.1, 2.0, OUTPUTS))
    for found in (
        lambda side: lai.lai_scores(side, training, layer_weights=[0.5, -2.0]),
        lambda side: lai.preconditioned_lai_scores(side, training, moment),
        lambda side: sketch_variance(side, training, width=10),
    ):
        close(backend, found(summary), found(summary.summed()))


def test_the_budget_is_what_is_held_and_asked_again_where_factors_fold():
    """13 GB for GPT-2 as a sum: its factors are a few numbers a sample."""
    backend = _Numpy()
    parts = [batch(backend, 50, seed) for seed in range(3)]
    held = 50 * (OUTPUTS + sum(WIDTHS) + 1) * 8
    assert lai.summarize(parts[0], "lai", memory_budget=held).factored
    with pytest.raises(ValueError, match=f"expected at least {held} bytes for the summary"):
        lai.summarize(parts[0], "lai", memory_budget=held - 8)
    matrix = OUTPUTS * (sum(WIDTHS) + 1) * 8
    with pytest.raises(ValueError, match=f"expected at least {matrix} bytes for the summary"):
        lai.summarize(parts, "lai", memory_budget=matrix - 8)


def test_factors_are_kept_in_a_file(tmp_path):
    backend = _Numpy()
    summary, training = lai.summarize(batch(backend, 6, 0), "lai"), batch(backend, 4, 1)
    lai_storage.save(tmp_path / "kept", summary)
    found = lai_storage.load(tmp_path / "kept")
    assert found.factored
    np.testing.assert_array_equal(lai.lai_scores(found, training), lai.lai_scores(summary, training))


class _Numpy:
    """Arrays as they are."""

    array = staticmethod(np.asarray)
