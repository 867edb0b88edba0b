"""Exact scores by forward mode: at the start, at the midpoint, through any optimizer."""

import itertools
import math
from functools import partial

import jax
import jax.flatten_util
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

from tests.lai_jax.oracle import drawn, gradients, squares
from tests.lai_jax.support import compiled

exact_scores = partial(compiled, lai_jax.exact_scores)


def dense(params, inputs):
    return jnp.tanh(inputs @ params["w"] + params["b"]) @ params["o"]


PARAMS = {"w": drawn(4, 5), "b": drawn(5), "o": drawn(5, 3)}
VALIDATION, TRAINING = (drawn(3, 4, seed=1), drawn(3, seed=1)), (drawn(6, 4, seed=2), drawn(6, seed=2))


def test_scores_are_inner_products_of_gradients():
    left, right = (gradients(dense, PARAMS, squares, batch) for batch in (VALIDATION, TRAINING))
    scores = jax.jit(lambda p: lai_jax.exact_scores(dense, p, squares, VALIDATION, TRAINING))(PARAMS)
    np.testing.assert_allclose(scores, left.sum(0) @ right.T, rtol=1e-12)


def test_loops_need_no_layers_to_be_found():
    params, validation = {"w": drawn(4, 4) / 2}, (drawn(2, 4, seed=3), drawn(2))

    def unrolled(params, inputs):
        return jnp.tanh(jnp.tanh(inputs @ params["w"]) @ params["w"])

    expected = exact_scores(unrolled, params, squares, validation, TRAINING)

    def fixed(params, inputs):
        return jax.lax.fori_loop(0, 2, lambda _, h: jnp.tanh(h @ params["w"]), inputs)

    found = exact_scores(fixed, params, squares, validation, TRAINING)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_function_without_forward_mode_is_differentiated_twice_backwards():
    @jax.custom_vjp
    def squashed(values):
        return jnp.tanh(values)

    squashed.defvjp(lambda v: (jnp.tanh(v), jnp.tanh(v)), lambda out, g: (g * (1 - out**2),))

    def apply(params, inputs):
        return squashed(inputs @ params["w"] + params["b"]) @ params["o"]

    found = exact_scores(apply, PARAMS, squares, VALIDATION, TRAINING)
    expected = exact_scores(dense, PARAMS, squares, VALIDATION, TRAINING)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def ruled(backward):
    """Return a model whose activation has a backward rule of its own."""

    @jax.custom_vjp
    def squashed(values):
        return jnp.tanh(values)

    squashed.defvjp(lambda v: (jnp.tanh(v), jnp.tanh(v)), backward)
    return lambda params, inputs: squashed(inputs @ params["w"] + params["b"]) @ params["o"]


@pytest.mark.parametrize("wrapped", [lambda function: function, jax.jit])
def test_a_rule_that_clips_gradients_is_scored_by_the_gradients_it_gives(wrapped):
    clipped = ruled(lambda out, g: (jnp.clip(g * (1 - out**2), -1.0, 1.0),))
    found = wrapped(lambda p: lai_jax.exact_scores(clipped, p, squares, VALIDATION, TRAINING))(PARAMS)
    left, right = (gradients(clipped, PARAMS, squares, batch) for batch in (VALIDATION, TRAINING))
    np.testing.assert_allclose(found, left.sum(0) @ right.T, rtol=1e-12)
    unclipped = exact_scores(dense, PARAMS, squares, VALIDATION, TRAINING)
    assert not np.allclose(found, unclipped, rtol=0.1)


def test_a_rule_that_looks_at_other_samples_is_refused():
    normed = ruled(lambda out, g: (g * (1 - out**2) / jnp.linalg.norm(g),))
    with pytest.raises(ValueError, match="a derivative rule depends on other samples of the batch"):
        lai_jax.exact_scores(normed, PARAMS, squares, VALIDATION, TRAINING)


def test_selfcheck_sees_derivatives_that_are_not_the_gradient(monkeypatch):
    assert lai_jax.selfcheck(dense, PARAMS, squares, *TRAINING).exact < 1e-13

    def cut(losses, at, batch, direction):
        values, slopes = jax.jvp(lambda leaves: losses(leaves, batch), (at,), (direction,))
        return values, slopes.at[0].multiply(0.9)

    monkeypatch.setattr("lai_jax._exact.directional.forward_mode", cut)
    assert lai_jax.selfcheck(dense, PARAMS, squares, *TRAINING).exact > 1e-4
    found = lai_jax.exact_scores(dense, PARAMS, squares, VALIDATION, TRAINING)  # by another method
    left, right = (gradients(dense, PARAMS, squares, batch) for batch in (VALIDATION, TRAINING))
    np.testing.assert_allclose(found, left.sum(0) @ right.T, rtol=1e-12)


