"""What small JAX models are made of: losses, batches, and the parts of a transformer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CLASSES = 3


@dataclass(frozen=True)
class Model:
    """A function, its parameters, its loss, and how to draw a batch of n samples."""

    apply: Callable[..., Any]
    params: Any
    loss: Callable[..., Any]
    batch: Callable[[np.random.Generator, int], tuple[Any, Any]]


def classification(outputs: Any, targets: Any) -> Any:
    return -jax.nn.log_softmax(outputs)[jnp.arange(targets.shape[0]), targets]


def next_token(outputs: Any, targets: Any) -> Any:
    """Cross-entropy of each sample's next tokens, summed; -1 marks padding."""
    scored = jnp.take_along_axis(jax.nn.log_softmax(outputs), jnp.maximum(targets, 0)[..., None], -1)[..., 0]
    return -jnp.sum(jnp.where(targets >= 0, scored, 0.0), axis=-1)


def drawn(seed: int) -> Callable[..., Any]:
    """Return what draws parameters of a shape, scaled by its first axis."""
    draw = np.random.default_rng(seed)
    return lambda *shape: jnp.asarray(draw.standard_normal(shape) / np.sqrt(max(shape[0], 1)))


def shaped(draw: Callable[..., Any], **shapes: tuple[int, ...]) -> dict[str, Any]:
    """Draw parameters of these shapes, by name."""
    return {name: draw(*shape) for name, shape in shapes.items()}


def classified(*shape: int, classes: int = CLASSES) -> Callable[..., tuple[Any, Any]]:
    """Return what draws arrays of a shape, one a sample, and their classes."""

    def batch(draw: np.random.Generator, samples: int) -> tuple[Any, Any]:
        inputs = draw.standard_normal((samples, *shape))
        return jnp.asarray(inputs), jnp.asarray(draw.integers(0, classes, samples))

    return batch


def tokens(length: int, vocabulary: int) -> Callable[..., tuple[Any, Any]]:
    """Return what draws token ids and the next ones, of the first sample's the last two padded."""

    def batch(draw: np.random.Generator, samples: int) -> tuple[Any, Any]:
        ids = draw.integers(0, vocabulary, (samples, length + 1))
        targets = ids[:, 1:].copy()
        targets[0, -2:] = -1
        return jnp.asarray(ids[:, :-1]), jnp.asarray(targets)

    return batch


def layer_norm(values: Any, gain: Any, offset: Any) -> Any:
    centred = values - values.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + offset


def attention(values: Any, block: Any, heads: int, reach: int | None = None) -> Any:
    """Attend to what came before, at most `reach` positions back."""
    samples, length, width = values.shape
    query, key, value = jnp.split(values @ block["qkv"] + block["qkv_bias"], 3, axis=-1)
    shape = (samples, length, heads, width // heads)
    query, key, value = query.reshape(shape), key.reshape(shape), value.reshape(shape)
    scores = jnp.einsum("nthk,nshk->nhts", query, key) / np.sqrt(width // heads)
    seen = jnp.tril(jnp.ones((length, length), bool))
    if reach is not None:
        seen = seen & jnp.triu(jnp.ones((length, length), bool), 1 - reach)
    scores = jnp.where(seen, scores, -1e9)
    mixed = jnp.einsum("nhts,nshk->nthk", jax.nn.softmax(scores), value).reshape(values.shape)
    return mixed @ block["proj"] + block["proj_bias"]


def apply_block(values: Any, block: Any, heads: int, reach: int | None = None) -> Any:
    values = values + attention(layer_norm(values, block["g1"], block["o1"]), block, heads, reach)
    hidden = jax.nn.gelu(layer_norm(values, block["g2"], block["o2"]) @ block["up"] + block["up_bias"])
    return values + (hidden @ block["down"] + block["down_bias"])


def block_params(draw: Callable[..., Any], width: int, factor: int = 2) -> dict[str, Any]:
    inner = factor * width
    params = shaped(draw, o1=(width,), qkv=(width, 3 * width), qkv_bias=(3 * width,), proj=(width, width))
    params |= shaped(draw, proj_bias=(width,), o2=(width,), up=(width, inner), up_bias=(inner,))
    params |= shaped(draw, down=(inner, width), down_bias=(width,))
    return params | {"g1": 1.0 + 0.1 * draw(width), "g2": 1.0 + 0.1 * draw(width)}
