"""What tests of the torch adapter are built on: a loss, batches, a small network, a curator around it."""

import lai_torch
import torch
from torch import nn

from tests.support.fixtures import HALF
from workloads.torch_oracle import per_sample_gradients

__all__ = [
    "HALF",
    "LOSS",
    "Centred",
    "Recurrent",
    "batch",
    "by_autograd",
    "curated",
    "data",
    "labels",
    "network",
    "plain",
    "randn",
    "sgd",
]

LOSS = nn.CrossEntropyLoss(reduction="none")


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def labels(n):
    return torch.arange(n) % 3


def batch(n, *shape):
    """Draw samples of a shape, with the three classes in turn."""
    return randn(n, *shape), labels(n)


def data(n):
    """Draw vectors of four, whose class can be learnt from them."""
    inputs = randn(n, 4)
    return inputs, inputs[:, :3].argmax(1)


def plain(tree):
    """Return nested containers with lists for tensors, which compare bit for bit."""
    if isinstance(tree, torch.Tensor):
        return str(tree.dtype), str(tree.tolist())  # in words NaN is NaN
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(part) for part in tree] if isinstance(tree, list | tuple) else tree


def network(*between, outputs=3):
    return nn.Sequential(nn.Linear(4, 8), *between, nn.ReLU(), nn.Linear(8, outputs)).double()


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def curated(model, validation, loss=LOSS, lr=0.1, **options):
    return lai_torch.Curator(model, loss, sgd(model, lr), validation, **options)


def by_autograd(model, validation, training, loss=LOSS):
    """Return exact scores by one reverse pass a sample."""
    sides = (per_sample_gradients(model, loss, *side, len(side[1])) for side in (validation, training))
    of_validation, of_training = sides
    return of_training @ of_validation.sum(0)


class Centred(nn.Module):
    """Every sample goes into every other one's output, where they can be several."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, inputs):
        hidden = self.body(inputs)
        return self.head(torch.tanh(hidden - hidden.mean(0)))


class Recurrent(nn.Module):
    """Classifies a sequence by a recurrent layer, which no trace follows."""

    def __init__(self):
        super().__init__()
        self.memory, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, inputs):
        return self.head(self.memory(inputs)[0][:, -1])
