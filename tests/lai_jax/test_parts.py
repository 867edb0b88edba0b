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


def test_what_cannot_be_cut_is_refused():
    given = dense, {"w": drawn(4, 6), "o": drawn(6, 3)}, squares, drawn(5, 4), drawn(5, 3)
    with pytest.raises(ValueError, match="parts: expected an estimator and positions that have"):
        lai_jax.summarize(*given, estimator="exact", parts=2)
    with pytest.raises(ValueError, match=r"parts: expected a number from 2 to .* \(5\), got 6"):
        lai_jax.summarize(*given, parts=6)
