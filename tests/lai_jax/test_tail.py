"""Where the way back can begin: behind the last use of a parameter, at what the loss makes of the outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lai_jax._program.evaluate import run
from lai_jax._program.model import final_layers, read
from lai_jax._program.tail import last_part, tail_of

from tests.lai_jax.oracle import drawn

PARAMS = {"w": drawn(4, 3), "b": drawn(3, seed=1), "heat": jnp.array(2.0)}


def logits(params, inputs):
    return inputs @ params["w"]


def cross_entropy(outputs, targets):
    return -jax.nn.log_softmax(outputs)[jnp.arange(len(targets)), targets]


CASES = {
    "the layer's output": (logits, cross_entropy, lambda p, x: x @ p["w"]),
    "behind its bias": (lambda p, x: x @ p["w"] + p["b"], cross_entropy, lambda p, x: x @ p["w"] + p["b"]),
    "behind a temperature": (
        lambda p, x: jnp.exp(p["heat"]) * (x @ p["w"]),
        cross_entropy,
        lambda p, x: jnp.exp(p["heat"]) * (x @ p["w"]),
    ),
    "nowhere": (
        lambda p, x: (own := x @ p["w"], own * p["b"]),
        lambda outputs, targets: cross_entropy(outputs[0], targets) + (outputs[1] ** 2).sum(-1),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_part_begins_where_no_parameter_is_left(name):
    apply, loss, value = CASES[name]
    inputs, targets = drawn(6, 4, seed=2), jnp.arange(6) % 3
    model = read(apply, PARAMS, loss, inputs, targets)
    part = last_part(model.program, tail_of(model.program, final_layers(model.program)[0]), model.trainable)
    if value is None:
        assert part is None
        return
    slots = {}
    run(model.program, model.arguments, {}, frozenset(), slots)
    expected = value(PARAMS, inputs)
    np.testing.assert_allclose(slots[part.start], expected, rtol=1e-6)
    gradient = jax.grad(lambda outputs: cross_entropy(outputs, targets).sum())(expected)
    np.testing.assert_allclose(part.pulled_back(slots), gradient, rtol=1e-4, atol=1e-6)
