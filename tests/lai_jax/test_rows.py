"""Which rows a step trains on: the best, whatever else a policy says, and none that spoils the others."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lai_jax._curation.rows import best

from tests.lai_jax.support import squares, stepped


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

    model = rooted, {"w": jnp.eye(2), "o": jnp.ones((2, 2))}, squares
    inputs = jnp.array([[1.0, 2.0], [0.0, 0.0], [2.0, 1.0], [1.0, 1.0]])  # the root at 0 has no derivative
    how = {"rows": rows, "recompute": recompute, "policy": lambda s: jnp.where(s < 0, 1.0, 0.0)}
    validation, batch = (inputs[2:], jnp.full(2, -9.0)), (inputs, jnp.full(4, 9.0))
    after, _, report = stepped(model, validation, batch, **how)
    assert np.argmax(report.scores) == 1
    assert report.weights[1] == 0
    assert not report.skipped
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
