"""Random models of transformers from sizes alone, and small ones with a batch and a loss per sample."""

import importlib
import sys
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.workloads.torch_parts import CLASSES, Case, LowRank, classification, labels, next_token

SAMPLES = 4
_DECLARED: list[torch.library.Library] = []
"""Declarations last as long as their library."""


def fit_torchvision() -> None:
    """Import torchvision, whose Python code timm and transformers use, whether it fits this torch or not.

    Where its compiled operations do not load, the two that its Python code describes are declared.
    """
    if find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(declared)
        importlib.import_module("torchvision")


def transformer(
    name: str,
    width: int = 16,
    depth: int = 2,
    heads: int = 2,
    length: int = 16,
    vocabulary: int = 31,
    *,
    dropout: bool = True,
    **more: Any,
) -> nn.Module:
    """Build a model of transformers by the name of its class; `more` is its configuration's."""
    sizes = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": heads}
    sizes |= {"vocab_size": vocabulary, "max_position_embeddings": length}
    return configured(name, dropout=dropout, **sizes | more)


def configured(name: str, *, dropout: bool = True, **options: Any) -> nn.Module:
    """Build a model of transformers from its configuration, with or without dropout."""
    fit_torchvision()
    kind = getattr(importlib.import_module("transformers"), name)
    config = kind.config_class(**options)
    for each, value in vars(config).items():
        if not dropout and each.endswith(("dropout", "pdrop", "dropout_prob")) and value:
            setattr(config, each, 0.0)
    return kind(config)


def padded_ids(vocabulary: int, length: int, n: int = SAMPLES) -> tuple[Tensor, Tensor]:
    """Token ids and their mask; later samples end earlier."""
    ids = torch.randint(1, vocabulary, (n, length))
    mask = torch.arange(length) < (length - torch.arange(n).unsqueeze(1) % 3)
    return ids * mask, mask.long()


def language_model(model: nn.Module, n: int = SAMPLES) -> Case:
    """Next-token loss on padded sequences."""
    ids, mask = padded_ids(model.config.vocab_size, 9, n)
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    return Case(model, next_token, inputs, ids.masked_fill(mask == 0, -100))


def _classified(model: nn.Module, n: int, side: int) -> Case:
    return Case(model, classification, {"pixel_values": torch.randn(n, 3, side, side)}, labels(n))


def gpt2(n: int = SAMPLES) -> Case:
    """GPT-2: tied head, learned positions."""
    return language_model(transformer("GPT2LMHeadModel", bos_token_id=0, eos_token_id=0), n)


def llama(n: int = SAMPLES) -> Case:
    """Llama: RMSNorm, rotary positions, grouped-query attention."""
    model = transformer("LlamaForCausalLM", heads=4, intermediate_size=24, num_key_value_heads=2)
    return language_model(model, n)


def vit(n: int = SAMPLES) -> Case:
    """Vision transformer: patches by convolution, class token, position table."""
    more = {"image_size": 16, "patch_size": 4, "intermediate_size": 24, "num_labels": CLASSES}
    return _classified(transformer("ViTForImageClassification", **more), n, side=16)


def convnext(n: int = SAMPLES) -> Case:
    """ConvNeXt: depthwise convolutions, layer scale, channels-last linear layers."""
    more = {"hidden_sizes": [8, 12, 16, 20], "depths": [1] * 4, "layer_scale_init_value": 0.5}
    model = configured("ConvNextForImageClassification", num_labels=CLASSES, **more)
    return _classified(model, n, side=32)


def lora(n: int = SAMPLES) -> Case:
    """GPT-2 with every weight frozen but low-rank adapters on attention and the norms' gains."""
    case = gpt2(n)
    case.model.requires_grad_(False)
    for block in case.model.transformer.h:
        for name, width in (("c_attn", 48), ("c_proj", 16)):
            conv1d = getattr(block.attn, name)
            base = nn.Linear(16, width)
            base.load_state_dict({"weight": conv1d.weight.T, "bias": conv1d.bias})
            setattr(block.attn, name, LowRank(base, 2))
        block.ln_1.requires_grad_(True)
    return case
