"""Estimate the cost of exact token pairs, in forward passes, before running them."""

import warnings
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import lai_core as lai
from lai_core.estimators.costs import summary_cost
from lai_torch._model.batch import call, count, rows, tensors
from lai_torch._model.function import plain_attention
from lai_torch._model.preserve import evaluating, preserved


def forward_cost(model: nn.Module, inputs: Any) -> int:
    """Return the multiply-adds of one forward pass, counted by torch as it runs once."""
    counter = FlopCounterMode(display=False)
    with preserved(model), torch.no_grad(), plain_attention(), counter:
        call(model, inputs)
    return int(counter.get_total_flops()) // 2


class TokenCost:
    """Counts, and warns once where exact pairs of tokens cost more than a forward pass."""

    def __init__(
        self,
        # whose forward pass is the unit; counted once for every shape of a sample, on two samples
        model: nn.Module,
    ) -> None:
        self.model = model
        self._forwards: dict[tuple[tuple[int, ...], ...], float] = {}
        self._warned = False

    def __call__(self, trace: lai.Trace, batch: tuple[Any, Any], sketch: int | None) -> float | None:
        """Return the forward passes that scoring costs; None for a last layer without positions."""
        gradients: Any = trace.layers[-1].output_gradients
        if gradients.ndim != 3:
            return None
        exact = summary_cost(trace, "lai") / self._forward(batch)
        outputs = gradients.shape[-1]
        if sketch is not None:
            return exact * sketch / outputs
        if exact > 1.0 and not self._warned:
            self._warned = True
            quarter = max(1, int(0.25 * outputs / exact))
            warnings.warn(
                f"positions: exact pairs of tokens cost {exact:.2g} forward passes to score a batch, and as "
                f"much for every validation batch of that size; sketch={quarter} costs a quarter of one, "
                "positions='mean' less (options of lai_torch.LAI; lai_torch.routes lists them all)",
                UserWarning,
                stacklevel=2,
            )
        return exact

    def _forward(self, batch: tuple[Any, Any]) -> float:
        """Return the multiply-adds of the batch's forward pass: as many for each sample of one shape."""
        samples = count(*batch)
        pair = rows(batch[0], slice(0, 2), samples)
        shape = tuple(tuple(tensor.shape) for tensor in tensors(pair))
        if shape not in self._forwards:
            with evaluating(self.model):  # BatchNorm in training mode cannot run on one row
                self._forwards[shape] = forward_cost(self.model, pair) / min(samples, 2)
        return samples * self._forwards[shape]
