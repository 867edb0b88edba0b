"""What tests of the JAX adapter are built on: a model, losses, batches, an oracle, compiled calls."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax

import lai_core as lai
from tests.support.fixtures import HALF
from tests.support.jax_programs import losses as squares
from tests.support.workloads.jax_oracle import Batch, flat, gradients, run_compiled

__all__ = ["HALF", "flat", "gradients", "run_compiled", "squares"]

SGD = optax.sgd(0.1)
Model = tuple[Callable[..., Any], Any, Callable[..., Any]]
"""A function, its parameters and a loss."""


def drawn(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))


def weights(**shapes: tuple[int, ...]) -> dict[str, jax.Array]:
    return {name: drawn(*shape) for name, shape in shapes.items()}


def vectors(samples: int, seed: int = 0) -> Batch:
    return drawn(samples, 4, seed=seed), drawn(samples, seed=seed)


def classified(samples: int, seed: int = 0) -> Batch:
    classes = np.random.default_rng([seed, samples]).integers(0, 3, samples)
    return drawn(samples, 4, seed=seed), jnp.asarray(classes)


def dense(params: Any, inputs: Any) -> Any:
    """Apply two layers, the first with a bias where there is one."""
    return jnp.tanh(inputs @ params["w"] + params.get("b", 0.0)) @ params["o"]


def ruled_by(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function a backward rule: of what it is given, what it returns, and the gradient of that."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*given: Any) -> Any:
            found = function(*given)
            return found, (*given, found)

        own = jax.custom_vjp(function)
        own.defvjp(forward, lambda kept, g: backward(*kept, g))
        return own

    return decorate


def cross_entropy(outputs: Any, targets: Any) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


def computed(function: Callable[..., Any], apply: Any, params: Any, *others: Any, **options: Any) -> Any:
    """Call a function of the adapter on parameters that are traced, and return what it returns in numpy."""
    return run_compiled(lambda params: function(apply, params, *others, **options), params)


def stepped(model: Model, validation: Any, batch: Batch, *moment: Any, **how: Any) -> Any:
    """Take a curated step against a validation set, or its summary: new parameters, their state, a report.

    Of the options, `side` are those of the summary alone, and `tx` is the optimizer.
    """
    (apply, params, loss), side, tx = model, how.pop("side", {}), how.pop("tx", SGD)
    side = {name: how[name] for name in ("estimator", "last", "valid") if name in how} | side
    update = lai_jax.curated_update(apply, loss, tx, **how)

    def run(params: Any) -> Any:
        summary = validation
        if isinstance(validation, tuple):
            summary = lai_jax.summarize(apply, params, loss, *validation, **side)
        return update(params, tx.init(params), summary, *batch, *moment)

    return run_compiled(run, params)


def relative(found: Any, expected: Any) -> float:
    """Return the largest difference over the largest entry."""
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300))


def kernel_error(trace: lai.Trace, rows: np.ndarray) -> float:
    """Return the largest error of Ghost's kernel of a trace with itself, over the largest exact entry."""
    return relative(np.asarray(lai.ghost_kernel(trace, trace)), rows @ rows.T)


def explained(apply: Any, params: Any, loss: Any, batch: Batch) -> list[str]:
    """Return the names of the layers that LAI reads; nothing is computed."""
    trace = jax.eval_shape(lambda params: lai_jax.trace(apply, params, loss, *batch), params)
    return [layer.name for layer in trace.layers]
