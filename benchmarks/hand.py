"""The same step written by hand: hooks put on once, no check of anything. What a curator is measured against.

LAI by the mean over positions, from a cached summary: an eval pass without a graph up to the last layer,
the gradient there, one product with the summary, the better half, a training step on it.
"""

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models import Work
from tests.support.workloads.torch_oracle import rows

LAYERS = ("Linear", "Conv1D", "Conv2d")


class Hand:
    """Curates one model whose layers are modules, each called once."""

    def __init__(
        self,
        work: Work,  # work, optimizer: what to train, and what steps
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.work, self.optimizer = work, optimizer
        self.inputs: list[Tensor] = []
        self.output: Any = None
        self.reading, self.last = False, None
        modules = [one for one in work.model.modules() if type(one).__name__ in LAYERS]
        self.order: list[nn.Module] = []
        for module in modules:
            module.register_forward_pre_hook(self._read)
        self._pass(work.batch)
        self.last = self.order[-1]
        self.last.register_forward_hook(self._cut)
        self.biases = sum(module.bias is not None for module in self.order)
        gradients, columns = self._sides(work.validation)
        self.total, self.offset = gradients.T @ columns, gradients.sum(0) * self.biases

    def _read(self, module: nn.Module, given: tuple[Tensor]) -> None:
        if self.reading:
            (inputs,) = given
            space = tuple(range(2, 4)) if inputs.ndim == 4 else tuple(range(1, inputs.ndim - 1))
            self.inputs.append(inputs.mean(space) if space else inputs)
            if self.last is None:
                self.order.append(module)

    def _cut(self, module: nn.Module, given: Any, output: Tensor) -> Tensor | None:
        if not self.reading:
            return None
        torch.set_grad_enabled(mode=True)
        self.output = output.detach().requires_grad_()
        return self.output

    def _pass(self, side: Any) -> Tensor:
        self.reading, self.inputs = True, []
        self.work.model.eval()
        with torch.no_grad():
            losses = self.work.losses(*side)
        self.work.model.train()
        self.reading = False
        return losses

    def _sides(self, side: Any) -> tuple[Tensor, Tensor]:
        (gradient,) = torch.autograd.grad(self._pass(side).sum(), self.output)
        return gradient.mean(1) if gradient.ndim == 3 else gradient, torch.cat(self.inputs, 1)

    def step(self) -> None:
        """Score the batch, train on its better half."""
        gradients, columns = self._sides(self.work.batch)
        scores = ((gradients @ self.total) * columns).sum(1) + gradients @ self.offset
        kept = scores.topk(len(scores) // 2, sorted=False).indices
        self.optimizer.zero_grad(set_to_none=True)
        self.work.losses(*rows(self.work.batch, kept, len(scores))).mean().backward()
        self.optimizer.step()
