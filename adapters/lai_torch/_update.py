"""One optimizer step on the kept rows of a batch that cannot make a parameter non-finite."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._batch import Loss, call, check_losses, count, rows


@dataclass(frozen=True)
class Update:
    """What an update did.

    Attributes
    ----------
    weights
        `(n,)`: the weights it used; zeros where a sample was dropped, all zeros if it was skipped.
    losses
        `(n,)`: the losses of the rows it ran on, NaN elsewhere.
    dropped
        How many rows with a positive weight were left out, their loss being not finite.
    taken
        Whether the optimizer stepped.
    """

    weights: Tensor
    losses: Tensor
    dropped: int
    taken: bool

    @property
    def loss(self) -> float:
        """The weighted loss that the step minimised; NaN if there was no step."""
        used = self.weights > 0
        if not self.taken:
            return float("nan")
        return float((self.weights[used] * self.losses[used].to(self.weights)).sum())


def update(
    model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, inputs: Any, targets: Any, weights: Tensor
) -> Update:
    """Step on `sum_j weights_j loss_j`, running the model on the rows with a positive weight alone.

    Rows whose loss is not finite are dropped and their weight is spread over the others. If the
    gradient is not finite all the same, nothing is stepped.
    """
    samples = count(inputs, targets)
    positive = weights > 0
    losses = torch.full_like(weights, float("nan"))
    kept = positive.nonzero().squeeze(1)
    values = None
    for _ in range(2):
        if not kept.numel():
            break
        batch = (inputs, targets) if kept.numel() == samples else rows((inputs, targets), kept, samples)
        values = check_losses(loss(call(model, batch[0]), batch[1]), kept.numel())
        losses[kept] = values.detach().to(losses)
        finite = torch.isfinite(values.detach()).to(kept.device)
        if bool(finite.all()):
            break
        kept, values = kept[finite], None
    dropped = int(positive.sum()) - kept.numel()
    if values is None or not kept.numel():
        return Update(torch.zeros_like(weights), losses, int(positive.sum()), taken=False)
    used = torch.zeros_like(weights)
    used[kept] = weights[kept] * (weights[positive].sum() / weights[kept].sum())
    optimizer.zero_grad(set_to_none=True)
    (values * used[kept].to(values)).sum().backward()
    if not _finite_gradients(optimizer):
        optimizer.zero_grad(set_to_none=True)
        return Update(torch.zeros_like(weights), losses, dropped, taken=False)
    optimizer.step()
    return Update(used, losses, dropped, taken=True)


def _finite_gradients(optimizer: torch.optim.Optimizer) -> bool:
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
