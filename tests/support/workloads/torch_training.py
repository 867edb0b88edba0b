"""Small models of every kind that torch trains, in training mode, dropout included, for any batch size."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.support.workloads.torch_parts import CLASSES, Case, classification, labels
from tests.support.workloads.transformer_models import (
    convnext,
    gpt2,
    llama,
    lora,
    padded_ids,
    vit,
)

SAMPLES = 12


def mlp(n: int) -> Case:
    """Linear layers with biases, LayerNorm, an in-place activation, and dropout."""
    layers = [nn.Linear(6, 16), nn.ReLU(inplace=True), nn.LayerNorm(16), nn.Dropout(0.3), nn.Linear(16, 12)]
    layers += [nn.GELU(), nn.Dropout(0.2), nn.Linear(12, CLASSES)]
    return Case(nn.Sequential(*layers), classification, torch.randn(n, 6), labels(n))


class Encoder(nn.Module):
    """`nn.TransformerEncoder` under a class token and learned positions, padding masked."""

    def __init__(self, length: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.1, batch_first=True, norm_first=True)
        self.embed = nn.Embedding(11, 16, padding_idx=0)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.place = nn.Parameter(torch.randn(length + 1, 16) / 4)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        """Classify the sequence from its class token."""
        hidden = torch.cat([self.token.expand(len(ids), -1, -1), self.embed(ids)], 1) + self.place
        mask = torch.cat([torch.zeros_like(ids[:, :1], dtype=torch.bool), ids == 0], 1)
        return self.head(self.body(hidden, src_key_padding_mask=mask)[:, 0])


def encoder(n: int) -> Case:
    """`nn.TransformerEncoder` with dropout, whose attention merges samples with positions."""
    return Case(Encoder(5), classification, padded_ids(11, 5, n)[0], labels(n))


MODELS: dict[str, Callable[[int], Case]] = {
    build.__name__: build
    for build in (
        mlp,
        convnext,
        vit,
        gpt2,
        llama,
        lora,
        encoder,
    )
}
