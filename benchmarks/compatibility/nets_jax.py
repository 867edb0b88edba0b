"""What JAX's suites have in common: a small net around a layer, and numbers to draw."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.compatibility.judge_jax import BOUND, Batch, Case
from benchmarks.compatibility.verdicts import squares

WIDTH, CLASSES, TRAINING, VALIDATION = 3, 2, 3, 2


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    """Draw standard normal numbers."""
    return jnp.asarray(rng.standard_normal(shape))


def dense(rng: np.random.Generator, width: int, outputs: int) -> dict[str, Any]:
    """Draw the parameters of a dense layer."""
    return {"w": drawn(rng, width, outputs) / width**0.5, "b": drawn(rng, outputs) / 4}


def dot(params: dict[str, Any], inputs: Any) -> Any:
    """Apply a dense layer."""
    return inputs @ params["w"] + params["b"]


def batches(rng: np.random.Generator) -> list[Batch]:
    """Draw a training and a validation batch."""
    return [(drawn(rng, n, WIDTH), drawn(rng, n, CLASSES)) for n in (TRAINING, VALIDATION)]


def around(
    layer: Callable[[Any, Any], Any], own: Any, width: int, rng: np.random.Generator, outputs: int = CLASSES
) -> tuple[Any, Any, Any]:
    """Return `head(layer(own, embed(x)))`, its parameters, and the inputs of embed and head.

    The layer takes `(n, width)` numbers between -1 and 1; `tanh` follows what it returns of each sample.
    """
    params = {"embed": dense(rng, WIDTH, width), "own": own}

    def features(params: Any, inputs: Any) -> Any:
        hidden = layer(params["own"], jnp.tanh(dot(params["embed"], inputs)))
        return jnp.tanh(hidden.reshape(len(inputs), -1))

    size = jax.eval_shape(features, params, jnp.zeros((1, WIDTH))).shape[1]
    params["head"] = dense(rng, size, outputs)

    def apply(params: Any, inputs: Any) -> Any:
        return dot(params["head"], features(params, inputs))

    def seen(params: Any, inputs: Any) -> list[Any]:
        return [inputs, features(params, inputs)]

    return apply, params, seen


def between(
    layer: Callable[[Any, Any], Any],
    own: Any,
    width: int,
    rng: np.random.Generator,
    sides: list[Batch],
    bound: float = BOUND,
) -> Case:
    """Return the case of a layer between two others: it is about the layer's parameters, if it has some."""
    apply, params, seen = around(layer, own, width, rng)
    has_some = bool(jax.tree.leaves(own))
    about = ("own",) if has_some else ("embed",)
    return Case(apply, params, squares, *sides, about=about, seen=seen, only=has_some, bound=bound)
