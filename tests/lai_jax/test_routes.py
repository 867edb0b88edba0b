"""Routes for models with positions: what each takes, counted by hand."""

import jax
import jax.numpy as jnp
import lai_jax
import pytest
from jax import lax
from lai_jax.routes import forward_cost

from tests.lai_jax.support import dense, drawn, weights

PLACES, OUTPUTS = 4, 40
PARAMS = weights(w=(3, 5), b=(5,), o=(5, OUTPUTS))
ONCE, SCORING = 3 * 5 + 5 * OUTPUTS, OUTPUTS * (3 + 5 + 1)  # a position; one bias


def apply(params, inputs, flip):
    return dense(params, inputs[..., ::-1] if flip else inputs)


def loss(outputs, targets):
    return ((outputs - targets[:, None, None]) ** 2).sum((1, 2))


def test_shapes_alone_determine_routes():
    """What routes take is held to torch's, in test_torch_agreement."""
    given = PARAMS, {"inputs": drawn(3, PLACES, 3), "flip": True}, drawn(3)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (given[0], given[2]))
    inputs = {"inputs": jax.ShapeDtypeStruct((3, PLACES, 3), given[1]["inputs"].dtype), "flip": True}
    found, expected = (
        lai_jax.routes(apply, params, loss, batch, targets, sketches=[10, 400])
        for params, batch, targets in ((shapes[0], inputs, shapes[1]), given)
    )
    assert found == expected
    assert [(route.positions, route.sketch) for route in found][-1] == ("tokens", 10)
    assert expected[0].forwards == pytest.approx(SCORING / ONCE)


def scanned(params, inputs):
    step = jax.checkpoint(lambda carry, w: (jnp.tanh(carry @ w), None))
    return lax.scan(step, inputs, params["stack"])[0]


def branching(params, inputs):
    ways = (lambda x: x @ params["a"] @ params["b"], lambda x: x @ params["c"])
    return lax.cond(params["c"][0, 0] > 0, *ways, inputs)


def wasteful(params, inputs):
    _ = inputs @ params["c"]
    return jax.jit(jax.nn.relu)(inputs @ params["c"])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (scanned, 7 * 10 * 3 * 3),
        (branching, 7 * (3 * 6 + 6 * 4)),
        (wasteful, 7 * 3 * 4),
        (lambda params, x: jax.vmap(lambda one: params["c"].T @ one)(x), 7 * 3 * 4),
    ],
    ids=["scan", "cond", "unused", "vmap"],
)
def test_forward_costs_count_repeated_products(function, expected):
    params = {"stack": drawn(10, 3, 3), "a": drawn(3, 6), "b": drawn(6, 4), "c": drawn(3, 4)}
    assert forward_cost(function, params, drawn(7, 3)) == expected
