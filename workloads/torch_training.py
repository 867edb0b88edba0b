"""Small models of every kind that torch trains, in training mode, dropout included, for any batch size."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from workloads import torch_models, transformer_models
from workloads.torch_parts import CLASSES, Case, classification, doubled, labels, next_token

SAMPLES = 12
COMPUTES_IN_FLOAT32 = ("gpt_neo",)
"""Models whose attention casts to float32, whatever their own type."""


def mlp(n: int) -> Case:
    """Linear layers, LayerNorm, an in-place activation."""
    return replace(torch_models.mlp(), inputs=torch.randn(n, 6), targets=labels(n))


def mlp_dropout(n: int) -> Case:
    """Dropout in training mode."""
    layers = [nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 12), nn.Tanh(), nn.Dropout(0.2)]
    return Case(nn.Sequential(*layers, nn.Linear(12, CLASSES)), classification, torch.randn(n, 6), labels(n))


def cnn(n: int) -> Case:
    """Group and stride convolutions; GroupNorm, pooling."""
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=4),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, CLASSES),
    ]
    return Case(nn.Sequential(*layers), classification, torch.randn(n, 3, 12, 12), labels(n))


def pooled_convolution(n: int) -> Case:
    """End in a 1x1 convolution, which pooling follows inside the model."""
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Case(nn.Sequential(*layers), classification, torch.randn(n, 3, 8, 8), labels(n))


def convnext(n: int) -> Case:
    """ConvNeXt of transformers: depthwise convolutions, LayerNorm, layer scale."""
    case = transformer_models.convnext()
    return replace(case, inputs={"pixel_values": torch.randn(n, 3, 32, 32)}, targets=labels(n))


def vit(n: int) -> Case:
    """ViT of transformers."""
    case = transformer_models.vit()
    return replace(case, inputs={"pixel_values": torch.randn(n, 3, 16, 16)}, targets=labels(n))


def _padded(n: int, vocabulary: int, length: int = 9) -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, vocabulary, (n, length))
    mask = torch.arange(length) < (length - torch.arange(n).unsqueeze(1) % 3)
    return ids * mask, mask.long()


def bert(n: int) -> Case:
    """BERT for classification, padding masked, dropout on."""
    ids, mask = _padded(n, 31)
    inputs = {"input_ids": ids, "attention_mask": mask}
    return replace(transformer_models.bert(), inputs=inputs, targets=labels(n))


def _language_model(case: Case, n: int) -> Case:
    ids, mask = _padded(n, 31)
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    return Case(case.model, next_token, inputs, ids.masked_fill(mask == 0, -100))


def gpt2(n: int) -> Case:
    """GPT-2 of transformers: tied head and embedding, dropout on."""
    return _language_model(transformer_models.gpt2(), n)


def gpt_neo(n: int) -> Case:
    """GPT-Neo of transformers: local attention."""
    return _language_model(transformer_models.gpt_neo(), n)


def llama(n: int) -> Case:
    """Llama of transformers: rotary positions, grouped-query attention."""
    return _language_model(transformer_models.llama(), n)


def lora(n: int) -> Case:
    """GPT-2 with frozen weights and low-rank adapters."""
    return _language_model(transformer_models.lora(), n)


def t5_encoder(n: int) -> Case:
    """T5's encoder: relative positions."""
    ids, mask = _padded(n, 31)
    inputs = {"input_ids": ids, "attention_mask": mask}
    return replace(transformer_models.t5_encoder(), inputs=inputs, targets=labels(n))


class Encoder(nn.Module):
    """`nn.TransformerEncoder`, whose attention merges samples with positions, positions outermost."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.1, batch_first=True)
        self.embed, self.place = nn.Embedding(11, 16, padding_idx=0), nn.Parameter(torch.randn(6, 16) / 4)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        """Classify the sequence from its first token."""
        hidden = self.body(self.embed(ids) + self.place, src_key_padding_mask=ids == 0)
        return self.head(hidden[:, 0])


def encoder(n: int) -> Case:
    """`nn.TransformerEncoder` with dropout."""
    return Case(Encoder(), classification, _padded(n, 11, 6)[0], labels(n))


class Several(nn.Module):
    """Returns a mapping of two differentiable tensors, one of which the loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Return the logits and what they are made of."""
        hidden = torch.tanh(self.body(inputs))
        return {"hidden": hidden, "logits": self.head(hidden)}


def mapping(n: int) -> Case:
    """Return a mapping from the model."""
    return Case(
        Several(), lambda out, targets: classification(out["logits"], targets), torch.randn(n, 6), labels(n)
    )


class Checkpointed(nn.Module):
    """A layer whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.more, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the layers, the middle one checkpointed."""
        hidden = torch.tanh(self.body(inputs))
        hidden = checkpoint(
            lambda one: functional.dropout(torch.tanh(self.more(one)), 0.2), hidden, use_reentrant=False
        )
        return self.head(hidden)


def checkpointed(n: int) -> Case:
    """Activation checkpointing, with dropout inside."""
    return Case(Checkpointed(), classification, torch.randn(n, 6), labels(n))


MODELS: dict[str, Callable[[int], Case]] = {
    build.__name__: build
    for build in (
        mlp,
        mlp_dropout,
        cnn,
        pooled_convolution,
        convnext,
        vit,
        bert,
        gpt2,
        gpt_neo,
        llama,
        lora,
        t5_encoder,
        encoder,
        mapping,
        checkpointed,
    )
}


def prepared(build: Callable[[int], Case]) -> Case:
    """Return a case in float64 and training mode."""
    torch.manual_seed(0)
    case = doubled(build(SAMPLES))
    case.model.train()
    return case
