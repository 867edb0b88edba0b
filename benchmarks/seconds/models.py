"""What the clock is held to: models that compute, models that only launch, and one that is tiny."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cost_models import Work, hide_unfit_torchvision
from workloads.torch_parts import classification, labels, resnet18
from workloads.torch_parts import next_token as summed_over_tokens


def next_token(outputs: Any, targets: Tensor) -> Tensor:
    """Mean cross-entropy of each sequence's next tokens."""
    return summed_over_tokens(outputs, targets) / (targets.shape[1] - 1)


def mlp(*widths: int, samples: int, validation: int) -> Work:
    """Build linear layers with ReLU between them, on normal inputs."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    sides = [(torch.randn(n, widths[0]), torch.arange(n) % widths[-1]) for n in (samples, validation)]
    return Work(nn.Sequential(*layers[:-1]), classification, *sides)


def tiny() -> Work:
    """Build the smallest: 20-64-64-10, 32 samples."""
    return mlp(20, 64, 64, 10, samples=32, validation=64)


def wide() -> Work:
    """Build 784-512-512-10, 128 samples."""
    return mlp(784, 512, 512, 10, samples=128, validation=256)


def resnet() -> Work:
    """ResNet-18 with the 7x7/2 stem on 32x32 images, 128 of them."""
    sides = [(torch.randn(n, 3, 32, 32), torch.arange(n) % 10) for n in (128, 256)]
    return Work(resnet18(), classification, *sides)


def bert(width: int, depth: int, heads: int, length: int, samples: int, vocabulary: int) -> Work:
    """BERT for classification, without dropout."""
    hide_unfit_torchvision()
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=length,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    sides = [
        ({"input_ids": torch.randint(1, vocabulary, (n, length))}, labels(n)) for n in (samples, 2 * samples)
    ]
    return Work(BertForSequenceClassification(config), classification, *sides)


def gpt(width: int, depth: int, heads: int, length: int, samples: int, vocabulary: int) -> Work:
    """GPT-2, without dropout, LAI by the `mean` route."""
    hide_unfit_torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=length,
        n_embd=width,
        n_layer=depth,
        n_head=heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    drawn = [torch.randint(1, vocabulary, (n, length)) for n in (samples, 2 * samples)]
    sides = [({"input_ids": ids, "use_cache": False}, ids) for ids in drawn]
    return Work(GPT2LMHeadModel(config), next_token, *sides, positions="mean")


def vit(width: int, depth: int, heads: int, samples: int) -> Work:
    """Build a ViT on 32x32 images in patches of 4: 65 positions."""
    hide_unfit_torchvision()
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=32,
        patch_size=4,
        num_labels=10,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    sides = [(torch.randn(n, 3, 32, 32), torch.arange(n) % 10) for n in (samples, 2 * samples)]
    return Work(ViTForImageClassification(config), classification, *sides)


MODELS: dict[str, Callable[[], Work]] = {
    "tiny_mlp": tiny,
    "mlp": wide,
    "bert_12_launches": lambda: bert(12, 12, 2, 8, 4, 100),
    "gpt_12_launches": lambda: gpt(12, 12, 2, 8, 4, 100),
    "resnet18": resnet,
    "bert_small": lambda: bert(512, 4, 8, 64, 16, 30_522),
    "gpt_small": lambda: gpt(256, 4, 4, 64, 8, 8192),
    "vit_tiny": lambda: vit(192, 12, 3, 32),
}
"""By name. `launches`: real depth at a width where a step is all calls, as a GPU's host sees it."""
SMALL = ("tiny_mlp", "mlp", "bert_12_launches", "gpt_12_launches")
"""Those whose step takes milliseconds."""
