"""Sketched steps, and what sums a validation set up, against products written out in numpy."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

import lai_core as lai
from tests.lai_jax.support import by_numpy, computed, drawn, gradients, stepped, weights

OUTPUTS, PLACES = 6, 4


def apply(params, inputs):
    return jnp.tanh(inputs @ params["w"] + params["b"]) @ params["o"] + params["c"]


def loss(outputs, targets):
    scored = jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[..., None], -1)
    return -scored[..., 0].sum(-1)


PARAMS = weights(w=(3, 5), b=(5,), o=(5, OUTPUTS), c=(OUTPUTS,))


def data(n, seed=0):
    targets = np.random.default_rng(seed).integers(0, OUTPUTS, (n, PLACES))
    return drawn(n, PLACES, 3, seed=seed), jnp.asarray(targets)


def explicit(params, inputs, targets):
    """Layer inputs `(n, t, d)` and the last layer's output gradients, in numpy."""
    p = {name: np.asarray(value) for name, value in params.items()}
    hidden = np.tanh(np.asarray(inputs) @ p["w"] + p["b"])
    logits = hidden @ p["o"] + p["c"]
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return [np.asarray(inputs), hidden], shares - np.eye(OUTPUTS)[np.asarray(targets)]


def expected_scores(params, validation, batch, positions="tokens", sketch=None):
    """LAI with biases, the output gradients multiplied by a matrix of the sketch."""
    (a_z, g_z), (a_j, g_j) = explicit(params, *validation), explicit(params, *batch)
    matrix = np.eye(OUTPUTS) if sketch is None else matrix_of(sketch)
    g_z, g_j = g_z @ matrix.T, g_j @ matrix.T
    if positions == "mean":
        alpha = sum(z.mean(1) @ j.mean(1).T + 1 for z, j in zip(a_z, a_j, strict=True))
        return (alpha * (g_z.mean(1) @ g_j.mean(1).T)).sum(0)
    if positions == "flatten":
        flat = [[side.reshape(len(side), -1) for side in (*a, g)] for a, g in ((a_z, g_z), (a_j, g_j))]
        alpha = sum(flat[0][l] @ flat[1][l].T + PLACES for l in (0, 1))
        return (alpha * (flat[0][2] @ flat[1][2].T)).sum(0)
    beta = np.einsum("zti,jsi->ztjs", g_z, g_j)
    alpha = sum(np.einsum("zti,jsi->ztjs", z, j) + 1 for z, j in zip(a_z, a_j, strict=True))
    return (alpha * beta).sum((0, 1, 3))


def matrix_of(sketch):
    """Return a sketch as a matrix, `(width, OUTPUTS)`: runs of the permuted outputs, each with its sign."""
    matrix, size = np.zeros((sketch.width, OUTPUTS)), -(-OUTPUTS // sketch.width)
    for place, output in enumerate(np.asarray(sketch.permutation)):
        matrix[place // size, output] = float(sketch.signs[output])
    return matrix


@pytest.mark.parametrize("positions", ["tokens", "mean", "flatten"])
def test_a_step_scores_both_sides_by_the_sketch_of_its_summary(positions):
    validation, batch, seen = data(7, seed=1), data(5), []
    summarize = jax.jit(
        lambda sketch: lai_jax.summarize(apply, PARAMS, loss, *validation, positions=positions, sketch=sketch)
    )
    for key in (0, 1):
        sketch = lai_jax.draw_sketch(jax.random.key(key), OUTPUTS, 2)
        report = stepped((apply, PARAMS, loss), summarize(sketch), batch, policy=lai.reweight)[2]
        expected = expected_scores(PARAMS, validation, batch, positions, sketch)
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

    report = stepped((apply, PARAMS, loss), by_numpy(by_hand, PARAMS), batch, **how)[2]
    expected = expected_scores(PARAMS, validation, batch, sketch=sketch)
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
    inputs, finite, model = inputs.at[2, 1, 0].set(jnp.nan), np.arange(7) != 2, (apply, PARAMS, loss)
    (first, hidden), g = explicit(PARAMS, inputs[finite], targets[finite])
    for chunk in (None, 1, 3, 7, 20):
        found = computed(lai_jax.summarize, *model, inputs, targets, positions="mean", chunk=chunk)
        (blocks,) = found.side.totals
        for block, a in zip(blocks, (first, hidden), strict=False):
            np.testing.assert_allclose(block, g.mean(1).T @ a.mean(1), rtol=1e-9, atol=1e-12)
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
