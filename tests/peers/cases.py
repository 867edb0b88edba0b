"""The networks on which the peers are asked, and how close two answers must be."""

from collections.abc import Callable
from dataclasses import dataclass

import lai_torch
import torch
from torch import Tensor, nn

import lai_core as lai

CLASSES, N_VAL, N_TRAIN = 3, 4, 6
DTYPES = (torch.float32, torch.float64)
SAMPLE_LOSSES = nn.CrossEntropyLoss(reduction="none")

# Two routes to one inner product differ by rounding alone: each multiply-add errs by at most one eps,
# and errors of either sign add up as the root of their number. The longest sum is the one over the
# 513 parameters of `cnn`. Found on one machine: at most 2 eps of the largest entry.
ROUNDING = 513**0.5


class PositionMean(nn.Module):
    """Mean over a sequence's positions, `(n, t, d)` to `(n, d)`."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(1)


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(7, 12), nn.Tanh(), nn.Linear(12, 9, bias=False), nn.ReLU(), nn.Linear(9, CLASSES)
    )


def cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 6, 3, stride=2, padding=1, bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )


def grouped_cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=2, dilation=2),
        nn.GroupNorm(3, 6),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, stride=2, groups=3),
        nn.Flatten(),
        nn.Linear(54, CLASSES),
    )


def sequence() -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(11, 8),
        nn.LayerNorm(8),
        nn.Linear(8, 10),
        nn.ReLU(),
        PositionMean(),
        nn.Linear(10, CLASSES),
    )


def vectors(samples: int) -> Tensor:
    return torch.randn(samples, 7, dtype=torch.float64)


def images(samples: int) -> Tensor:
    return torch.randn(samples, 2, 8, 8, dtype=torch.float64)


def tokens(samples: int) -> Tensor:
    return torch.randint(11, (samples, 5))


NETWORKS: dict[str, tuple[Callable[[], nn.Sequential], Callable[[int], Tensor]]] = {
    "mlp": (mlp, vectors),
    "cnn": (cnn, images),
    "grouped_cnn": (grouped_cnn, images),
    "sequence": (sequence, tokens),
}


@dataclass(frozen=True)
class Case:
    """A network with a validation batch and a training batch."""

    model: nn.Sequential
    validation: tuple[Tensor, Tensor]
    training: tuple[Tensor, Tensor]
    dtype: torch.dtype

    def ghost(self) -> Tensor:
        """Our inner products over all parameters."""
        return lai.ghost_kernel(*self._traces("all"))

    def lli(self) -> Tensor:
        """Our inner products over the last layer's parameters."""
        return lai.lli_kernel(*self._traces("output"))

    def _traces(self, gradients: str) -> list[lai.Trace]:
        return [
            lai_torch.trace(self.model, SAMPLE_LOSSES, *batch, gradients=gradients)
            for batch in (self.validation, self.training)
        ]


def case(name: str, dtype: torch.dtype) -> Case:
    """Draw a network's weights and its two batches from a fixed seed."""
    network, draw = NETWORKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = network().to(torch.float64)
        batches = [(draw(n), torch.arange(n) % CLASSES) for n in (N_VAL, N_TRAIN)]
    validation, training = [
        (inputs.to(dtype) if inputs.is_floating_point() else inputs, targets) for inputs, targets in batches
    ]
    return Case(model.to(dtype), validation, training, dtype)


def perturbed(one: Case) -> Case:
    """Move one weight of the head by a hundredth of its size, and return the case: the control."""
    with torch.no_grad():
        one.model[-1].weight[0, 0] *= 1.01
    return one


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest entry expected."""
    assert found.shape == expected.shape == (N_VAL, N_TRAIN)
    return float((found - expected).abs().max() / expected.abs().max())


def agree(found: Tensor, expected: Tensor) -> bool:
    """Whether two kernels are equal up to the rounding of their own type."""
    assert found.dtype == expected.dtype
    return relative_error(found, expected) <= ROUNDING * torch.finfo(expected.dtype).eps
