"""Exact scores of positions, against one reverse pass a position."""

import re

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

from tests.lai_jax.oracle import drawn
from tests.lai_jax.support import cross_entropy as loss

PARAMS = {"e": drawn(5, 4), "w": drawn(4, 4, seed=1), "o": drawn(4, 5, seed=2)}


def causal(params, ids):
    """Predict each next token from the mean of those before."""
    read = params["e"][ids]
    count = jnp.arange(1, ids.shape[1] + 1)[:, None]
    return jnp.tanh(jnp.cumsum(read, 1) / count @ params["w"]) @ params["o"]


@jax.custom_vjp
def scaled(x):
    return x


scaled.defvjp(lambda x: (x, None), lambda _, g: (3 * g,))


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))


def batches(samples, length):
    generator = np.random.default_rng(samples)
    return [tuple(jnp.asarray(generator.integers(0, 5, (2, samples, length)))) for _ in range(2)]


def one_pass_each(apply, validation, training):
    direction = jax.grad(lambda p: loss(apply(p, validation[0]), validation[1]).sum())(PARAMS)
    samples, length = training[0].shape

    def score(j, t):
        own = jax.grad(lambda p: loss(apply(p, training[0][j : j + 1]), training[1][j : j + 1])[0, t])(PARAMS)
        return sum(jnp.vdot(own[name], direction[name]) for name in PARAMS)

    return [[float(score(j, t)) for t in range(length)] for j in range(samples)]


@pytest.mark.equation("position-score")
@pytest.mark.parametrize(("samples", "length"), [(1, 3), (3, 1), (3, 4)])
@pytest.mark.parametrize("rule", [None, scaled, clipped])
def test_each_position_scores_by_its_own_loss(samples, length, rule):
    """By forward mode, by reverse mode transposed, and by one gradient a position."""

    def apply(params, ids):
        outputs = causal(params, ids)
        return outputs if rule is None else rule(outputs)

    validation, training = batches(samples, length)
    found = lai_jax.exact_scores(apply, PARAMS, loss, validation, training, per_position=True)
    np.testing.assert_allclose(found, one_pass_each(apply, validation, training), rtol=1e-10, atol=1e-13)


def test_positions_add_up_to_samples_under_jit():
    validation, training = batches(3, 4)
    compiled = jax.jit(
        lambda p: lai_jax.exact_scores(causal, p, loss, validation, training, per_position=True)
    )
    summed = lai_jax.exact_scores(causal, PARAMS, lambda o, t: loss(o, t).sum(1), validation, training)
    np.testing.assert_allclose(compiled(PARAMS).sum(1), summed, rtol=1e-10)


def test_the_midpoint_takes_half_the_step_of_the_samples_mean_loss():
    validation, training = batches(3, 4)
    options = {"at": "midpoint", "learning_rate": 0.3}
    found = lai_jax.exact_scores(causal, PARAMS, loss, validation, training, per_position=True, **options)
    summed = lai_jax.exact_scores(
        causal, PARAMS, lambda o, t: loss(o, t).sum(1), validation, training, **options
    )
    np.testing.assert_allclose(found.sum(1), summed, rtol=1e-10)


def test_positions_may_see_one_another_and_samples_may_not():
    validation, training = batches(3, 4)
    with pytest.raises(ValueError, match="samples are coupled"):
        lai_jax.exact_scores(
            causal, PARAMS, lambda o, t: loss(o - o.mean(0), t), validation, training, per_position=True
        )


def test_a_loss_without_positions_is_refused():
    validation, training = batches(3, 4)
    message = "loss: expected one number a position, shape (3, t), where per_position=True, got shape (3,)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        lai_jax.exact_scores(
            causal, PARAMS, lambda o, t: loss(o, t).sum(1), validation, training, per_position=True
        )
