"""Small networks on digits with wrong labels, and their traces."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import lai_torch
import torch
from torch import Tensor, nn

from experiments.noisy_labels.data import noisy_digits

LOSS = nn.CrossEntropyLoss(reduction="none")
Batch = tuple[Tensor, Tensor]


@lru_cache(maxsize=8)
def digits(seed: int = 0, flip: float = 0.4) -> tuple[Batch, Batch]:
    """Return the training set, labels partly wrong, and a pool of clean images to validate on."""
    found = noisy_digits(seed, flip=flip)
    held = [
        torch.cat([torch.tensor(getattr(part, name)) for part in (found.validation, found.test)])
        for name in ("inputs", "labels")
    ]
    training = torch.tensor(found.training.inputs), torch.tensor(found.training.labels)
    return training, (held[0], held[1])


def perceptron(
    widths: Sequence[int], *, seed: int = 0, activation: Callable[[], nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Return a network of linear layers with an activation between them, weights drawn as He does."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for d_in, d_out in pairwise(widths):
        layer = nn.Linear(d_in, d_out)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(d_out, d_in, generator=generator) * (2 / d_in) ** 0.5)
            layer.bias.zero_()
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def train(
    model: nn.Module, batch: Batch, steps: int, *, lr: float = 0.1, size: int = 32, seed: int = 0
) -> None:
    """Take steps of SGD on random batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(batch[1]), (size,), generator=generator)
        optimizer.zero_grad()
        LOSS(model(batch[0][rows]), batch[1][rows]).mean().backward()
        optimizer.step()


def trace(model: nn.Module, batch: Batch, gradients: str = "all"):
    """Trace a batch."""
    return lai_torch.trace(model, LOSS, *batch, gradients=gradients)
