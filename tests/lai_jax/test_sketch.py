"""Sketched steps, and what sums a validation set up, against the core on traces."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs
from tests.lai_jax.support import computed, drawn, stepped, weights

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
def test_steps_reuse_the_summarys_sketch(positions):
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


def test_keys_determine_sketches():
    first, again, other = (lai_jax.draw_sketch(jax.random.key(key), 50, 8) for key in (0, 0, 1))
    assert set(np.asarray(first.signs).tolist()) == {-1, 1}
    assert sorted(np.asarray(first.permutation).tolist()) == list(range(50))
    for left, right, third in zip(*map(jax.tree.leaves, (first, again, other)), strict=True):
        np.testing.assert_array_equal(left, right)
        assert not np.array_equal(left, third)
    assert abs(np.corrcoef(first.signs, np.argsort(first.permutation))[0, 1]) < 0.5


def test_positions_default_to_tokens_or_means():
    def pooled(params, inputs):
        return jnp.tanh(inputs @ params["w"]).mean(1) @ params["o"]

    def single(outputs, targets):
        return (outputs**2).sum(-1)

    assert computed(lai_jax.summarize, apply, PARAMS, loss, *data(4)).side.positions == "tokens"
    assert computed(lai_jax.summarize, pooled, PARAMS, single, *data(4)).side.positions == "mean"
