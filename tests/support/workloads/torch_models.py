"""Small models that torch's Ghost must be exact on, in eval mode: those that train, and others."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.workloads import torch_training
from tests.support.workloads.torch_parts import CLASSES, Case, classification, labels, resnet18, settled
from tests.support.workloads.transformer_models import SAMPLES

COMPUTES_IN_FLOAT32 = ("gpt_neo", "llama", "t5_encoder")
"""Models that cast to float32 inside, whatever their own type."""


def resnet18_32() -> Case:
    """ResNet-18 for 32x32 images, BatchNorm with running statistics."""
    inputs = torch.randn(SAMPLES, 3, 32, 32)
    return Case(settled(resnet18(stem="3x3"), inputs), classification, inputs, labels(SAMPLES))


class CrossAttention(nn.Module):
    """`nn.MultiheadAttention` from queries to other keys and values, of another width."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, add_bias_kv=True, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        """Attend, average, classify."""
        return self.head(self.attend(queries, memory, memory)[0].mean(1))


def cross_attention() -> Case:
    """Attend by separate projections."""
    inputs = torch.randn(SAMPLES, 3, 8), torch.randn(SAMPLES, 5, 6)
    return Case(CrossAttention(), classification, inputs, labels(SAMPLES))


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
    **{name: functools.partial(build, SAMPLES) for name, build in torch_training.MODELS.items()},
    **{build.__name__: build for build in (resnet18_32, cross_attention, unet, parametrized)},
}
