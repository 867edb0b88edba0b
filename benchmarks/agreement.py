"""The same weights in Torch and in JAX: the same traces and the same scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import lai_torch
import numpy as np
import torch
from jax import lax
from torch import nn
from torch.nn import functional

import lai_core as lai
from benchmarks.jax_parts import layer_norm

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


def traces(pair: Pair) -> tuple[list[Any], list[Any]]:
    """Trace both batches in both frameworks."""
    ours = [
        lai_torch.trace(pair.module, pair.torch_loss, *map(torch.from_numpy, batch), gradients="all")
        for batch in pair.batches
    ]
    theirs = [
        jax.jit(
            lambda params, batch: lai_jax.trace(pair.apply, params, pair.jax_loss, *batch, gradients="all")
        )(pair.params, tuple(map(jnp.asarray, batch)))
        for batch in pair.batches
    ]
    return ours, theirs


def measure(build: Callable[[], Pair], seed: int = 0) -> dict[str, Any]:
    """Return the largest relative difference of any layer's arrays, kernel or score."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pair = build()
    ours, theirs = traces(pair)
    errors = [_difference(*both) for sides in zip(ours, theirs, strict=True) for both in _arrays(*sides)]
    for kernel, score, options in (
        (lai.ghost_kernel, lai.ghost_scores, {}),
        (lai.lai_kernel, lai.lai_scores, {"positions": "mean"}),
        (lai.lli_kernel, lai.lli_scores, {}),
    ):
        errors += [
            _difference(function(*ours, **options), function(*theirs, **options))
            for function in (kernel, score)
        ]
    batch = tuple(map(jnp.asarray, pair.batches[0]))
    covered = lai_jax.coverage(pair.apply, pair.params, pair.jax_loss, *batch)
    return {
        "relative_error": max(errors),
        "coverage": covered.share,
        "parameters": covered.parameters,
    }


def _arrays(ours: lai.Trace, theirs: lai.Trace) -> list[tuple[Any, Any]]:
    """Pair the arrays of the records that LAI sees, in the order in which the model uses them."""
    left, right = (
        [record for record in trace.layers if hasattr(record, "activations")] for trace in (ours, theirs)
    )
    pairs = []
    for mine, other in zip(left, right, strict=True):
        pairs += [(mine.activations, other.activations), (mine.output_gradients, other.output_gradients)]
    return pairs


def _difference(left: Any, right: Any) -> float:
    """Return the largest difference of two arrays over the largest entry."""
    left, right = (
        np.asarray(side.detach() if isinstance(side, torch.Tensor) else side) for side in (left, right)
    )
    return float(np.abs(left - right).max() / np.abs(left).max())
