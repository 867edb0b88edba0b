"""What LAI's scores leave out, or hold too much of, is said when the validation set is summed up."""

import warnings

import jax
import jax.numpy as jnp
import lai_jax
import pytest
from jax import lax

from tests.lai_jax.support import classified, cross_entropy, drawn

FROZEN = {"w": drawn(4, 4), "v": drawn(4, 4)}
TOKENS = drawn(3, 5, 4), classified(3)[1]


def adapted(params, inputs):
    low_rank = inputs @ params["down"] @ params["up"]
    return jnp.tanh(inputs @ FROZEN["w"] + low_rank) @ FROZEN["v"]


def on_frozen_features(params, inputs):
    return jnp.tanh(jnp.tanh(inputs @ FROZEN["w"]) @ FROZEN["v"]) @ params["o"]


def with_a_frozen_layer(params, inputs):
    return jnp.tanh(jnp.tanh(inputs @ FROZEN["w"]) @ params["w"]) @ params["o"]


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
    "down": drawn(4, 1),
    "up": drawn(1, 4),
    "places": drawn(5, 4),
    "bias": drawn(5, 5),
    "gain": drawn(4),
    "square": drawn(3, 3),
}


def said(apply, batch, estimator="lai"):
    def summarized(params, inputs, targets):
        return lai_jax.summarize(apply, params, cross_entropy, inputs, targets, estimator=estimator)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.eval_shape(summarized, PARAMS, *batch)
    return " ".join(str(each.message) for each in caught)


@pytest.mark.parametrize(("apply", "share"), [(adapted, "2 of the 4"), (on_frozen_features, "2 of the 3")])
def test_a_model_that_is_mostly_frozen_is_named(apply, share):
    assert f"{share} layers whose inputs LAI reads are frozen" in said(apply, classified(3))
    assert not said(apply, classified(3), "ghost")
    if apply is on_frozen_features:  # weighs frozen layers by 0
        assert not said(apply, classified(3), "calibrated_lai")


def test_a_frozen_last_layer_is_refused_by_the_estimator_of_the_last_layer_alone():
    with pytest.raises(ValueError, match=r"'lli' scores the last layer alone, .*, which is frozen"):
        said(adapted, classified(3), "lli")


@pytest.mark.parametrize(
    ("apply", "batch", "names"),
    [
        (routed, TOKENS, ["'experts' (used by gather)"]),
        (near_prototypes, classified(3), ["'rows' (used by sub)"]),
        (products_summed, classified(3), ["'w' (used by mul)"]),
        (branching, classified(3), ["'w' (used by select_n)", "'rows' (used by select_n)"]),
    ],
)
def test_a_matrix_without_a_readout_is_named(apply, batch, names):
    words = said(apply, batch)
    assert all(name in words for name in names), words


@pytest.mark.parametrize(("apply", "batch"), [(transformer, TOKENS), (with_a_frozen_layer, classified(3))])
def test_tables_gains_and_places_are_no_matrices_and_half_may_be_frozen(apply, batch):
    assert not said(apply, batch)
