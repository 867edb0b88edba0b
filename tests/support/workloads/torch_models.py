"""Small models of every kind that torch's Ghost must be exact on, in eval mode."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.workloads.torch_parts import CLASSES, Case, classification, labels, resnet18, settled
from tests.support.workloads.transformer_models import (
    SAMPLES,
    bert,
    convnext,
    gpt2,
    gpt_neo,
    llama,
    lora,
    padded_ids,
    t5_encoder,
    vit,
)

COMPUTES_IN_FLOAT32 = ("gpt_neo", "llama", "t5_encoder")
"""Models that cast to float32 inside, whatever their own type."""


def mlp(n: int = SAMPLES) -> Case:
    """Linear layers with biases, LayerNorm and an in-place activation."""
    model = nn.Sequential(
        nn.Linear(6, 16),
        nn.ReLU(inplace=True),
        nn.LayerNorm(16),
        nn.Linear(16, 12),
        nn.GELU(),
        nn.Linear(12, CLASSES),
    )
    return Case(model, classification, torch.randn(n, 6), labels(n))


def cnn_groups() -> Case:
    """Group, dilate, stride and reflect convolutions; GroupNorm, InstanceNorm, PReLU."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect"),
        nn.GroupNorm(2, 8),
        nn.PReLU(8),
        nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=4, bias=False),
        nn.InstanceNorm2d(12, affine=True),
        nn.PReLU(),
        nn.Conv2d(12, 12, (3, 2), dilation=(2, 1), groups=12),
        nn.Flatten(2),
        nn.Conv1d(12, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )
    return Case(model, classification, torch.randn(SAMPLES, 3, 12, 12), labels(SAMPLES))


def resnet18_32() -> Case:
    """ResNet-18 for 32x32 images, BatchNorm with running statistics."""
    inputs = torch.randn(SAMPLES, 3, 32, 32)
    return Case(settled(resnet18(stem="3x3"), inputs), classification, inputs, labels(SAMPLES))


class Encoder(nn.Module):
    """`nn.TransformerEncoder` under a class token and learned positions, padding masked."""

    def __init__(self, *, batch_first: bool, length: int = SAMPLES, dropout: float = 0.0) -> None:
        super().__init__()
        options = {"batch_first": batch_first, "norm_first": batch_first}
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout, **options)
        self.embed = nn.Embedding(11, 16, padding_idx=0)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.place = nn.Parameter(torch.randn(length + 1, 16) / 4)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)
        self.batch_first = batch_first

    def forward(self, ids: Tensor) -> Tensor:
        """Classify the sequence from its class token."""
        hidden = torch.cat([self.token.expand(len(ids), -1, -1), self.embed(ids)], 1) + self.place
        mask = torch.cat([torch.zeros_like(ids[:, :1], dtype=torch.bool), ids == 0], 1)
        hidden = hidden if self.batch_first else hidden.transpose(0, 1)
        hidden = self.body(hidden, src_key_padding_mask=mask)
        return self.head(hidden[:, 0] if self.batch_first else hidden[0])


def transformer_encoder() -> Case:
    """As many positions as samples: shapes alone do not say which axis is which."""
    return Case(Encoder(batch_first=True), classification, padded_ids(11, SAMPLES)[0], labels(SAMPLES))


def transformer_encoder_time_first() -> Case:
    """Put positions on the first axis."""
    return Case(Encoder(batch_first=False), classification, padded_ids(11, SAMPLES)[0], labels(SAMPLES))


class CrossAttention(nn.Module):
    """`nn.MultiheadAttention` from queries to other keys and values, of other widths in one case."""

    def __init__(self, width: int | None) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, kdim=width, vdim=width, add_bias_kv=True, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        """Attend, average, classify."""
        return self.head(self.attend(queries, memory, memory)[0].mean(1))


def cross_attention() -> Case:
    """One packed projection matrix, cut in three."""
    inputs = torch.randn(SAMPLES, 3, 8), torch.randn(SAMPLES, 5, 8)
    return Case(CrossAttention(None), classification, inputs, labels(SAMPLES))


def cross_attention_widths() -> Case:
    """Separate projections."""
    inputs = torch.randn(SAMPLES, 3, 8), torch.randn(SAMPLES, 5, 6)
    return Case(CrossAttention(6), classification, inputs, labels(SAMPLES))


class UNet(nn.Module):
    """An encoder, a decoder and a skip between them; ends in a 3x3 convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, padding=1)
        self.inner = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 14)
        self.out = nn.Conv2d(14, CLASSES, 3, padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        """Classify every pixel."""
        outer = functional.silu(self.down(maps))
        inner = functional.interpolate(functional.silu(self.inner(outer)), scale_factor=2)
        return self.out(functional.silu(self.norm(torch.cat([outer, inner], 1))))


def unet() -> Case:
    """Classes of pixels: the last layer is a convolution over several."""
    pixels = torch.arange(SAMPLES * 64).reshape(SAMPLES, 8, 8) % CLASSES

    def per_pixel(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, reduction="none").sum((1, 2))

    return Case(UNet(), per_pixel, torch.randn(SAMPLES, 3, 8, 8), pixels)


class Parametrized(nn.Module):
    """Weight norm, a module used twice, a bare matrix product, a bare scale, a bias shared by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(6, 8))
        self.normed_conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 2, 3))
        self.twice = nn.Linear(8, 8)
        self.mix = nn.Parameter(torch.randn(3, 8))
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(18, CLASSES, bias=False)
        self.offset = nn.Parameter(torch.randn(CLASSES))

    def forward(self, inputs: Tensor) -> Tensor:
        """Use all of them."""
        hidden = torch.tanh(self.twice(torch.tanh(self.twice(self.normed(inputs)))))
        mixed = (self.mix @ hidden.T).T * self.scale.exp()
        decoded = functional.linear(mixed, self.mix.T) @ self.mix.t()
        pixels = self.normed_conv(hidden.unsqueeze(1)).flatten(1)
        return self.head(torch.cat([decoded, mixed, pixels], 1)) + self.offset


def parametrized() -> Case:
    """Use parameters in ways that need building sample by sample."""
    return Case(Parametrized(), classification, torch.randn(SAMPLES, 6), labels(SAMPLES))


MODELS: dict[str, Callable[[], Case]] = {
    build.__name__: build
    for build in (
        mlp,
        cnn_groups,
        resnet18_32,
        transformer_encoder,
        transformer_encoder_time_first,
        cross_attention,
        cross_attention_widths,
        gpt2,
        gpt_neo,
        llama,
        bert,
        t5_encoder,
        vit,
        convnext,
        unet,
        lora,
        parametrized,
    )
}
