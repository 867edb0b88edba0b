"""Sketched steps, and what sums a validation set up, against the core on traces."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs
from tests.lai_jax.support import by_numpy, computed, drawn, gradients, stepped, weights

OUTPUTS, PLACES = 6, 4


def apply(params, inputs):
    return jnp.tanh(inputs @ params["w"] + params["b"]) @ params["o"] + params["c"]


def loss(outputs, targets):
    scored = jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[..., None], -1)
    return -scored[..., 0].sum(-1)


PARAMS = weights(w=(3, 5), b=(5,), o=(5, OUTPUTS), c=(OUTPUTS,))
MODEL = apply, PARAMS, loss


def data(n, seed=0):
    targets = np.random.default_rng(seed).integers(0, OUTPUTS, (n, PLACES))
    return drawn(n, PLACES, 3, seed=seed), jnp.asarray(targets)


def expected_scores(validation, batch, sketch, positions):
    """Return the core's scores of both traces, sketched by the core."""
    traces = [computed(lai_jax.trace, *MODEL, *side) for side in (validation, batch)]
    drawn = np.asarray(sketch.signs), np.asarray(sketch.permutation)
    return lai.lai_scores(
        *(sketch_outputs(trace, *drawn, width=sketch.width) for trace in traces), positions=positions
    )


@pytest.mark.parametrize("positions", ["tokens", "mean", "flatten"])
def test_a_step_scores_both_sides_by_the_sketch_of_its_summary(positions):
    validation, batch, seen = data(7, seed=1), data(5), []
    summarize = jax.jit(
        lambda sketch: lai_jax.summarize(apply, PARAMS, loss, *validation, positions=positions, sketch=sketch)
    )
    for key in (0, 1):
        sketch = lai_jax.draw_sketch(jax.random.key(key), OUTPUTS, 2)
        report = stepped(MODEL, summarize(sketch), batch, policy=lai.reweight)[2]
        expected = expected_scores(validation, batch, sketch, positions)
        np.testing.assert_allclose(report.scores, expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(report.weights, np.maximum(expected, 0) / np.maximum(expected, 0).sum())
        seen.append(report.scores)
    assert not np.allclose(*seen)
    assert summarize._cache_size() == 1  # redrawn, and not compiled again


@pytest.mark.parametrize("how", [{}, {"rows": 2}, {"rows": 2, "recompute": True}], ids=str)
def test_a_summary_put_together_by_hand_does_the_same(how):
    validation, batch = data(7, seed=1), data(5)
    sketch = lai_jax.draw_sketch(jax.random.key(3), OUTPUTS, 4)

    def by_hand(params):
        trace = lai_jax.trace(apply, params, loss, *validation)
        return lai_jax.Validation(lai.summarize(sketch(trace), "lai"), sketch)

    report = stepped(MODEL, by_numpy(by_hand, PARAMS), batch, **how)[2]
    expected = expected_scores(validation, batch, sketch, "tokens")
    np.testing.assert_allclose(report.scores, expected, rtol=1e-9)


def test_a_sketch_is_what_its_key_says():
    first, again, other = (lai_jax.draw_sketch(jax.random.key(key), 50, 8) for key in (0, 0, 1))
    assert set(np.asarray(first.signs).tolist()) == {-1, 1}
    assert sorted(np.asarray(first.permutation).tolist()) == list(range(50))
    for left, right, third in zip(*map(jax.tree.leaves, (first, again, other)), strict=True):
        np.testing.assert_array_equal(left, right)
        assert not np.array_equal(left, third)
    assert abs(np.corrcoef(first.signs, np.argsort(first.permutation))[0, 1]) < 0.5


def test_a_summary_holds_the_summed_gradients_whatever_the_chunks():
    inputs, targets = data(7)
    inputs, finite, model = inputs.at[2, 1, 0].set(jnp.nan), np.arange(7) != 2, MODEL
    layers = computed(lai_jax.trace, *model, inputs[finite], targets[finite]).layers
    g = layers[-1].output_gradients
    for chunk in (None, 1, 3, 7, 20):
        found = computed(lai_jax.summarize, *model, inputs, targets, positions="mean", chunk=chunk)
        (blocks,) = found.side.totals
        for block, layer in zip(blocks, layers, strict=False):
            expected = g.mean(1).T @ layer.activations.mean(1)
            np.testing.assert_allclose(block, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(blocks[-1], g.mean(1).sum(0), rtol=1e-9, atol=1e-12)
        assert int(found.side.samples) == 6
    summed = gradients(*model, (inputs[finite], targets[finite])).sum(0)
    lengths = np.cumsum([PARAMS[name].size for name in "bco"])
    own = {
        name: part.reshape(PARAMS[name].shape)
        for name, part in zip("bcow", np.split(summed, lengths), strict=True)
    }
    for estimator, names in (("ghost", "wboc"), ("lli", "oc")):
        found = computed(lai_jax.summarize, *model, inputs, targets, estimator=estimator, chunk=3)
        for (total,), name in zip(found.side.totals, names, strict=True):
            np.testing.assert_allclose(total, own[name].T, rtol=1e-9, atol=1e-12)


def test_positions_are_tokens_where_they_fit_and_else_means():
    def pooled(params, inputs):
        return jnp.tanh(inputs @ params["w"]).mean(1) @ params["o"]

    def single(outputs, targets):
        return (outputs**2).sum(-1)

    assert computed(lai_jax.summarize, apply, PARAMS, loss, *data(4)).side.positions == "tokens"
    assert computed(lai_jax.summarize, pooled, PARAMS, single, *data(4)).side.positions == "mean"
