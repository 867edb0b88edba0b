"""What LAI's scores leave out is said when the validation set is summed up."""

import jax
import jax.numpy as jnp
import lai_jax
import pytest
from jax import lax

from tests.lai_jax.support import classified, cross_entropy, drawn, weights

TOKENS = drawn(3, 5, 4), classified(3)[1]


def routed(params, inputs):
    weights = jax.nn.softmax(inputs @ params["w"])
    best, experts = lax.top_k(weights, 2)
    hidden = jnp.einsum("ntd,ntkde,ntk->nte", inputs, params["experts"][experts], best)
    return hidden.mean(1) @ params["o"]


def products_summed(params, inputs):
    return jnp.tanh((inputs[..., None] * params["w"]).sum(1)) @ params["o"]


def branching(params, inputs):
    def one(row):
        return lax.cond(row[0] > 0, lambda r: r @ params["w"], lambda r: r @ params["rows"][:4], row)

    return jax.vmap(one)(inputs) @ params["o"]


def normalised(values):
    return values / jnp.sqrt((values**2).sum(-1, keepdims=True))


def transformer(params, inputs):
    hidden = normalised(params["rows"][jnp.argmax(inputs, -1)] + params["places"]) * params["gain"]
    scores = hidden @ params["w"] @ hidden.swapaxes(1, 2) + params["bias"]
    hidden = normalised(hidden + jax.nn.softmax(scores) @ hidden @ params["w"]) * params["places"]
    return normalised(hidden).mean(1) @ params["o"]


PARAMS = weights(w=(4, 4), o=(4, 3), experts=(4, 4, 4), rows=(6, 4), places=(5, 4), bias=(5, 5), gain=(4,))


def summarized(apply, batch):
    def run(params, inputs, targets):
        return lai_jax.summarize(apply, params, cross_entropy, inputs, targets, estimator="lai")

    return jax.eval_shape(run, PARAMS, *batch)


@pytest.mark.parametrize(
    ("apply", "batch", "names"),
    [
        (routed, TOKENS, ["'experts' (used by gather)"]),
        (products_summed, classified(3), ["'w' (used by mul)"]),
        (branching, classified(3), ["'w' (used by select_n)", "'rows' (used by select_n)"]),
    ],
)
def test_matrices_without_readout_are_named(apply, batch, names):
    with pytest.warns(UserWarning, match="no readout") as caught:
        summarized(apply, batch)
    assert all(name in str(caught[0].message) for name in names)


def test_tables_and_gains_raise_no_warning():
    summarized(transformer, TOKENS)  # or a warning would fail the test
