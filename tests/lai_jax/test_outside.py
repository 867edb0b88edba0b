"""What is read outside of an array by index is its nearest entry, to which no gradient flows back."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.oracle import drawn, gradients, squares

IDS = jnp.array([[0, 2, 7], [5, 9, 1], [3, 3, 3], [8, 6, 4]])
PARAMS = {"table": drawn(6, 4), "o": drawn(4, 2)}


def embedded(params, ids):
    return jnp.tanh(params["table"][ids].mean(1)) @ params["o"]


def tied(params, ids):
    return jnp.tanh(params["table"][ids].mean(1)) @ params["table"].T


def nested(params, ids):
    def layer(hidden, place):
        read = jax.checkpoint(
            lambda table: lax.cond(place > 0, lambda t: t[ids], lambda t: 2 * t[ids], table)
        )
        return jnp.tanh(hidden + read(params["table"]).mean(1)), None

    return lax.scan(layer, jnp.zeros((len(ids), 4)), jnp.arange(2))[0] @ params["o"]


@pytest.mark.parametrize("apply", [embedded, tied, pytest.param(nested, marks=pytest.mark.slow)])
def test_every_estimator_leaves_it_out(apply):
    targets = drawn(4)
    rows = gradients(apply, PARAMS, squares, (IDS, targets))

    def scored(params, ids, targets):
        trace = lai_jax.trace(apply, params, squares, ids, targets, gradients="all")
        exact = lai_jax.exact_scores(apply, params, squares, (ids, targets), (ids, targets))
        return lai.ghost_kernel(trace, trace), exact

    ghost, exact = jax.jit(scored)(PARAMS, IDS, targets)
    np.testing.assert_allclose(ghost, rows @ rows.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(exact, rows @ rows.sum(0), rtol=1e-4, atol=1e-4)
