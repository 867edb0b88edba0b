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


def unet() -> Case:
    """Classes of pixels, of maps halved and doubled: the last layer is a convolution over several."""
    pixels = torch.arange(SAMPLES * 64).reshape(SAMPLES, 8, 8) % CLASSES
    down = [nn.Conv2d(3, 6, 3, padding=1), nn.SiLU(), nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.SiLU()]
    up = [nn.Upsample(scale_factor=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, CLASSES, 3, padding=1)]

    def per_pixel(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, reduction="none").sum((1, 2))

    return Case(nn.Sequential(*down, *up), per_pixel, torch.randn(SAMPLES, 3, 8, 8), pixels)


MODELS: dict[str, Callable[[], Case]] = {
    **{name: functools.partial(build, SAMPLES) for name, build in torch_training.MODELS.items()},
    **{build.__name__: build for build in (resnet18_32, unet)},
}
