"""Some of the methods in JAX, by `lai_jax.curated_update`, on the runs of those in torch."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import torch
from torch import Tensor, nn

import lai_core as lai
from experiments.methods.base import METHODS, Run, Step
from experiments.methods.curated import keep_all, keep_negative

CURATED: dict[str, tuple[str, Any]] = {
    "Ghost": ("ghost", lai.keep_positive),
    "LAI": ("lai", lai.keep_positive),
    "LLI": ("lli", lai.keep_positive),
    "preconditioned LAI": ("preconditioned_lai", lai.keep_positive),
    "calibrated LAI": ("calibrated_lai", lai.keep_positive),
    "gate-corrected LAI": ("gate_lai", lai.keep_positive),
    "LAI as printed": ("lai", keep_negative),
    "plain, scored by LAI": ("lai", keep_all),
}
"""The estimator and the policy of each; any other method is plain training on the samples that it chooses."""


class Network(nn.Module):
    """A ReLU network whose parameters JAX holds and Adam trains; it is called as a torch network is."""

    def __init__(self, layers: nn.Sequential, learning_rate: float) -> None:
        super().__init__()
        params = [
            tuple(jnp.asarray(parameter.detach().numpy()) for parameter in (layer.weight, layer.bias))
            for layer in layers
            if isinstance(layer, nn.Linear)
        ]
        self.state: tuple[Any, Any, Any] = params, optax.adam(learning_rate).init(params), None
        """Parameters, Adam's moments, and what `preconditioned_lai` divides by."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs."""
        return torch.tensor(np.asarray(_network(self.state[0], inputs.numpy())))


def start(name: str) -> Callable[[Run], Step]:
    """Return the start of a method's run in JAX."""
    estimator, policy = CURATED.get(name, (None, None))

    def begin(run: Run) -> Step:
        if estimator is None:
            METHODS[name](run)  # chooses the samples
        validation = run.task.validation[0].numpy(), run.task.validation[1].numpy().astype(np.int32)
        run.model = network = Network(run.model, run.task.learning_rate)
        advance = _step(estimator, policy, run.task.learning_rate)

        def step(rows: Tensor) -> Tensor:
            inputs, targets = run.inputs[rows].numpy(), run.labels[rows].numpy().astype(np.int32)
            params, opt_state, moment = network.state
            if estimator == "preconditioned_lai" and moment is None:  # start from the first batch's own
                moment = _second_moment(params, inputs, targets)
            state = params, opt_state, moment
            network.state, scores, weights = advance(state, validation, inputs, targets)
            if scores is not None:
                run.scores[rows] = torch.tensor(np.asarray(scores))
            return torch.tensor(np.asarray(weights))

        return step

    return begin


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
def _step(estimator: str | None, policy: Any, learning_rate: float) -> Callable[..., Any]:
    """Compile a method's step once for all seeds."""
    tx = optax.adam(learning_rate)

    def plain(state: Any, validation: Any, inputs: jax.Array, targets: jax.Array) -> Any:
        params, opt_state, moment = state
        gradients = jax.grad(lambda given: _loss(_network(given, inputs), targets).mean())(params)
        updates, opt_state = tx.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state, moment), None, jnp.ones(len(inputs))

    if estimator is None:
        return jax.jit(plain)
    update = lai_jax.curated_update(_network, _loss, tx, estimator=estimator, policy=policy)

    def curated(state: Any, validation: Any, inputs: jax.Array, targets: jax.Array) -> Any:
        params, opt_state, moment = state
        fitted = {"calibration": len(inputs)} if estimator == "calibrated_lai" else {}
        summary = lai_jax.summarize(_network, params, _loss, *validation, estimator=estimator, **fitted)
        params, opt_state, told = update(params, opt_state, summary, inputs, targets, moment)
        return (params, opt_state, told.second_moment), told.scores, told.weights

    return jax.jit(curated)
