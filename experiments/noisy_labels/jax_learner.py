"""The network in JAX, curated by `lai_jax.curated_update`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax

import lai_core as lai
from experiments.noisy_labels.data import Samples
from experiments.noisy_labels.recipe import POLICIES, Method, Recipe
from experiments.noisy_labels.training import Parameters


class JaxLearner:
    """A ReLU network that Adam trains, on whole batches or on what a curated update keeps of them."""

    def __init__(
        self, method: Method, training: Samples, validation: Samples, parameters: Parameters, recipe: Recipe
    ) -> None:
        self.inputs, self.targets = training.inputs, training.labels.astype(np.int32)
        self.validation = jnp.asarray(validation.inputs), jnp.asarray(validation.labels, dtype=jnp.int32)
        self.advance = _step(method, recipe.learning_rate)
        params = jax.tree.map(jnp.asarray, parameters)
        self.preconditioned = method.estimator == "preconditioned_lai"
        self.state = params, optax.adam(recipe.learning_rate).init(params), None

    def step(self, rows: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """Train on the rows."""
        params, opt_state, second_moment = self.state
        if self.preconditioned and second_moment is None:  # start from the first batch's own
            self.state = params, opt_state, _second_moment(params, self.inputs[rows], self.targets[rows])
        self.state, scores, weights = self.advance(
            self.state, self.validation, self.inputs[rows], self.targets[rows]
        )
        return None if scores is None else np.asarray(scores), np.asarray(weights) > 0

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the class with the largest output."""
        return np.asarray(_network(self.state[0], inputs).argmax(axis=1))

    def losses(self) -> np.ndarray:
        """Return the losses of the training samples."""
        return np.asarray(_loss(_network(self.state[0], self.inputs), self.targets))


make_learner = JaxLearner


@jax.jit
def _network(params: Any, inputs: jax.Array) -> jax.Array:
    for weight, bias in params[:-1]:
        inputs = jax.nn.relu(inputs @ weight.T + bias)
    weight, bias = params[-1]
    return inputs @ weight.T + bias


def _loss(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


@jax.jit
def _second_moment(params: Any, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    trace = lai_jax.trace(_network, params, _loss, inputs, targets)
    return lai.update_second_moment(None, trace.layers[-1].output_gradients)


@functools.cache
def _step(method: Method, learning_rate: float) -> Callable[..., Any]:
    """Compile a method's step once for all seeds."""
    tx = optax.adam(learning_rate)
    return jax.jit(_plain(tx) if method.estimator is None else _curated(method, method.estimator, tx))


def _plain(tx: optax.GradientTransformation) -> Callable[..., Any]:
    def step(state: Any, validation: Any, inputs: jax.Array, targets: jax.Array) -> Any:
        params, opt_state, second_moment = state
        gradients = jax.grad(lambda given: _loss(_network(given, inputs), targets).mean())(params)
        updates, opt_state = tx.update(gradients, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (params, opt_state, second_moment), None, jnp.ones(len(inputs))

    return step


def _curated(method: Method, estimator: str, tx: optax.GradientTransformation) -> Callable[..., Any]:
    update = lai_jax.curated_update(_network, _loss, tx, estimator=estimator, policy=POLICIES[method.keeps])

    def step(state: Any, validation: Any, inputs: jax.Array, targets: jax.Array) -> Any:
        params, opt_state, second_moment = state
        fitted = {"calibration": len(inputs)} if estimator == "calibrated_lai" else {}
        summary = lai_jax.summarize(_network, params, _loss, *validation, estimator=estimator, **fitted)
        params, opt_state, report = update(params, opt_state, summary, inputs, targets, second_moment)
        return (params, opt_state, report.second_moment), report.scores, report.weights

    return step
