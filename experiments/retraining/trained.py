"""What is trained, and many networks trained side by side, each on samples of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from experiments.data.digits import Batch, noisy_digits
from experiments.methods.base import LOSS
from experiments.networks import convolutional, perceptron

TESTED = 100
"""How many test samples are attributed."""


@dataclass(frozen=True)
class Setting:
    """A network, its data, and how it is trained."""

    network: Callable[[int], nn.Sequential]
    data: Callable[[int], tuple[Batch, Batch]]
    """From a seed to the training samples and the test samples."""
    rates: Mapping[str, float]
    """The learning rate of each optimizer."""
    positions: str = "tokens"
    """What LAI means by an inner product of positions."""
    batch: int = 32

    def optimizer(self, kind: str, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        """Return one of the two optimizers, as it comes."""
        return {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[kind](parameters, lr=self.rates[kind])


def digits(seed: int) -> tuple[Batch, Batch]:
    """Return 512 handwritten digits with right labels, and 100 test samples."""
    found = noisy_digits(seed, flip=0.0)
    (inputs, labels), (x, y) = found.training, found.test
    return (inputs[:512], labels[:512]), (x[:TESTED], y[:TESTED])


def tumours(seed: int) -> tuple[Batch, Batch]:
    """Return 384 rows of 30 measurements, standardized, of two classes, and 100 test samples."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng((seed, 29)).permutation(len(labels))
    own, held = order[:384], order[384 : 384 + TESTED]
    inputs = (inputs - inputs[own].mean(0)) / inputs[own].std(0)
    both = [(torch.from_numpy(inputs[rows]).float(), torch.from_numpy(labels[rows])) for rows in (own, held)]
    return both[0], both[1]


def of(*widths: int) -> Callable[[int], nn.Sequential]:
    """Return what makes a perceptron of these widths from a seed."""
    return lambda seed: perceptron(widths, seed=seed)


SETTINGS = {
    "MLP": Setting(of(64, 32, 32, 10), digits, {"SGD": 0.1, "Adam": 0.003}),
    "conv": Setting(convolutional, digits, {"SGD": 0.2, "Adam": 0.005}, positions="mean"),
    "tabular": Setting(of(30, 32, 32, 2), tumours, {"SGD": 0.1, "Adam": 0.003}),
}


def order(members: Tensor, batch: int, epochs: int, seed: int) -> Tensor:
    """Return the rows of each step, `(steps, batch)`: all members once an epoch, less what fills no batch."""
    random = torch.Generator().manual_seed(seed)
    steps = len(members) // batch
    drawn = [members[torch.randperm(len(members), generator=random)[: steps * batch]] for _ in range(epochs)]
    return torch.cat(drawn).view(-1, batch)


def subsets(count: int, of: int, seed: int) -> Tensor:
    """Return `(count, of)`, booleans: which half of the samples each subset has."""
    random = torch.Generator().manual_seed(seed)
    ranks = torch.rand(count, of, generator=random).argsort(1).argsort(1)
    return ranks < of // 2


def side_by_side(
    setting: Setting, kind: str, seeds: Sequence[int], data: Batch, rows: Tensor, weights: Tensor, test: Batch
) -> Tensor:
    """Train a network a seed; return the logits of the test samples, `(networks, n_test, classes)`.

    `rows` and `weights`, `(steps, networks, batch)`, are the samples of each step and the factors of their
    losses in its sum.
    """
    made = [setting.network(seed) for seed in seeds]
    point = {name: of.detach().requires_grad_() for name, of in stack_module_state(made)[0].items()}
    optimizer = setting.optimizer(kind, list(point.values()))

    def loss(at: dict[str, Tensor], inputs: Tensor, labels: Tensor, factors: Tensor) -> Tensor:
        return (factors * LOSS(functional_call(made[0], at, (inputs,)), labels)).sum()

    for index, factors in zip(rows, weights, strict=True):
        optimizer.zero_grad()
        vmap(loss)(point, data[0][index], data[1][index], factors).sum().backward()
        optimizer.step()
    with torch.no_grad():
        return vmap(lambda at: functional_call(made[0], at, (test[0],)))(point)
