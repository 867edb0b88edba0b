"""Scores that a run adds up, `(n_test, n)`: how the steps on each sample lower each test sample's loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from lai_torch._curation.tracer import Tracer
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import lai_core as lai
from experiments.data.digits import Batch
from experiments.methods.attribution import flat_gradients
from experiments.methods.base import LOSS
from experiments.retraining.trained import Setting
from lai_core.optimizers import Adam, adam_derivative_scores, adam_step
from workloads.counts import counted


def tracer(model: nn.Module, *parts: Batch) -> Tracer:
    """Return what traces batches like these at every layer, and has proved how."""
    found = Tracer(model, LOSS, every_layer=True)
    for part in parts * 2:
        found(part)
    return found


@dataclass(frozen=True)
class Step:
    """A step on a batch, before it is taken."""

    record: Tracer
    """Of the network at the parameters before the step."""
    positions: str
    """What LAI means by an inner product of positions."""
    rate: float
    adam: Adam | None
    """None for SGD."""
    held: Batch
    """The test samples."""
    batch: Batch
    parameters: Tensor
    """Vectors of all parameters: their values, the gradient of the mean loss, Adam's moments."""
    gradient: Tensor
    first: Tensor
    second: Tensor
    count: int
    """Which step this is, from 1."""

    @cached_property
    def sides(self) -> list[lai.Trace]:
        """Traces of the test samples and of the batch."""
        return [self.record(part)[0] for part in (self.held, self.batch)]

    def after(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parameters and moments after the optimizer's step on a gradient."""
        if self.adam is None:
            return self.parameters - self.rate * gradient, self.first, self.second
        moments = self.first, self.second
        return adam_step(self.parameters, gradient, *moments, adam=self.adam, step=self.count)

    def there(self, parameters: Tensor, look: Callable[[], Any]) -> Any:
        """Return what a function gives while the network has other parameters."""
        vector_to_parameters(parameters, self.record.model.parameters())
        found = look()
        vector_to_parameters(self.parameters, self.record.model.parameters())
        return found


def midpoint(step: Step) -> Tensor:
    """Return inner products with the test samples' gradients in the middle of SGD's step."""
    middle = step.parameters - 0.5 * step.rate * step.gradient
    held, _ = step.there(middle, lambda: step.record(step.held))
    return lai.ghost_kernel(held, step.sides[1])


def adam_midpoint(step: Step) -> Tensor:
    """Return the derivatives of Adam's step at half of the gradient, for each test sample."""
    half, model = 0.5 * step.gradient, step.record.model
    toward = step.there(step.after(half)[0], lambda: flat_gradients(model, step.held))
    own = flat_gradients(model, step.batch)

    def scores(gradient: Tensor) -> Tensor:
        state = step.parameters, half, step.first, step.second
        return adam_derivative_scores(gradient, own, *state, adam=step.adam, step=step.count)

    return torch.vmap(scores)(toward)


SUMMED: dict[str, Callable[[Step], Tensor]] = {
    "LLI": lambda step: lai.lli_kernel(*step.sides),
    "LAI": lambda step: lai.lai_kernel(*step.sides, positions=step.positions),
    "Ghost": lambda step: lai.ghost_kernel(*step.sides),
    "midpoint": midpoint,
}
ADAMS = {"midpoint of Adam": adam_midpoint}
"""Of Adam's runs alone."""


@dataclass(frozen=True)
class Summed:
    """What a run gave: the network at its end, scores `(n_test, n)`, and their costs in trainings."""

    model: nn.Module
    scores: dict[str, Tensor]
    costs: dict[str, float]
    operations: int
    """Of the training alone."""


def train(setting: Setting, kind: str, seed: int, training: Batch, held: Batch, rows: Tensor) -> Summed:
    """Train on the rows of each step, `(steps, batch)`; add up what each step does for each test sample."""
    model = setting.network(seed)
    record = tracer(model, held, (training[0][rows[0]], training[1][rows[0]]))
    rate = setting.rates[kind]
    adam = Adam(learning_rate=rate) if kind == "Adam" else None
    names = SUMMED | (ADAMS if adam else {})
    scores = {name: torch.zeros(len(held[1]), len(training[1])) for name in names}
    spent, plain = {}, 1
    parameters = parameters_to_vector(model.parameters()).detach()
    first = second = torch.zeros_like(parameters)
    for count, index in enumerate(rows, 1):
        batch = training[0][index], training[1][index]

        def descend(batch: Batch = batch) -> None:
            model.zero_grad()
            LOSS(model(batch[0]), batch[1]).mean().backward()

        descend()
        gradient = parameters_to_vector([value.grad for value in model.parameters()])
        state = parameters, gradient, first, second
        step = Step(record, setting.positions, rate, adam, held, batch, *state, count)
        if count == 1:  # what a step costs, and each score by itself
            spent = {name: counted(partial(score, replace(step))).flops for name, score in names.items()}
            plain = counted(descend).flops
        for name, score in names.items():
            scores[name].index_add_(1, index, score(step).detach())
        parameters, first, second = step.after(gradient)
        vector_to_parameters(parameters, model.parameters())
    costs = {name: 1.0 + spent[name] / plain for name in names}
    return Summed(model, scores, costs, plain * len(rows))