def shapley(params, rate):
    """One-step Shapley values by enumeration: how much each sample's gradient lowers the validation loss."""
    parts = gradients(dense, params, squares, TRAINING)[:4]
    count = parts.shape[0]
    flat, restored = jax.flatten_util.ravel_pytree(params)
    utility = jax.jit(lambda step: -squares(dense(restored(flat - step), VALIDATION[0]), VALIDATION[1]).sum())
    value = {
        members: float(utility(rate * sum((parts[j] for j in members), jnp.zeros_like(flat))))
        for size in range(count + 1)
        for members in itertools.combinations(range(count), size)
    }
    found = np.zeros(count)
    for j in range(count):
        for members in value:
            if j not in members:
                weight = math.factorial(len(members)) * math.factorial(count - len(members) - 1)
                joined = tuple(sorted((*members, j)))
                found[j] += weight / math.factorial(count) * (value[joined] - value[members])
    return found / rate


def test_the_midpoint_is_the_one_step_shapley_value_to_second_order():
    batch = tuple(side[:4] for side in TRAINING)
    errors = []
    for rate in (2e-3, 1e-3):
        exact = shapley(PARAMS, rate)
        options = {"at": "midpoint", "learning_rate": rate, "reduction": "sum"}
        middle = exact_scores(dense, PARAMS, squares, VALIDATION, batch, **options)
        start = exact_scores(dense, PARAMS, squares, VALIDATION, batch)
        errors.append(np.abs(np.asarray(middle) - exact).max())
        assert errors[-1] < 0.1 * np.abs(np.asarray(start) - exact).max()
    assert 3.0 < errors[0] / errors[1] < 5.0  # halving the step divides the error by four


def test_the_midpoint_is_exact_for_a_quadratic_loss():
    def apply(params, inputs):
        return inputs @ params

    point, rate = drawn(4, 3), 0.01
    batch = tuple(side[:3] for side in TRAINING)
    options = {"at": "midpoint", "learning_rate": rate, "reduction": "mean"}
    found = exact_scores(apply, point, squares, VALIDATION, batch, **options)
    parts = gradients(apply, point, squares, batch)
    middle = point - 0.5 * rate * parts.mean(0).reshape(point.shape)
    np.testing.assert_allclose(
        found, parts @ gradients(apply, middle, squares, VALIDATION).sum(0), rtol=1e-12
    )


OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "clipped adamw": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01, weight_decay=0.1)),
    "adafactor": lambda: optax.adafactor(0.05, min_dim_size_to_factor=2),
    "lamb": lambda: optax.lamb(0.02),
}


@pytest.mark.parametrize(
    ("name", "at"), [*((name, "start") for name in OPTIMIZERS), ("clipped adamw", "midpoint")]
)
def test_any_optimizer_is_scored_by_the_derivative_of_its_own_step(name, at):
    tx = OPTIMIZERS[name]()
    state = tx.init(PARAMS)

    def weighted(params, weights):
        return (squares(dense(params, TRAINING[0]), TRAINING[1]) * weights).sum()

    gradient = jax.jit(jax.grad(weighted))
    for seed in range(2):  # a state that has seen something
        _, state = jax.jit(tx.update)(gradient(PARAMS, drawn(6, seed=seed) ** 2), state, PARAMS)

    @jax.jit
    def after(weights):
        updates, _ = tx.update(jax.grad(weighted)(PARAMS, weights), state, PARAMS)
        return squares(dense(optax.apply_updates(PARAMS, updates), VALIDATION[0]), VALIDATION[1]).sum()

    weights, step = jnp.full(6, 1 / 6 if at == "start" else 1 / 12), 1e-5
    differences = [
        float(after(weights.at[j].add(-step)) - after(weights.at[j].add(step))) / (2 * step) for j in range(6)
    ]
    found = exact_scores(dense, PARAMS, squares, VALIDATION, TRAINING, at=at, optimizer=(tx, state))
    np.testing.assert_allclose(found, differences, rtol=1e-5, atol=1e-7 * np.abs(differences).max())


def test_plain_sgd_per_unit_learning_rate_is_scored_where_it_arrives():
    tx = optax.sgd(0.1)
    found = exact_scores(
        dense, PARAMS, squares, VALIDATION, TRAINING, optimizer=(tx, tx.init(PARAMS)), learning_rate=0.1
    )
    parts = gradients(dense, PARAMS, squares, TRAINING)
    flat, restored = jax.flatten_util.ravel_pytree(PARAMS)
    arrived = restored(flat - 0.1 * parts.mean(0))
    np.testing.assert_allclose(
        found, parts @ gradients(dense, arrived, squares, VALIDATION).sum(0), rtol=1e-10
    )
