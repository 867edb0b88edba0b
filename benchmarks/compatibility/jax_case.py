"""What JAX itself says of a case, and what the JAX adapter does; a small net around a layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np

import lai_core as lai
from benchmarks.compatibility import judge
from benchmarks.compatibility.judge import Array, Batch, Side
from tests.support.workloads.jax_oracle import gradients, one

LAYERS = ("embed/w", "head/w")
"""What LAI sees around what a case is about; the last one is the last layer."""
WIDTH, CLASSES, TRAINING, VALIDATION = 3, 2, 3, 2


@dataclass(kw_only=True)
class Case(judge.Case):
    """A function and its parameters.

    `seen(params, inputs)` returns of one sample's program the input of each of `LAYERS`, which LAI should
    see, each with a bias; None: LAI is not judged.
    """

    apply: Callable[..., Any]
    params: dict[str, Any]
    seen: Callable[[Any, Any], Sequence[Any]] | None = None

    def differentiate(self, batch: Batch) -> Side:
        """Return `jax.grad` of one sample's loss at a time, by keys of the parameters."""
        whole = gradients(self.apply, self.params, self.loss, batch)
        sizes = [
            sum(leaf.size * (1 + jnp.iscomplexobj(leaf)) for leaf in jax.tree.leaves(self.params[key]))
            for key in sorted(self.params)
        ]
        parts = np.split(whole, np.cumsum(sizes)[:-1], axis=1)
        side = Side({key: part for key, part in zip(sorted(self.params), parts, strict=True) if part.size})
        if self.seen is None:
            return side
        inputs, targets = batch
        read = jax.jit(self.seen)
        rows = [read(self.params, one(inputs, i)) for i in range(len(targets))]
        outputs = jax.jit(self.apply)(self.params, inputs)
        side.last = np.asarray(jax.jit(jax.grad(lambda o, t: self.loss(o, t).sum()))(outputs, targets))
        # LAI reads no input of a layer that is frozen or reaches no loss
        moved = {name: bool(side.gradients[name.removesuffix("/w")].any()) for name in LAYERS}
        read_of = zip(LAYERS, map(np.concatenate, zip(*rows, strict=True)), strict=True)
        kept = {name: values for name, values in read_of if moved[name]}
        side.names, side.inputs = [(name, True) for name in kept], [*kept.values()]
        return side

    def losses(self, batch: Batch) -> Array:
        return np.asarray(self._losses(self.params, *batch))

    @cached_property
    def _losses(self) -> Any:
        return jax.jit(lambda *given: self.loss(self.apply(*given[:2]), given[2]))

    def one(self, batch: Batch, index: int) -> Batch:
        cut: Batch = one(batch, index)
        return cut

    def check(self, training: Side) -> None:
        """Refuse nothing: a function of JAX has one gradient."""

    def trace(self, batch: Batch, **options: Any) -> lai.Trace:
        def run(params: Any, inputs: Any, targets: Any) -> lai.Trace:
            return lai_jax.trace(self.apply, params, self.loss, inputs, targets, **options)

        traced: lai.Trace = jax.jit(run)(self.params, *batch)
        return traced

    def exact_scores(self) -> Any:
        def run(params: Any, validation: Batch, training: Batch) -> Any:
            return lai_jax.exact_scores(self.apply, params, self.loss, validation, training)

        return jax.jit(run)(self.params, self.validation, self.training)


def draw(rng: np.random.Generator, *shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape))


def draw_dense(rng: np.random.Generator, width: int, outputs: int) -> dict[str, Any]:
    return {"w": draw(rng, width, outputs) / width**0.5, "b": draw(rng, outputs) / 4}


def apply_dense(params: dict[str, Any], inputs: Any) -> Any:
    return inputs @ params["w"] + params["b"]


def place_between(
    layer: Callable[[Any, Any], Any], own: Any, width: int, rng: np.random.Generator, outputs: int = CLASSES
) -> dict[str, Any]:
    """Return a case's `apply`, `head(layer(own, embed(x)))`, its `params`, and the inputs of embed and head.

    The layer takes `(n, width)` numbers between -1 and 1; `tanh` follows what it returns of each sample, and
    a division by a norm, so that head's gradients, which a layer in float32 rounds, hide no smaller ones.
    """
    params = {"embed": draw_dense(rng, WIDTH, width), "own": own}

    def features(params: Any, inputs: Any) -> Any:
        hidden = layer(params["own"], jnp.tanh(apply_dense(params["embed"], inputs))).reshape(len(inputs), -1)
        return jnp.tanh(hidden) / hidden.shape[1] ** 0.5

    size = jax.eval_shape(features, params, jnp.zeros((1, WIDTH))).shape[1]
    params["head"] = draw_dense(rng, size, outputs)
    params["head"]["w"] *= size**0.5

    def apply(params: Any, inputs: Any) -> Any:
        return apply_dense(params["head"], features(params, inputs))

    return {"apply": apply, "params": params, "seen": lambda params, x: [x, features(params, x)]}
