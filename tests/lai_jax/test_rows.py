"""A report's weights are those of the step, whatever a policy says of the rows that it is not to keep."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax

from tests.lai_jax.oracle import drawn, squares


def test_a_policy_that_looks_at_no_score_trains_what_the_report_says():
    params, batch, tx = drawn(4, 2), (drawn(6, 4), drawn(6)), optax.sgd(0.1)

    def apply(params, inputs):
        return inputs @ params

    update = lai_jax.curated_update(apply, squares, tx, rows=0.5, policy=lambda scores: jnp.full(6, 0.25))
    side = lai_jax.summarize(apply, params, squares, *batch)
    after, _, report = update(params, tx.init(params), side, *batch)
    gradient = jax.grad(lambda params: (report.weights * squares(apply(params, batch[0]), batch[1])).sum())(
        params
    )
    assert report.kept == 3
    np.testing.assert_allclose(after, params - 0.1 * gradient, rtol=1e-4, atol=1e-5)
