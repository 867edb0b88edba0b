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

from workloads.jax_parts import apply_block, classification, layer_norm, next_token
from workloads.torch_parts import classification as torch_classes

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


def _torch_tokens(outputs: Any, targets: Any) -> Any:
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").sum(1)


def mlp() -> Pair:
    """Three linear layers."""
    module = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3)).double()

    def apply(params: Any, inputs: Any) -> Any:
        for index in (0, 2):
            inputs = jnp.tanh(inputs @ params[f"{index}.weight"].T + params[f"{index}.bias"])
        return inputs @ params["4.weight"].T + params["4.bias"]

    draw = np.random.default_rng(0)
    batches = [(draw.standard_normal((n, 6)), draw.integers(0, 3, n)) for n in SAMPLES]
    return Pair(module, torch_classes, apply, _parameters(module), classification, batches)


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
    return Pair(module, torch_classes, apply, _parameters(module), classification, batches)


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
            values = values + block["down"](
                functional.gelu(block["up"](block["n2"](values)), approximate="tanh")
            )
        return self.head(self.norm(values))


def gpt() -> Pair:
    """Predict tokens with a tied head."""
    module = _Gpt().double()

    def block(params: Any, name: str) -> dict[str, Any]:
        """Return one block's parameters as `apply_block` takes them."""
        found = {"g1": "n1.weight", "o1": "n1.bias", "g2": "n2.weight", "o2": "n2.bias"}
        for layer in ("qkv", "proj", "up", "down"):
            found |= {layer: f"{layer}.weight", f"{layer}_bias": f"{layer}.bias"}
        taken = {key: params[f"{name}.{own}"] for key, own in found.items()}
        return {key: each.T if each.ndim > 1 else each for key, each in taken.items()}

    def apply(params: Any, ids: Any) -> Any:
        values = params["tokens.weight"][ids] + params["places.weight"][: ids.shape[1]]
        for index in range(2):
            values = apply_block(values, block(params, f"blocks.{index}"), 2)
        return layer_norm(values, params["norm.weight"], params["norm.bias"]) @ params["tokens.weight"].T

    draw = np.random.default_rng(2)
    ids = [draw.integers(0, 11, (n, 7)) for n in SAMPLES]
    batches = [(each[:, :-1], each[:, 1:]) for each in ids]
    return Pair(module, _torch_tokens, apply, _parameters(module), next_token, batches)


PAIRS: dict[str, Callable[[], Pair]] = {"mlp": mlp, "cnn": cnn, "gpt": gpt}
