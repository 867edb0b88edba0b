"""Small random models of real architectures, each with a batch and a loss per sample."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map_only

CLASSES = 5


@dataclass(frozen=True)
class Case:
    """A model, its loss, and one batch."""

    model: nn.Module
    loss: Callable[[Any, Any], Tensor]
    inputs: Any
    targets: Any


def doubled(case: Case) -> Case:
    double = lambda one: one.double() if one.is_floating_point() else one  # noqa: E731
    batch = tree_map_only(Tensor, double, (case.inputs, case.targets))
    return Case(copy.deepcopy(case.model).double().eval(), case.loss, *batch)


def classification(outputs: Any, targets: Tensor) -> Tensor:
    return functional.cross_entropy(getattr(outputs, "logits", outputs), targets, reduction="none")


def next_token(outputs: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of each sequence's next tokens, summed over positions; -100 is ignored.

    On flat logits, of which no copy is made, with targets padded by what is ignored.
    """
    following = functional.pad(targets[:, 1:], (0, 1), value=-100)
    losses = functional.cross_entropy(outputs.logits.flatten(0, 1), following.flatten(), reduction="none")
    return losses.view(following.shape).sum(1)


def labels(samples: int) -> Tensor:
    return torch.arange(samples) % CLASSES


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(inputs)), inplace=True)
        return functional.relu(self.bn2(self.conv2(hidden)) + self.shortcut(inputs), inplace=True)


def resnet18(width: int = 64) -> nn.Sequential:
    """ResNet-18 with the 7x7/2 stem and max-pool."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)]
    layers += [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    before = width
    for stage in range(4):
        after = width * 2**stage
        layers += [BasicBlock(before, after, 1 if stage == 0 else 2), BasicBlock(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


class LowRank(nn.Module):
    """A frozen linear layer with a trainable low-rank adapter (LoRA)."""

    def __init__(self, base: nn.Module, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        height, width = base.weight.shape
        self.down = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(height, rank) / rank**0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the adapter's output to the frozen layer's."""
        return self.base(inputs) + 0.5 * functional.linear(functional.linear(inputs, self.down), self.up)
