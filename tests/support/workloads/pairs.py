"""Models with the same weights in Torch and in JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from torch import nn
from torch.nn import functional

from tests.support.workloads.jax_parts import apply_block, classification, layer_norm, next_token
from tests.support.workloads.torch_parts import classification as torch_classes
from tests.support.workloads.transformer_models import transformer

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


def gpt() -> Pair:
    """Predict tokens with a tied head: transformers' GPT-2, whose matrices lie as JAX multiplies by them."""
    module: nn.Module = transformer(
        "GPT2LMHeadModel", 8, length=6, vocabulary=11, dropout=False, bos_token_id=0, eos_token_id=0
    ).double()
    names = {"o1": "ln_1.bias", "o2": "ln_2.bias", "g1": "ln_1.weight", "g2": "ln_2.weight"}
    layers = {"qkv": "attn.c_attn", "proj": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
    names |= {key: f"{layer}.weight" for key, layer in layers.items()}
    names |= {f"{key}_bias": f"{layer}.bias" for key, layer in layers.items()}

    def apply(params: Any, ids: Any) -> Any:
        own = {name.removeprefix("transformer."): value for name, value in params.items()}
        values = own["wte.weight"][ids] + own["wpe.weight"][: ids.shape[1]]
        for index in range(2):
            block = {key: own[f"h.{index}.{name}"] for key, name in names.items()}
            values = apply_block(values, block, 2)
        return layer_norm(values, own["ln_f.weight"], own["ln_f.bias"]) @ own["wte.weight"].T

    def loss(outputs: Any, targets: Any) -> Any:
        return functional.cross_entropy(outputs.logits.transpose(1, 2), targets, reduction="none").sum(1)

    draw = np.random.default_rng(2)
    ids = [draw.integers(0, 11, (n, 7)) for n in SAMPLES]
    batches = [(each[:, :-1], each[:, 1:]) for each in ids]
    return Pair(module, loss, apply, _parameters(module), next_token, batches)


PAIRS: dict[str, Callable[[], Pair]] = {"mlp": mlp, "cnn": cnn, "gpt": gpt}
