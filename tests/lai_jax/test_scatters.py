"""Writing by index: into parameters, into constants, and of parameters, each sample by itself."""

import jax
import jax.numpy as jnp
import lai_jax
import pytest

from tests.lai_jax.oracle import drawn, ghost_error, squares

PARAMS = {"w": drawn(3, 6), "table": drawn(6), "o": drawn(6, 2)}
IDS = {n: jnp.asarray([[0, 2], [3, 1], [5, 4], [2, 0], [1, 5]])[:n] for n in (5, 3)}
BATCHES = [((drawn(n, 3), IDS[n]), drawn(n)) for n in (5, 3)]


def mask_of_the_chosen(params, inputs, ids):
    """Write a sample's values into zeros, by numbers of rows, as a router does."""
    hidden = inputs @ params["w"]
    rows = jnp.arange(len(ids))[:, None]
    chosen = jnp.take_along_axis(hidden, ids, 1)
    return jnp.zeros_like(hidden).at[rows, ids].set(jnp.tanh(chosen)) @ params["o"]


def into_the_batch(params, inputs, ids):
    hidden = jnp.tanh(inputs @ params["w"])
    return hidden.at[jnp.arange(len(ids)), ids[:, 0]].multiply(2.0) @ params["o"]


def into_parameters(params, inputs, ids):
    hidden = inputs @ params["w"]
    rows = jax.vmap(lambda row, places: params["table"].at[places].add(row[:2]))(hidden, ids)
    return jnp.tanh(rows) @ params["o"]


def of_parameters(params, inputs, ids):
    hidden = inputs @ params["w"]
    rows = jax.vmap(lambda row, places: row.at[places].set(params["table"][:2]))(hidden, ids)
    return jnp.tanh(rows) @ params["o"]


def along_a_window(params, inputs, ids):
    hidden = jnp.tanh(inputs @ params["w"])
    return jnp.zeros_like(hidden).at[:, jnp.array([4, 1])].add(hidden[:, :2]) @ params["o"]


EVERY = [mask_of_the_chosen, into_the_batch, into_parameters, of_parameters, along_a_window]


@pytest.mark.parametrize("apply", EVERY, ids=lambda apply: apply.__name__)
def test_ghost_is_exact_and_lai_reads_the_layers(apply):
    assert ghost_error(apply, PARAMS, squares, *BATCHES) < 1e-5
    trace = jax.eval_shape(lambda p: lai_jax.trace(apply, p, squares, *BATCHES[0]), PARAMS)
    assert [layer.name for layer in trace.layers] == ["w", "o"]


def test_writing_to_another_sample_is_refused():
    def apply(params, inputs, ids):
        hidden = jnp.tanh(inputs @ params["w"])
        return hidden.at[jnp.array([1, 0, 2, 3, 4])].add(1.0 * hidden) @ params["o"]

    with pytest.raises(ValueError, match="writes to samples of the batch by index"):
        lai_jax.trace(apply, PARAMS, squares, *BATCHES[0])
