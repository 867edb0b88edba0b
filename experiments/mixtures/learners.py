"""Networks of all seeds side by side: one call trains them all, each on its own data with its own weights."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]
"""Inputs `(seeds, n, ...)` and targets `(seeds, n)`, or `(seeds, n, t)` for text."""
Record = list[Batch]
"""Activations and output gradients of each layer, `(seeds, n, ...)`."""
HIDDEN = 48


def losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return each sample's loss `(seeds, n)`; of text the mean over its characters."""
    each = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return each if each.ndim == 2 else each.mean(2)


def errors(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient of each sample's loss with respect to its logits."""
    found = logits.softmax(-1)
    found.scatter_add_(-1, targets[..., None], torch.full_like(found[..., :1], -1.0))
    return found if targets.ndim == 2 else found / targets.shape[2]


class Perceptrons:
    """Perceptrons with two hidden layers, whose biases are the weights of an input that is 1."""

    def __init__(self, inputs: int, classes: int, seeds: Sequence[int]) -> None:
        widths = [*pairwise((inputs, HIDDEN, HIDDEN, classes))]
        shapes = [(len(seeds), d_in + 1, d_out) for d_in, d_out in widths]
        self.flat = torch.zeros(sum(map(math.prod, shapes)))
        self.flat.grad = torch.zeros_like(self.flat)
        self.weights, self.gradients = (self._views(of, shapes) for of in (self.flat, self.flat.grad))
        for at, seed in enumerate(seeds):
            random = torch.Generator().manual_seed(seed)
            for weights in self.weights:
                drawn = torch.rand(weights.shape[1:], generator=random)
                weights[at] = (2.0 * drawn - 1.0) / math.sqrt(weights.shape[1])
        self.optimizer = torch.optim.Adam([self.flat], fused=True)
        self.recorded: Record = []
        products = sum(d_in * d_out for _, d_in, d_out in shapes)
        read = {"lli": shapes[-1][1] * classes, "lai": sum(d_in for _, d_in, _ in shapes) * classes}
        self.costs = {name: each / products for name, each in read.items()} | {"ghost": 1.0}

    @staticmethod
    def _views(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
        parts = flat.split([math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _forward(self, inputs: Tensor) -> list[Tensor]:
        """Return the input of each layer, and the outputs."""
        found = []
        for weights in self.weights:
            hidden = inputs if not found else inputs.relu()
            found.append(torch.cat([hidden, torch.ones_like(hidden[..., :1])], 2))
            inputs = found[-1] @ weights
        return [*found, inputs]

    def logits(self, inputs: Tensor) -> Tensor:
        """Return outputs."""
        return self._forward(inputs)[-1]

    def record(self, batch: Batch) -> Record:
        """Return each layer's inputs and output gradients."""
        *activations, outputs = self._forward(batch[0])
        found = [errors(outputs, batch[1])]
        for weights, given in zip(self.weights[:0:-1], activations[:0:-1], strict=True):
            passed = found[0] @ weights[:, :-1].transpose(1, 2)
            found.insert(0, torch.where(given[..., :-1] > 0, passed, 0.0))
        return list(zip(activations, found, strict=True))

    def step(self, batch: Batch, weights: Tensor, rate: float) -> Tensor:
        """Take a step of Adam."""
        self.recorded = self.record(batch)
        for (given, found), gradient in zip(self.recorded, self.gradients, strict=True):
            torch.bmm(given.transpose(1, 2), found * weights[..., None], out=gradient)
        own = 1.0 + self.recorded[-1][1].gather(-1, batch[1][..., None])[..., 0]  # the probability given
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        return -own.clamp(min=1e-12).log()
