"""Which rows a step trains on: the best, whatever else a policy says, and none that spoils the others."""

import itertools

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest
from lai_jax._curation.rows import best

from tests.lai_jax.oracle import drawn, squares


def apply(params, inputs):
    return inputs @ params


def test_a_policy_that_looks_at_no_score_trains_what_the_report_says():
    params, batch, tx = drawn(4, 2), (drawn(6, 4), drawn(6)), optax.sgd(0.1)
    update = lai_jax.curated_update(apply, squares, tx, rows=0.5, policy=lambda scores: jnp.full(6, 0.25))
    side = lai_jax.summarize(apply, params, squares, *batch)
    after, _, report = update(params, tx.init(params), side, *batch)
    gradient = jax.grad(lambda params: (report.weights * squares(apply(params, batch[0]), batch[1])).sum())(
        params
    )
    assert report.kept == 3
    np.testing.assert_allclose(after, params - 0.1 * gradient, rtol=1e-4, atol=1e-5)


def test_the_best_rows_are_those_of_a_stable_sort():
    compiled = jax.jit(best, static_argnums=1)
    for scores in itertools.product([-1.0, -0.0, 0.0, 2.0, np.nan], repeat=4):
        scores = np.array(scores)
        ranked = np.argsort(np.where(np.isnan(scores), np.inf, -scores), kind="stable")
        for count in range(1, 5):
            chosen, seen = compiled(jnp.asarray(scores), count)
            np.testing.assert_array_equal(chosen, ranked[:count])
            np.testing.assert_array_equal(seen, np.where(np.isin(np.arange(4), chosen), scores, np.nan))


@pytest.mark.parametrize("rows", [2, 0.5])
@pytest.mark.parametrize("recompute", [False, True])
def test_the_best_row_spoils_nothing_where_the_policy_leaves_it_out(rows, recompute):
    def rooted(params, inputs):
        return jnp.sqrt(jnp.abs(inputs @ params["w"])) @ params["o"]

    params, tx = {"w": jnp.eye(2), "o": jnp.ones((2, 2))}, optax.sgd(0.1)
    inputs = jnp.array([[1.0, 2.0], [0.0, 0.0], [2.0, 1.0], [1.0, 1.0]])  # the root at 0 has no derivative
    update = lai_jax.curated_update(
        rooted, squares, tx, rows=rows, recompute=recompute, policy=lambda s: jnp.where(s < 0, 1.0, 0.0)
    )
    side = lai_jax.summarize(rooted, params, squares, inputs[2:], jnp.full(2, -9.0))
    after, _, report = update(params, tx.init(params), side, inputs, jnp.full(4, 9.0))
    assert np.argmax(report.scores) == 1
    assert report.weights[1] == 0
    assert not report.skipped
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
