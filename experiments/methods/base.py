"""The loop that all methods share, and the registry that they enter.

A method is a function from a run to a step: given the rows of a batch, the step returns their weights, zero
for what is left out, after training on them. Whatever it computes, it computes inside the step or before it,
where operations are counted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from experiments.data.digits import Batch
from experiments.harness.cost import Meter

LOSS = nn.CrossEntropyLoss(reduction="none")
Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Task:
    """What is learnt: inputs and labels as given, a network, and how plain training was tuned for it."""

    training: Batch
    validation: Batch
    test: Batch
    wrong: Tensor
    """Which training labels are wrong. Only the oracle sees it."""
    network: Callable[[int], nn.Module]
    """From a seed to the network."""
    learning_rate: float
    batch: int
    epochs: int


METHODS: dict[str, Callable[["Run"], Step]] = {}
"""Every way to choose, by name: from a run to its step."""


class Run:
    """One training run of one method: the network, the data it may choose from, and random numbers."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed, self.meter = task, seed, Meter()
        self.inputs, self.labels = task.training
        self.wrong = task.wrong
        self.model, self.optimizer = self.another(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.progress = 0.0
        """The share of the epochs that are over."""
        self.steps = max(1, len(self.labels) // task.batch)
        """How many an epoch has."""
        self.scores = torch.full(self.labels.shape, torch.nan)
        """What the samples were scored in this epoch; NaN where they were not. Positive helps."""

    def another(self, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return a network of the task from a seed, and its optimizer."""
        model = self.task.network(seed)
        return model, torch.optim.Adam(model.parameters(), lr=self.task.learning_rate)

    def batch(self, rows: Tensor) -> Batch:
        return self.inputs[rows], self.labels[rows]

    def losses(self, rows: Tensor, model: nn.Module | None = None) -> Tensor:
        inputs, labels = self.batch(rows)
        return LOSS(outputs(model or self.model, inputs), labels)

    def update(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Step on the weighted sum of the losses of the rows that have a weight; return the weights."""
        kept = weights > 0
        if kept.any():
            descend(self.model, self.optimizer, self.batch(rows[kept]), weights[kept])
        return weights

    def accuracy(self, batch: Batch) -> float:
        found = outputs(self.model, batch[0]).argmax(1)
        return float((found == batch[1]).double().mean())

    def mean_loss(self, batch: Batch) -> float:
        return float(LOSS(outputs(self.model, batch[0]), batch[1]).double().mean())


def descend(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    weights: Tensor,
    loss: Callable[..., Tensor] = LOSS,
) -> None:
    """Take one step on the weighted sum of losses."""
    optimizer.zero_grad()
    (weights * loss(model(batch[0]), batch[1])).sum().backward()
    optimizer.step()


def outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return what a network says in eval mode, without a gradient."""
    training = model.training
    model.eval()
    with torch.no_grad():
        found = model(inputs)
    model.train(training)
    return found


def lowest(values: Tensor, share: float) -> Tensor:
    """Return weights that keep the share of lowest values, and sum to one."""
    count = max(1, round(share * len(values)))
    weights = torch.zeros_like(values)
    weights[values.topk(count, largest=False).indices] = 1.0 / count
    return weights


@dataclass(frozen=True)
class Outcome:
    """What a run gave: accuracies and operations after each epoch, and what was scored and kept in it."""

    run: Run
    test: list[float]
    validation: list[float]
    operations: list[float]
    often: Tensor
    """`(epochs, n)`: how often a sample took part in an update."""
    scores: Tensor
    """`(epochs, n)`, NaN where a sample was not scored."""
    plain_operations: float
    """Those of plain training, as many epochs."""
    checks: float
    """Those of a pass over the validation set after each epoch, which stopping early takes."""

    @property
    def stopped(self) -> float:
        """The test accuracy after the first epoch of the highest validation accuracy."""
        return self.test[int(np.argmax(self.validation))]

    def metrics(self) -> dict[str, float]:
        """Return the numbers of a record: accuracy at equal epochs, stopped early, and at plain's cost."""
        run, often = self.run, self.often.sum(0)
        wrong = run.wrong.numpy().astype(bool)
        ratio = [count / self.plain_operations for count in self.operations]
        affordable = [i for i, of in enumerate(ratio) if of <= 1.0 + 1e-6]
        found = {
            "accuracy": self.test[-1],
            "stopped early": self.stopped,
            "at plain's cost": self.test[affordable[-1]] if affordable else 0.0,
            "cost": ratio[-1],
            "kept": float(often.sum()) / (len(self.test) * run.steps * run.task.batch),
            "wrong of kept": float((often * run.wrong).sum() / often.sum().clamp(min=1.0)),
            "test loss": run.mean_loss(run.task.test),
            "validation loss": run.mean_loss(run.task.validation),
        }
        if wrong.any() and not wrong.all():
            found["wrong labels found (AUC)"] = float(roc_auc_score(wrong, -often.numpy()))
        return found


def train(name: str, task: Task, seed: int) -> Outcome:
    """Train one network by a method: the seed's initial weights, the seed's order of samples."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    run, plain, check = Run(task, seed), Run(task, seed), Meter()
    with plain.meter.all():
        plain.update(torch.arange(task.batch), torch.full((task.batch,), 1.0 / task.batch))
    with check.all():
        run.accuracy(task.validation)
    step = METHODS[name](run)
    order = np.random.default_rng((seed, 2))
    total, count = len(run.labels), run.steps * task.batch
    often, scores = torch.zeros(task.epochs, total), torch.full((task.epochs, total), torch.nan)
    found: list[tuple[float, float, float]] = []
    for epoch in range(task.epochs):
        run.progress, run.scores = epoch / task.epochs, scores[epoch]
        passes = -(-count // total)
        rows = torch.from_numpy(np.concatenate([order.permutation(total) for _ in range(passes)]))
        for part in rows[:count].split(task.batch):
            with run.meter.step():
                weights = step(part)
            often[epoch].index_add_(0, part, (weights > 0).float())
        found.append((run.accuracy(task.test), run.accuracy(task.validation), float(run.meter.total)))
    plain_operations = plain.meter.total * run.steps * task.epochs
    curves = (list(curve) for curve in zip(*found, strict=True))
    return Outcome(run, *curves, often, scores, plain_operations, check.total * task.epochs)
