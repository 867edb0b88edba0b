"""A curator's selective backward pass against the masked gradient: the steps of training, model by model."""

from collections.abc import Callable
from typing import Any

import lai_torch
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import lai_core as lai
from tests.support.workloads.counts import counted
from tests.support.workloads.torch_oracle import called, rows
from tests.support.workloads.torch_parts import Case
from tests.support.workloads.torch_training import COMPUTES_IN_FLOAT32, SAMPLES, prepared

STEPS = 20
ERROR_BOUND = 1e-12
COARSE_BOUND = 1e-9


def masked(case: Case, inputs: Any, targets: Any, weights: Tensor) -> list[Tensor | None]:
    """Return the gradient of the weighted losses of the whole batch by plain autograd."""
    trainable = [p for p in case.model.parameters() if p.requires_grad]
    values = case.loss(called(case.model, inputs), targets)
    return list(torch.autograd.grad((values * weights).sum(), trainable, allow_unused=True))


def error(case: Case, exact: list[Tensor | None]) -> float:
    """Return how far `.grad` is from the exact gradient, relative to its largest entry."""
    trainable = [p for p in case.model.parameters() if p.requires_grad]
    pairs = [(p.grad, one) for p, one in zip(trainable, exact, strict=True)]
    largest = max(float(one.abs().max()) for _, one in pairs if one is not None)
    zero = torch.zeros(())
    both = ((zero if found is None else found, zero if one is None else one) for found, one in pairs)
    return max(float((found - one).abs().max()) for found, one in both) / largest


def batches(case: Case, steps: int) -> list[tuple[Any, Any, Tensor]]:
    """Return batches, every fifth one smaller, each with weights that keep another number of samples."""
    result = []
    for step in range(steps):
        n = 7 if step % 5 == 4 else SAMPLES
        inputs, targets = (rows(side, slice(n), SAMPLES) for side in (case.inputs, case.targets))
        weights = torch.zeros(n, dtype=torch.float64)
        weights[torch.randperm(n)[: (1, 3, n, n // 2, 2)[step % 5]]] = 1.0
        result.append((inputs, targets, weights * (torch.rand(n, dtype=torch.float64) + 0.1)))
    return result


def measure(build: Callable[[int], Case], steps: int = STEPS) -> dict[str, float]:
    """Return the largest relative error over the steps, operations over a plain step's, compilations.

    The curator scores by the last layer against a summary of the batch, takes the weights that it is told,
    and steps at a rate of zero. Operations are those of its passes, without those of the products in scores.
    """
    with torch.random.fork_rng(devices=[]):
        case = prepared(build)
        state = torch.get_rng_state()
        trace = lai_torch.trace(case.model, case.loss, case.inputs, case.targets)
        torch.set_rng_state(state)
        summary, told = lai.summarize(trace, "lli"), torch.empty(0)
        curator = lai_torch.Curator(
            case.model,
            case.loss,
            torch.optim.SGD(case.model.parameters(), lr=0.0),
            summary,
            estimator="lli",
            policy=lambda scores: told,
            backward="selective",
        )
        largest, before = 0.0, compilations()
        for inputs, targets, told in batches(case, steps):
            state = torch.get_rng_state()
            curator.step(inputs, targets)
            torch.set_rng_state(state)
            largest = max(largest, error(case, masked(case, inputs, targets, told)))
        captures = compilations() - before
        told = (torch.arange(SAMPLES) % 2).double()
        curated = counted(lambda: curator.step(case.inputs, case.targets)).flops
        products = counted(lambda: lai.lli_scores(summary, trace)).flops
        plain = counted(lambda: masked(case, case.inputs, case.targets, torch.ones_like(told))).flops
    ratio = (curated - products) / plain
    return {"relative_error": largest, "flops_ratio": ratio, "captures": captures}


def compilations() -> int:
    """Return how many graphs this process has compiled."""
    return counters["stats"]["unique_graphs"]


def bound(name: str) -> float:
    """Relative error that a model may have."""
    return COARSE_BOUND if name in COMPUTES_IN_FLOAT32 else ERROR_BOUND
