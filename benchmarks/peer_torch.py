"""What a user would pick instead of Ghost: the gradient of each sample, from opacus.

Its inner product with the validation gradient is the Ghost score. The gradients of a batch take the
model's bytes once per sample, so they are made a micro-batch at a time. What opacus 1.6 needs, or does
not see:

- BatchNorm is refused ("has buffers", issue 319), and nothing is recorded in eval mode. Here it
  normalises by its running statistics with its gains and shifts frozen: they are out of the scores.
- Position ids that have no batch axis, as GPT-2 and BERT make them, give the position embedding one
  gradient for the batch (issue 841). Here the ids come in, one row per sample.
- Each weight's gradient is computed twice: per sample by opacus, summed by the backward pass it hooks.

Tied weights (issue 413) are no trouble any more: on GPT-Neo its scores are Ghost's.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.models import HALF, Work, parts, rows

MICRO_BATCH = 8
"""Samples whose gradients exist at once: operations do not depend on it, memory does."""


class Peer:
    """Curates by the gradients of opacus."""

    def __init__(
        self,
        work: Work,  # what to train; its model carries hooks from here on
    ) -> None:
        self.work = work
        self.norms = [module for module in work.model.modules() if isinstance(module, _BatchNorm)]
        with self.without_norms():
            self.parameters = [p for p in work.model.parameters() if p.requires_grad]
            self.wrapped = GradSampleModule(work.model, loss_reduction="sum")
        self.wrapped.disable_hooks()

    @contextmanager
    def without_norms(self) -> Iterator[None]:
        """Let BatchNorm normalise by its running statistics, frozen."""
        for norm in self.norms:
            norm.eval().requires_grad_(False)
        try:
            yield
        finally:
            for norm in self.norms:
                norm.train().requires_grad_(True)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Score the batch, train on the half that helps most."""
        weights = HALF(self.scores())
        kept = weights.nonzero().squeeze(1)
        optimizer.zero_grad(set_to_none=True)
        with _hooked():
            (weights[kept] * self.work.losses(*rows(self.work.batch, kept))).sum().backward()
        optimizer.step()

    def scores(self) -> Tensor:
        """`(n,)`: the inner products of each sample's gradient with the validation gradient."""
        direction = self._direction()
        with self.without_norms(), _hooked():
            found = [self._products(direction, part) for part in parts(self.work.batch, MICRO_BATCH)]
        return torch.cat(found)

    def _direction(self) -> list[Tensor]:
        """Return the gradient of the summed validation loss, as columns."""
        self._forget()
        with self.without_norms(), _hooked():
            for part in parts(self.work.validation, len(self.work.batch[1])):
                self.work.losses(*_with_positions(*part)).sum().backward()
        found = [parameter.grad.reshape(-1, 1) for parameter in self.parameters]
        self._forget()
        return found

    def _products(self, direction: list[Tensor], part: tuple[Any, Tensor]) -> Tensor:
        """Return a micro-batch's scores."""
        self.wrapped.enable_hooks()
        self.work.losses(*_with_positions(*part)).sum().backward()
        self.wrapped.disable_hooks()
        pairs = zip(self.parameters, direction, strict=True)
        found = sum(parameter.grad_sample.flatten(1) @ column for parameter, column in pairs)
        self._forget()
        return found.squeeze(1)

    def _forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = parameter.grad_sample = None


@contextmanager
def _hooked() -> Iterator[None]:
    """Silence the hook of a first layer, whose input is data: it needs the output's gradient alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield


def _with_positions(inputs: Any, targets: Tensor) -> tuple[Any, Tensor]:
    """Give a sequence model the position ids it would make, with a batch axis."""
    if isinstance(inputs, Tensor):
        return inputs, targets
    ids = inputs["input_ids"]
    return {**inputs, "position_ids": torch.arange(ids.shape[1]).expand_as(ids)}, targets
