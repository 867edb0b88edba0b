"""Small models that torch's Ghost must be exact on, in eval mode: those that train, and others."""

import functools
from collections.abc import Callable

import torch

from tests.support.workloads import torch_training
from tests.support.workloads.torch_parts import Case, classification, labels, resnet18
from tests.support.workloads.transformer_models import SAMPLES

COMPUTES_IN_FLOAT32 = ("llama",)
"""Models that cast to float32 inside, whatever their own type."""


def resnet18_32() -> Case:
    """ResNet-18 for 32x32 images, BatchNorm with running statistics."""
    inputs, model = torch.randn(SAMPLES, 3, 32, 32), resnet18()
    with torch.no_grad():
        model(inputs)  # gives BatchNorm running statistics of its own
    return Case(model.eval(), classification, inputs, labels(SAMPLES))


MODELS: dict[str, Callable[[], Case]] = {
    **{name: functools.partial(build, SAMPLES) for name, build in torch_training.MODELS.items()},
    "resnet18_32": resnet18_32,
}
