"""A validation set summarized in parts: their scores, and the policy that tests them, in one program."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

import lai_core as lai
from tests.lai_jax.oracle import drawn


def dense(params, inputs):
    return jnp.tanh(inputs @ params["w"]) @ params["o"]


def squares(outputs, targets):
    return ((outputs - targets) ** 2).sum(-1)


@pytest.mark.parametrize(("estimator", "rows"), [("lai", None), ("ghost", 3), ("preconditioned_lai", None)])
def test_scores_of_parts_are_those_against_each_part_alone(estimator, rows):
    params, tx = {"w": drawn(4, 6), "o": drawn(6, 3)}, optax.sgd(0.1)
    inputs, targets = drawn(11, 4), drawn(11, 3)
    batch = drawn(5, 4), drawn(5, 3)
    extra = (jnp.zeros(3),) if estimator == "preconditioned_lai" else ()
    state = params, tx.init(params)
    given = dense, params, squares

    def step(policy, summary):
        update = lai_jax.curated_update(dense, squares, tx, estimator=estimator, policy=policy, rows=rows)
        return update(*state, summary, *batch, *extra)[2]

    cut = jax.jit(lambda x, y: lai_jax.summarize(*given, x, y, estimator=estimator, parts=4))
    report = step(lai.drop_harmful, cut(inputs, targets))
    np.testing.assert_array_equal(report.sizes, [2, 3, 3, 3])
    np.testing.assert_allclose(report.parts.sum(0), report.scores, rtol=1e-6)
    start = 0
    for size, scores in zip(report.sizes, report.parts, strict=True):
        part = slice(start, start := start + int(size))
        alone = step(
            lai.keep_positive, lai_jax.summarize(*given, inputs[part], targets[part], estimator=estimator)
        )
        np.testing.assert_allclose(scores, alone.scores, rtol=1e-5)
    if rows is None:
        expected = lai.drop_harmful(report.parts, sizes=report.sizes)
        np.testing.assert_allclose(report.weights, expected)
    else:
        assert int(report.kept) <= rows


def test_inputs_are_scaled_by_their_running_second_moments_where_asked():
    params, tx, moments = {"w": drawn(4, 6), "o": drawn(6, 3)}, optax.sgd(0.1), None
    validation, state = (drawn(11, 4), drawn(11, 3)), tx.init(params)
    given, options = (dense, params, squares), {"estimator": "preconditioned_lai", "exponent": 0.5}
    update = lai_jax.curated_update(dense, squares, tx, **options, decay=0.5, scale_inputs=True)
    summary = lai_jax.summarize(*given, *validation, estimator="preconditioned_lai")
    sums = None
    for draw in range(2):
        batch = drawn(5, 4) + draw, drawn(5, 3)
        sides = [lai_jax.trace(*given, *side) for side in (validation, batch)]
        layers = sides[1].layers
        squared = [layers[-1].output_gradients, *(layer.activations for layer in layers)]
        news = [0.5 * (x**2).mean(0) for x in squared]
        sums = news if sums is None else [0.5 * one + new for one, new in zip(sums, news, strict=True)]
        report = update(params, state, summary, *batch, moments)[2]
        moments = report.second_moment
        expected = lai.preconditioned_lai_scores(*sides, sums[0], input_second_moments=sums[1:], exponent=0.5)
        np.testing.assert_allclose(report.scores, expected, rtol=1e-5)


def test_numpy_arrays_are_summarized_in_parts_outside_of_jit():
    params = {"w": drawn(4, 6), "o": drawn(6, 3)}
    given = drawn(11, 4), drawn(11, 3)
    found, expected = (
        lai_jax.summarize(dense, params, squares, *map(kind, given), parts=4)
        for kind in (np.asarray, jnp.asarray)
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)
