"""Small models of equinox, flax linen and flax nnx."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx

from tests.support.workloads.jax_parts import CLASSES, Model, classification, classified, next_token, tokens


def equinox_cnn() -> Model:
    """Take an equinox model: its arrays as parameters, the rest put back by `combine`."""
    keys = jax.random.split(jax.random.key(0), 3)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 6, 3, padding=1, groups=3, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(54, 5, key=keys[1]),
            eqx.nn.LayerNorm(5),
            eqx.nn.Lambda(jax.nn.gelu),
            eqx.nn.Linear(5, CLASSES, key=keys[2]),
        ]
    )
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def apply(params: Any, inputs: Any) -> Any:
        return jax.vmap(eqx.combine(params, static))(jnp.moveaxis(inputs, -1, 1))

    return Model(apply, params, classification, classified(6, 6, 3))


class _Linen(linen.Module):
    """Convolution, stored batch statistics, attention and a dense head."""

    @linen.compact
    def __call__(self, inputs: Any) -> Any:
        maps = linen.Conv(6, (3, 3), param_dtype=jnp.float64)(inputs)
        maps = linen.relu(linen.BatchNorm(use_running_average=True, param_dtype=jnp.float64)(maps))
        values = maps.reshape((maps.shape[0], -1, 6))
        values = values + linen.MultiHeadDotProductAttention(num_heads=2, param_dtype=jnp.float64)(
            values, values
        )
        return linen.Dense(CLASSES, param_dtype=jnp.float64)(values.mean(1))


def linen_attention() -> Model:
    """Take a flax linen model: batch statistics apart from the parameters."""
    module = _Linen()
    variables = module.init(jax.random.key(1), jnp.zeros((1, 4, 4, 3)))
    stored = {"batch_stats": variables["batch_stats"]}

    def apply(params: Any, inputs: Any) -> Any:
        return module.apply({"params": params, **stored}, inputs)

    return Model(apply, variables["params"], classification, classified(4, 4, 3))


class _Nnx(nnx.Module):
    """Embedding, layer norm, gated MLP, head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(9, 4, rngs=rngs, param_dtype=jnp.float64)
        self.norm = nnx.RMSNorm(4, rngs=rngs, param_dtype=jnp.float64)
        self.gate = nnx.Linear(4, 6, rngs=rngs, param_dtype=jnp.float64)
        self.up = nnx.Linear(4, 6, use_bias=False, rngs=rngs, param_dtype=jnp.float64)
        self.head = nnx.Linear(6, 9, rngs=rngs, param_dtype=jnp.float64)

    def __call__(self, ids: Any) -> Any:
        values = self.norm(self.embed(ids))
        return self.head(nnx.silu(self.gate(values)) * self.up(values))


def nnx_language_model() -> Model:
    """Take a flax nnx model: split into graph and state, merged in `apply`."""
    graph, params = nnx.split(_Nnx(nnx.Rngs(2)), nnx.Param)

    def apply(params: Any, ids: Any) -> Any:
        return nnx.merge(graph, params)(ids)

    return Model(apply, params, next_token, tokens(5, 9))
