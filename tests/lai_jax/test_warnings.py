"""What LAI's scores leave out is said when the validation set is summed up."""

import warnings

import jax
import jax.numpy as jnp
import lai_jax
import pytest
from jax import lax

from tests.lai_jax.support import classified, cross_entropy, drawn

TOKENS = drawn(3, 5, 4), classified(3)[1]


def routed(params, inputs):
    weights = jax.nn.softmax(inputs @ params["w"])
    best, experts = lax.top_k(weights, 2)
    hidden = jnp.einsum("ntd,ntkde,ntk->nte", inputs, params["experts"][experts], best)
    return hidden.mean(1) @ params["o"]


def near_prototypes(params, inputs):
    return -(((inputs @ params["w"])[:, None] - params["rows"][:3]) ** 2) @ jnp.ones(4) @ params["square"]


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


PARAMS = {
    "w": drawn(4, 4),
    "o": drawn(4, 3),
    "experts": drawn(4, 4, 4),
    "rows": drawn(6, 4),
    "places": drawn(5, 4),
    "bias": drawn(5, 5),
    "gain": drawn(4),
    "square": drawn(3, 3),
}


def said(apply, batch):
    def summarized(params, inputs, targets):
        return lai_jax.summarize(apply, params, cross_entropy, inputs, targets, estimator="lai")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.eval_shape(summarized, PARAMS, *batch)
    return " ".join(str(each.message) for each in caught)


@pytest.mark.parametrize(
    ("apply", "batch", "names"),
    [
        (routed, TOKENS, ["'experts' (used by gather)"]),
        (near_prototypes, classified(3), ["'rows' (used by sub)"]),
        (products_summed, classified(3), ["'w' (used by mul)"]),
        (branching, classified(3), ["'w' (used by select_n)", "'rows' (used by select_n)"]),
    ],
)
def test_matrices_without_readout_are_named(apply, batch, names):
    words = said(apply, batch)
    assert all(name in words for name in names), words


def test_tables_and_gains_raise_no_warning():
    assert not said(transformer, TOKENS)
