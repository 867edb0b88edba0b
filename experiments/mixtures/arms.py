"""Training on a mixture of sources, at one total cost in forward passes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

import lai_core as lai
from experiments.mixtures.learners import Batch, Record, losses

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
