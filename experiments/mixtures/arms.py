"""Training on a mixture of sources, at one total cost in forward passes: networks of all seeds at once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

import lai_core as lai

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


BATCH, MIXED_IN, RATE = 64, 16, 2e-3
PERIOD = 20
"""Steps between two updates of the shares."""
PLAIN = 3.0
"""Forward passes that training on a sample costs: one forward, two backward."""
SCORES = {"lai": lai.lai_scores, "lli": lai.lli_scores, "ghost": lai.ghost_scores}


@dataclass(frozen=True)
class Task:
    """Sources of all seeds: `(seeds, samples, ...)`, source after source, and what is to be learnt."""

    inputs: Tensor
    targets: Tensor
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    validation: tuple[Batch, ...]
    """Where the target changes half-way, one for each half; `test` likewise."""
    test: tuple[Batch, ...]
    known: tuple[tuple[float, ...], ...]
    """Mixtures that the oracle tries, chosen by one who knows the sources."""
    learners: Callable[[], Any]
    steps: int
    batch: int = BATCH
    mixed_in: int = MIXED_IN
    rate: float = RATE

    def draw(self, sources: Tensor, random: torch.Generator) -> Batch:
        """Draw a sample of each of the sources `(seeds, n)`."""
        sizes = torch.tensor(self.sizes)
        first = sizes.cumsum(0) - sizes
        rows = first[sources] + (torch.rand(sources.shape, generator=random) * sizes[sources]).long()
        return picked((self.inputs, self.targets), rows)


def picked(batch: Batch, rows: Tensor) -> Batch:
    """Return rows `(seeds, n)` of a batch."""
    first = torch.arange(len(rows))[:, None] * batch[0].shape[1]
    inputs, targets = (part.flatten(0, 1).index_select(0, (first + rows).flatten()) for part in batch)
    return inputs.unflatten(0, rows.shape), targets.unflatten(0, rows.shape)


@dataclass(frozen=True)
class Arm:
    """What is compared: where the shares come from, and what else a batch holds."""

    shares: Callable[..., Any]
    """From a run, and `options`, to the object that holds them."""
    mixed: bool = False
    """Whether validation samples are trained on as well."""
    decayed: bool = False
    """Whether the learning rate follows a cosine to 0."""
    samples: str = ""
    """The estimator whose positive scores a sample needs to be kept; "": all are kept."""
    options: dict[str, Any] = field(default_factory=dict)


class Run:
    """One arm on one task, all seeds at once; every forward pass is paid for until the budget is spent."""

    def __init__(self, task: Task, arm: Arm) -> None:
        self.task, self.arm = task, arm
        self.random = torch.Generator().manual_seed(7)
        self.learners = task.learners()
        self.seeds, self.count = len(task.inputs), len(task.sizes)
        self.budget, self.paid, self.steps = PLAIN * task.steps * task.batch, 0.0, 0
        self.policy = arm.shares(self, **arm.options)

    @property
    def half(self) -> int:
        """Say which of the targets is to be learnt now."""
        return int(len(self.task.test) > 1 and self.paid > self.budget / 2)

    @property
    def validation(self) -> Batch:
        """The validation set as it is now."""
        return self.task.validation[self.half]

    def train(self) -> "Run":
        """Train until the budget is spent."""
        while self.paid < self.budget:
            self.step()
        return self

    def step(self) -> None:
        """Draw a batch, score it if it is its turn, and train on it."""
        task, arm, learners = self.task, self.arm, self.learners
        self.policy.before(self)
        sources = torch.multinomial(self.policy.weights, task.batch, replacement=True, generator=self.random)
        batch = task.draw(sources, self.random)
        weights = torch.ones(sources.shape)
        if arm.samples:
            weights = self._kept(batch, arm.samples)
        if arm.mixed:
            held = self.drawn(task.mixed_in)
            batch = (torch.cat([batch[0], held[0]], 1), torch.cat([batch[1], held[1]], 1))
            weights = torch.cat([weights, torch.ones(held[1].shape[:2])], 1)
        progress = min(self.paid / self.budget, 1.0)
        rate = task.rate * (0.5 + 0.5 * math.cos(math.pi * progress) if arm.decayed else 1.0)
        found = learners.step(batch, weights / weights.shape[1], rate)
        self.paid += PLAIN * weights.shape[1]
        self.steps += 1
        self.policy.after(self, sources, batch, found[:, : task.batch])

    def drawn(self, count: int) -> Batch:
        """Draw validation samples."""
        rows = torch.randint(self.validation[1].shape[1], (self.seeds, count), generator=self.random)
        return picked(self.validation, rows)

    def _kept(self, batch: Batch, estimator: str) -> Tensor:
        """Return weights that keep the samples with a positive score, `(seeds, n)` with mean 1."""
        held, record = self.policy.held, self.learners.record(batch)
        if not held:
            held = self.learners.record(self.validation)
            self.paid += self.validation[1].shape[1]
        self.paid += self.learners.costs[estimator] * batch[1].shape[1]
        kept = vmap(lai.keep_positive)(scored(estimator, held, record))
        dropped = float((kept == 0).float().mean())
        self.paid -= (PLAIN - 1.0) * dropped * batch[1].shape[1]
        return kept * batch[1].shape[1]

    def metrics(self) -> dict[str, list[float]]:
        """Return the test accuracy, the test loss and the cost of a step of each seed."""
        inputs, targets = self.task.test[self.half]
        logits = self.learners.logits(inputs)
        found = {
            "accuracy": (logits.argmax(-1) == targets).flatten(1).float().mean(1).tolist(),
            "test loss": losses(logits, targets).mean(1).tolist(),
            "cost": [self.budget / (self.steps * PLAIN * self.task.batch)] * self.seeds,
        }
        for name in dict.fromkeys(self.task.names):
            of = torch.tensor([name == each for each in self.task.names])
            found[f"share of {name}"] = self.policy.weights[:, of].sum(1).tolist()
        return found


def scored(estimator: str, held: Record, record: Record) -> Tensor:
    """Return the scores `(seeds, n)` of recorded samples against a recorded validation set."""

    def one(*arrays: Tensor) -> Tensor:
        sides = []
        for side in (arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]):
            layers = list(zip(side[::2], side[1::2], strict=True))
            if estimator == "lai":
                layers = [(given, None) for given, _ in layers[:-1]] + layers[-1:]
            sides.append(lai.Trace([lai.LayerTrace(*layer) for layer in layers]))
        return SCORES[estimator](*sides)

    read = slice(-1, None) if estimator == "lli" else slice(None)
    return vmap(one)(*(array for side in (held, record) for layer in side[read] for array in layer))
