"""What is trained on a GPU: the paper's table, and three language models at their own sizes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.cost_models import Side, Work, hide_unfit_torchvision
from benchmarks.seconds.models import bert, gpt, next_token
from workloads.torch_parts import classification, resnet18


def resnet(*, toy: bool) -> Work:
    """ResNet-18 on 32x32 images, 512 of them and 1,000 to validate: the paper's table of costs."""
    sizes = (16, 16) if toy else (512, 1000)
    sides = [(torch.randn(n, 3, 32, 32), torch.arange(n) % 10) for n in sizes]
    return Work(resnet18(width=8 if toy else 64), classification, *sides)


def llama(*, toy: bool) -> Work:
    """Llama at 1B: 16 layers of 2,048, vocabulary 128,256, tied; 8 sequences of 512 tokens."""
    hide_unfit_torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    widths = (64, 32, 64, 2, 4) if toy else (128_256, 2048, 8192, 16, 32)
    config = LlamaConfig(
        **dict(zip(names, widths, strict=True)),
        num_key_value_heads=2 if toy else 8,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    drawn = [torch.randint(1, widths[0], (n, 16 if toy else 512)) for n in ((4, 4) if toy else (8, 16))]
    sides = [({"input_ids": ids, "use_cache": False}, ids) for ids in drawn]
    return Work(LlamaForCausalLM(config), next_token, *sides, positions="mean")


MODELS: dict[str, Callable[[bool], Work]] = {
    "resnet18": lambda toy: resnet(toy=toy),
    "bert_base": lambda toy: bert(*((32, 2, 2, 16, 4, 100) if toy else (768, 12, 12, 128, 64, 30_522))),
    "gpt2": lambda toy: gpt(*((32, 2, 2, 16, 4, 64) if toy else (768, 12, 12, 256, 16, 50_257))),
    "llama_1b": lambda toy: llama(toy=toy),
}
"""By name; called with whether it is the toy."""


def built(name: str, device: str, *, toy: bool) -> Work:
    """Return a model, its batch and its validation set on a device."""
    torch.manual_seed(0)
    work = MODELS[name](toy)
    sides = {"batch": _moved(work.batch, device), "validation": _moved(work.validation, device)}
    return replace(work, model=work.model.to(device).train(), **sides)


def _moved(side: Side, device: str) -> Side:
    def move(one: Any) -> Any:
        return one.to(device) if isinstance(one, Tensor) else one

    inputs, targets = side
    moved = {key: move(one) for key, one in inputs.items()} if isinstance(inputs, dict) else move(inputs)
    return moved, move(targets)
