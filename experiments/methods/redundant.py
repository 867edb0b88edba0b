"""Choices of a set, not of samples one by one: what two candidates say alike counts once.

All products between candidates come from the trace that scores them: their own Gram matrix.
"""

from collections.abc import Callable

import lai_torch
import torch
from torch import Tensor

import lai_core as lai
from experiments.methods.base import LOSS, METHODS, Run, Step

HALF = 0.5


def nearest_set(toward: Tensor, gram: Tensor, share: float) -> Tensor:
    """Return weights of the share of a batch whose mean gradient comes near the validation set's, greedily.

    One step along the mean gradient `m` of a set is worth `toward . m - |m|^2 / 2`, to the second order and
    with the identity for the curvature: up to a constant, half the squared distance to the validation
    gradient. A candidate is worth what it adds: its product with the validation gradient, less its products
    with those already chosen. `toward` is `(n,)`, `gram` `(n, n)`: the candidates' products with the mean
    validation gradient, and with each other.
    """
    count = max(1, round(share * len(toward)))
    chosen = torch.zeros_like(toward)
    worth = toward - gram.diagonal() / (2 * count)
    for _ in range(count):
        best = worth.masked_fill(chosen > 0, -torch.inf).argmax()
        chosen[best] = 1.0
        worth = worth - gram[best] / count
    return chosen / count


def as_a_set(estimator: str) -> Callable[[Run], Step]:
    """Return the start of a run that trains on such a half."""
    scores, kernel = (getattr(lai, f"{estimator}_{what}") for what in ("scores", "kernel"))
    gradients = "all" if estimator == "ghost" else "output"

    def start(run: Run) -> Step:
        def step(rows: Tensor) -> Tensor:
            parts = run.task.validation, run.batch(rows)
            held, batch = (lai_torch.trace(run.model, LOSS, *part, gradients=gradients) for part in parts)
            toward, gram = scores(held, batch), kernel(batch, batch)
            return run.update(rows, nearest_set(toward / len(parts[0][1]), gram, HALF))

        return step

    return start


for name, start in (
    ("GREATS-like", as_a_set("ghost")),
    ("LAI as a set", as_a_set("lai")),
):
    METHODS[name] = start
