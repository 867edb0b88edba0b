"""Models with the same weights in Torch and in JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch import nn
from torch.nn import functional

from workloads.jax_parts import layer_norm

SAMPLES = (5, 4)


@dataclass(frozen=True)
class Pair:
    """One model in both frameworks, and batches as numpy arrays."""

    module: nn.Module
    torch_loss: Callable[..., Any]
    apply: Callable[..., Any]
    params: Any
    jax_loss: Callable[..., Any]
    batches: list[tuple[Any, Any]]


def _parameters(module: nn.Module) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value.detach().numpy()) for name, value in module.named_parameters()}


def _torch_classes(outputs: Any, targets: Any) -> Any:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _torch_tokens(outputs: Any, targets: Any) -> Any:
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").sum(1)


def _jax_classes(outputs: Any, targets: Any) -> Any:
    return -jax.nn.log_softmax(outputs)[jnp.arange(targets.shape[0]), targets]


def _jax_tokens(outputs: Any, targets: Any) -> Any:
    scored = jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[..., None], -1)
    return -scored[..., 0].sum(-1)


def mlp() -> Pair:
    """Three linear layers."""
    module = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3)).double()

    def apply(params: Any, inputs: Any) -> Any:
        for index in (0, 2):
            inputs = jnp.tanh(inputs @ params[f"{index}.weight"].T + params[f"{index}.bias"])
        return inputs @ params["4.weight"].T + params["4.bias"]

    draw = np.random.default_rng(0)
    batches = [(draw.standard_normal((n, 6)), draw.integers(0, 3, n)) for n in SAMPLES]
    return Pair(module, _torch_classes, apply, _parameters(module), _jax_classes, batches)


def cnn() -> Pair:
    """Two convolutions, one of them grouped and strided, and a linear head."""
    module = nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, groups=2),
        nn.ReLU(),
        nn.Conv2d(6, 5, (3, 2), stride=2, dilation=(1, 2), bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(5, 3),
    ).double()

    def apply(params: Any, maps: Any) -> Any:
        numbers = ("NCHW", "OIHW", "NCHW")
        maps = lax.conv_general_dilated(
            maps,
            params["0.weight"],
            (1, 1),
            ((1, 1), (1, 1)),
            feature_group_count=2,
            dimension_numbers=numbers,
        )
        maps = jax.nn.relu(maps + params["0.bias"][:, None, None])
        maps = lax.conv_general_dilated(
            maps, params["2.weight"], (2, 2), "VALID", rhs_dilation=(1, 2), dimension_numbers=numbers
        )
        return jax.nn.relu(maps).mean((2, 3)) @ params["6.weight"].T + params["6.bias"]

    draw = np.random.default_rng(1)
    batches = [(draw.standard_normal((n, 4, 8, 7)), draw.integers(0, 3, n)) for n in SAMPLES]
    return Pair(module, _torch_classes, apply, _parameters(module), _jax_classes, batches)


class _Gpt(nn.Module):
    """Two pre-norm blocks, learned positions, tied head."""

    def __init__(self, vocabulary: int = 11, width: int = 8, length: int = 6, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n1": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "proj": nn.Linear(width, width),
                    "n2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Any) -> Any:
        """Return the logits."""
        values = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            query, key, value = (
                part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for part in block["qkv"](block["n1"](values)).chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            values = values + block["proj"](mixed.transpose(1, 2).flatten(2))
            values = values + block["down"](functional.gelu(block["up"](block["n2"](values))))
        return self.head(self.norm(values))


def gpt() -> Pair:
    """Predict tokens with a tied head."""
    module = _Gpt().double()

    def linear(params: Any, name: str, values: Any) -> Any:
        return values @ params[f"{name}.weight"].T + params[f"{name}.bias"]

    def norm(params: Any, name: str, values: Any) -> Any:
        return layer_norm(values, params[f"{name}.weight"], params[f"{name}.bias"])

    def apply(params: Any, ids: Any) -> Any:
        length = ids.shape[1]
        values = params["tokens.weight"][ids] + params["places.weight"][:length]
        for index in range(2):
            name = f"blocks.{index}"
            own = linear(params, f"{name}.qkv", norm(params, f"{name}.n1", values))
            query, key, value = (part.reshape(*part.shape[:2], 2, -1) for part in jnp.split(own, 3, -1))
            scores = jnp.einsum("nthk,nshk->nhts", query, key) / np.sqrt(query.shape[-1])
            scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
            mixed = jnp.einsum("nhts,nshk->nthk", jax.nn.softmax(scores), value)
            values = values + linear(params, f"{name}.proj", mixed.reshape(values.shape))
            hidden = jax.nn.gelu(
                linear(params, f"{name}.up", norm(params, f"{name}.n2", values)), approximate=False
            )
            values = values + linear(params, f"{name}.down", hidden)
        return norm(params, "norm", values) @ params["tokens.weight"].T

    draw = np.random.default_rng(2)
    ids = [draw.integers(0, 11, (n, 7)) for n in SAMPLES]
    batches = [(each[:, :-1], each[:, 1:]) for each in ids]
    return Pair(module, _torch_tokens, apply, _parameters(module), _jax_tokens, batches)


PAIRS: dict[str, Callable[[], Pair]] = {"mlp": mlp, "cnn": cnn, "gpt": gpt}
