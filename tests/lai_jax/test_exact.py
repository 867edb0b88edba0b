"""Exact scores by forward mode: at the start, at the midpoint, through any optimizer."""

from functools import partial

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

from tests.lai_jax.support import computed, dense, drawn, gradients, ruled_by, squares, vectors, weights

exact_scores = partial(computed, lai_jax.exact_scores)
PARAMS, VALIDATION, TRAINING = weights(w=(4, 5), b=(5,), o=(5, 3)), vectors(3, seed=1), vectors(6, seed=2)
SIDES = VALIDATION, TRAINING


def inner_products(apply):
    left, right = (gradients(apply, PARAMS, squares, batch) for batch in SIDES)
    return left.sum(0) @ right.T


def solved(params, inputs):
    """Solve with a matrix that is said to be symmetric and is not: forward mode does not rely on that."""
    matrix = 9 * jnp.eye(4) + params["w"][:, :4]
    options = {"solve": lambda _, b: jnp.linalg.solve(matrix, b), "symmetric": True}
    each = jax.vmap(lambda row: jax.lax.custom_linear_solve(lambda x: matrix @ x, row, **options))
    return dense(params, each(inputs))


@ruled_by(lambda _, out, g: (jnp.clip(g * (1 - out**2), -1.0, 1.0),))
def clipped(values):
    return jnp.tanh(values)


def clipping(params, inputs):
    """Activate by a function whose backward rule is no derivative, and that has no forward mode."""
    return clipped(inputs @ params["w"] + params["b"]) @ params["o"]


@pytest.mark.equation("directional-derivative")
@pytest.mark.parametrize("apply", [solved, clipping])
def test_scores_are_inner_products_of_gradients(apply):
    found, expected = exact_scores(apply, PARAMS, squares, *SIDES), inner_products(apply)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not np.allclose(expected, inner_products(dense), rtol=0.1)


def test_reduced_precision_is_its_own_rounding():
    def reduced(params, inputs):
        return dense(params | {"w": jax.lax.reduce_precision(params["w"], 8, 7)}, inputs)

    expected = inner_products(reduced)  # of float64, but the gradients of w have eight bits
    for call in (exact_scores, lai_jax.exact_scores):
        found = call(reduced, PARAMS, squares, *SIDES)
        np.testing.assert_allclose(found, expected, atol=2**-7 * np.abs(expected).max())


def test_losses_with_nan_constants_are_scored():
    def focal(outputs, targets):  # its logsumexp with weights holds a NaN, which is unequal to itself
        labels = jax.nn.sigmoid(targets)[:, None] * jnp.ones_like(outputs)
        return optax.losses.sigmoid_focal_loss(outputs, labels).sum(1)

    left, right = (gradients(dense, PARAMS, focal, batch) for batch in SIDES)
    np.testing.assert_allclose(exact_scores(dense, PARAMS, focal, *SIDES), left.sum(0) @ right.T, rtol=1e-12)


def test_selfcheck_detects_wrong_derivatives(monkeypatch):
    assert lai_jax.selfcheck(dense, PARAMS, squares, *TRAINING).exact < 1e-13

    def cut(losses, at, batch, direction):
        values, slopes = jax.jvp(lambda leaves: losses(leaves, batch), (at,), (direction,))
        return values, slopes.at[0].multiply(0.9)

    monkeypatch.setattr("lai_jax._exact.methods.forward_mode", cut)
    assert lai_jax.selfcheck(dense, PARAMS, squares, *TRAINING).exact > 1e-4


def test_midpoint_is_exact_for_quadratics():
    def apply(params, inputs):
        return inputs @ params

    params = drawn(4, 3)
    parts = gradients(apply, params, squares, TRAINING)
    moved = params - 0.005 * parts.mean(0).reshape(4, 3)  # by half of the step
    found = exact_scores(apply, params, squares, *SIDES, at="midpoint", learning_rate=0.01)
    expected = parts @ gradients(apply, moved, squares, VALIDATION).sum(0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


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
def test_optimizers_are_scored_by_step_derivatives(name, at):
    tx = OPTIMIZERS[name]()
    gradient = jax.grad(lambda params, own: (squares(dense(params, TRAINING[0]), TRAINING[1]) * own).sum())

    def seen(params):  # a state that has seen something
        state = tx.init(params)
        for seed in range(2):
            _, state = tx.update(gradient(params, drawn(6, seed=seed) ** 2), state, params)
        return state

    state = jax.jit(seen)(PARAMS)

    def after(own):
        updates, _ = tx.update(gradient(PARAMS, own), state, PARAMS)
        return squares(dense(optax.apply_updates(PARAMS, updates), VALIDATION[0]), VALIDATION[1]).sum()

    own, step = np.full(6, 1 / 6 if at == "start" else 1 / 12), 1e-5
    loss = jax.jit(after)
    differences = [float(loss(own - move) - loss(own + move)) / (2 * step) for move in step * np.eye(6)]
    rate = {} if at == "midpoint" else {"learning_rate": 0.5}
    found = exact_scores(dense, PARAMS, squares, *SIDES, at=at, optimizer=(tx, state), **rate)
    found = found * rate.get("learning_rate", 1.0)
    np.testing.assert_allclose(found, differences, rtol=1e-5, atol=1e-7 * np.abs(differences).max())
