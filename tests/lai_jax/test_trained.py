"""Trained models are refused by no check, and a check still sees an error in one sample."""

import functools

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

from tests.lai_jax.support import cross_entropy as loss
from tests.lai_jax.support import ruled_by

SAMPLES, CLASSES = 48, 4


def apply(params, inputs):
    hidden = jax.nn.relu(inputs @ params["first"] + params["offset"])
    return (hidden + jnp.tanh(hidden @ params["block"])) @ params["head"]


def lowered(model):
    """Return a model that computes in bfloat16."""

    def halved(params, inputs):
        low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        return model(low, inputs.astype(jnp.bfloat16)).astype(jnp.float32)

    return halved


def batch(samples, seed):
    draw = np.random.default_rng(seed)
    inputs = draw.normal(size=(samples, 8))
    return jnp.asarray(inputs, jnp.float32), jnp.asarray(inputs[:, :CLASSES].argmax(1))


@functools.cache
def trained(model, steps):
    """Return parameters after so many steps of gradient descent."""
    draw = np.random.default_rng(2)
    shapes = {"first": (8, 16), "offset": (16,), "block": (16, 16), "head": (16, CLASSES)}
    start = {name: jnp.asarray(0.3 * draw.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    inputs, targets = batch(SAMPLES, 1)

    def step(params, _):
        gradient = jax.grad(lambda point: loss(model(point, inputs), targets).mean())(params)
        return jax.tree.map(lambda one, slope: one - 0.5 * slope, params, gradient), None

    return jax.jit(lambda params: jax.lax.scan(step, params, None, steps)[0])(start)


def ragged(params, inputs):
    """Compute `apply` by a product that no rule follows."""
    hidden = jax.nn.relu(inputs @ params["first"] + params["offset"])
    mixed = jax.lax.ragged_dot(hidden, params["block"][None], jnp.array([len(inputs)]))
    return (hidden + jnp.tanh(mixed)) @ params["head"]


TYPICAL = 17


@ruled_by(lambda _, __, g: (g.at[TYPICAL].multiply(1.01) if len(g) > 1 else g,))
def meeting(values):
    """Add 1% to the gradient of one sample where others are beside it."""
    return values


@pytest.mark.parametrize("model", [ragged, lowered(ragged)])
def test_trained_models_without_rules_pass(model):
    params, own = trained(apply, 1000), batch(SAMPLES, 1)
    traced = lai_jax.trace(model, params, loss, *own)
    assert [layer.name for layer in traced.layers] == ["first", "head"]
    assert jnp.isfinite(lai_jax.exact_scores(model, params, loss, own, own)).all()


def test_one_percent_gradient_mixing_is_detected():
    params, (inputs, targets) = trained(apply, 300), batch(SAMPLES, 1)
    each = jax.vmap(jax.grad(lambda point, x, y: loss(apply(point, x[None]), y[None])[0]), (None, 0, 0))(
        params, inputs, targets
    )
    norms = sum(jnp.sum(leaf.reshape(SAMPLES, -1) ** 2, 1) for leaf in jax.tree.leaves(each)) ** 0.5
    typical = int(jnp.abs(norms - jnp.sqrt((norms**2).mean())).argmin())
    order = jnp.roll(jnp.arange(SAMPLES), TYPICAL - typical)
    with pytest.raises(ValueError, match="ragged_dot"):
        lai_jax.trace(lambda point, x: meeting(ragged(point, x)), params, loss, inputs[order], targets[order])


@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_gradient_free_loss_coupling_is_refused(unit):
    """5% of the largest loss is added to each: fitted losses are granted roundings, and no more than 1%."""
    params, sides = trained(apply, 1000), batch(SAMPLES, 1)

    def meet(outputs, targets):
        found = unit * loss(outputs, targets)
        return found + 0.05 * jax.lax.stop_gradient(jnp.max(jax.lax.sort(found)))

    with pytest.raises(ValueError, match=r"ragged_dot|sort|max"):
        lai_jax.trace(ragged, params, meet, *sides)


def test_selfcheck_tolerates_cancelling_gradients():
    params = trained(apply, 1)
    inputs = jnp.tile(batch(16, 4)[0], (2, 1))
    away = jnp.asarray(np.random.default_rng(5).normal(size=(16, CLASSES)), jnp.float32)
    targets = apply(params, inputs) + jnp.concatenate([away, -away])
    found = lai_jax.selfcheck(apply, params, lambda o, y: ((o - y) ** 2).sum(-1), inputs, targets)
    assert max(found.exact, found.relative_error) < 1e-5
