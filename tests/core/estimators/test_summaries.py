"""A summary scores like the whole validation set, however it was split, ordered or streamed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.summaries import joined_summaries
from tests.support.traces import LAYOUTS, Layout, batches, rows, trace

ESTIMATORS = ("ghost", "lli", "lai", "lai-mean")


def summarize(validation, estimator):
    name, _, positions = estimator.partition("-")
    return lai.summarize(validation, name, positions=positions or "tokens")


def scores(validation, training, estimator):
    name, _, positions = estimator.partition("-")
    options = {"positions": positions} if positions else {}
    return getattr(lai, f"{name}_scores")(validation, training, **options)


@pytest.mark.equation("aggregation")
@given(batches(), st.sampled_from(ESTIMATORS))
def test_a_summary_scores_like_all_pairs(backend, pair, estimator):
    validation, training = (trace(side, backend) for side in pair)
    name, _, positions = estimator.partition("-")
    options = {"positions": positions} if positions else {}
    pairwise = backend.numpy(getattr(lai, f"{name}_kernel")(validation, training, **options)).sum(axis=0)
    summarized = backend.numpy(scores(summarize(validation, estimator), training, estimator))
    np.testing.assert_allclose(summarized, pairwise, rtol=0, atol=1e-12 * max(1, np.abs(pairwise).max()))


@pytest.mark.equation("aggregation")
@given(
    st.sampled_from(LAYOUTS[3:6]), st.sampled_from(ESTIMATORS), st.permutations(range(5)), st.integers(0, 99)
)
def test_a_summary_is_additive_under_any_split_and_order(backend, layout, estimator, order, seed):
    validation, training = layout.draw(5, seed), trace(layout.draw(3, seed + 1), backend)
    cut = 1 + seed % 4
    whole = scores(summarize(trace(validation, backend), estimator), training, estimator)
    parts = [trace(rows(validation, list(part)), backend) for part in (order[:cut], order[cut:])]
    streamed = summarize((part for part in parts), estimator)
    added = sum(summarize(part, estimator) for part in reversed(parts))
    assert streamed.samples == added.samples == 5
    for summary in (streamed, added):
        got = backend.numpy(scores(summary, training, estimator))
        expected = backend.numpy(whole)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11 * max(1, np.abs(expected).max()))


def test_a_summary_that_multiplies_means_is_not_the_sum(backend):
    """The mistake that the tests above must catch: mean(g) mean(a)^T in place of mean(g a^T)."""
    layout = Layout(((3, 2),))
    validation, training = layout.draw(4, 0), layout.draw(3, 1)
    means = [
        type(layer)(
            layer.activations.mean(axis=0, keepdims=True) * 4,
            layer.output_gradients.mean(axis=0, keepdims=True),
        )
        for layer in validation
    ]
    right = backend.numpy(lai.lai_scores(trace(validation, backend), trace(training, backend)))
    wrong = backend.numpy(
        lai.lai_scores(lai.summarize(trace(means, backend), "lai"), trace(training, backend))
    )
    assert np.abs(right - wrong).max() > 0.1 * np.abs(right).max()


def test_layer_weights_apply_to_a_summary(backend):
    layout = LAYOUTS[3]
    validation, training = (trace(layout.draw(4, seed), backend) for seed in (0, 1))
    weights = [0.5, -2.0, 1.0]
    direct = lai.lai_scores(validation, training, layer_weights=weights)
    from_summary = lai.lai_scores(lai.summarize(validation, "lai"), training, layer_weights=weights)
    np.testing.assert_allclose(backend.numpy(from_summary), backend.numpy(direct), rtol=1e-12)


def test_flatten_is_summarized_where_the_last_layer_has_no_positions(backend):
    def batch(samples, seed):
        generator = np.random.default_rng(seed)
        inputs = backend.array(generator.normal(size=(samples, 4, 3)))
        pooled = backend.array(generator.normal(size=(samples, 2)))
        outputs = backend.array(generator.normal(size=(samples, 5)))
        return lai.Trace([lai.LayerTrace(inputs, bias=True), lai.LayerTrace(pooled, outputs, bias=True)])

    validation, training = batch(6, 0), batch(4, 1)
    pairwise = backend.numpy(lai.lai_kernel(validation, training, positions="flatten")).sum(axis=0)
    summary = lai.summarize(validation, "lai", positions="flatten")
    np.testing.assert_allclose(backend.numpy(lai.lai_scores(summary, training)), pairwise, rtol=1e-12)
    assert lai.fitting_positions(training) == ("mean", "flatten")


def wide(samples):
    draws = np.random.default_rng(samples)
    return lai.Trace([lai.LayerTrace(draws.normal(size=(samples, 256)), draws.normal(size=(samples, 256)))])


def test_a_summary_of_factors_and_one_that_is_summed_are_joined():
    few, many = lai.summarize(wide(3), "lai"), lai.summarize(wide(130), "lai")
    assert (few.factored, many.factored) == (True, False)
    batch = wide(5)
    expected = sum(lai.lai_scores(wide(samples), batch) for samples in (3, 130))
    for both in (few + many, many + few):
        assert not both.factored
        np.testing.assert_allclose(lai.lai_scores(both, batch), expected, rtol=1e-10)
    assert joined_summaries([few]).factored
    np.testing.assert_allclose(lai.lai_scores(joined_summaries([few]), batch), lai.lai_scores(few, batch))


def test_what_is_no_summary_is_not_added():
    summary = lai.summarize(wide(3), "lai")
    assert 0 + summary is summary
    for other in (1, 0.0, None):
        with pytest.raises(TypeError, match="unsupported operand"):
            other + summary
        with pytest.raises(TypeError, match="unsupported operand"):
            summary + other


def test_a_sum_that_exceeds_its_budget_by_a_byte_is_refused():
    summary = lai.summarize(wide(3), "lai")
    needed = 256 * 256 * 8
    assert not summary.summed(memory_budget=needed).factored
    with pytest.raises(
        ValueError, match=f"expected at least {needed} bytes for the summary, got {needed - 1}"
    ):
        summary.summed(memory_budget=needed - 1)
    held = 3 * (256 + 256) * 8
    assert lai.summarize(wide(3), "lai", memory_budget=held).factored
    with pytest.raises(ValueError, match=f"expected at least {held} bytes for the summary, got {held - 1}"):
        lai.summarize(wide(3), "lai", memory_budget=held - 1)
