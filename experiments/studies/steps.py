"""The true worth of samples: Shapley values of the optimizer's actual step on subsets of a batch."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.data.digits import Batch
from experiments.methods.attribution import sample_gradients


class Game:
    """What a set of samples is worth: how much the optimizer's next step on it lowers the validation loss.

    A set's gradient is the sum of its samples', each over the batch's size: the step is the one that training
    would take with the other samples' losses left out of the mean. A gradient longer than `max_norm` is
    shortened to that, as training does.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Tensor],
        held: Batch,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        scale: float = 1.0,
        max_norm: float = math.inf,
    ) -> None:
        self.model, self.loss, self.held, self.optimizer, self.scale = model, loss, held, optimizer, scale
        self.max_norm = max_norm
        self.point = {name: value.detach() for name, value in model.named_parameters()}
        self.gradients = sample_gradients(model, loss, batch)
        self.size = len(batch[1])

    def after(self, members: Tensor) -> dict[str, Tensor]:
        """Return the parameters after a step on a set, `(n,)` of zeros and ones."""
        group, found = self.optimizer.param_groups[0], {}
        gradients = {name: torch.tensordot(members, of, 1) / self.size for name, of in self.gradients.items()}
        norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        short = min(1.0, self.max_norm / (float(norm) + 1e-6))  # as torch's own clipping has it
        decay = group["weight_decay"] if isinstance(self.optimizer, torch.optim.AdamW) else 0.0
        for parameter, (name, value) in zip(self.model.parameters(), self.point.items(), strict=True):
            gradient = move = short * gradients[name]
            if isinstance(self.optimizer, torch.optim.Adam):
                state, (first, second) = self.optimizer.state[parameter], group["betas"]
                count = float(state["step"]) + 1.0
                mean = (first * state["exp_avg"] + (1 - first) * gradient) / (1 - first**count)
                square = (second * state["exp_avg_sq"] + (1 - second) * gradient**2) / (1 - second**count)
                move = mean / (square.sqrt() + group["eps"])
            found[name] = value - self.scale * group["lr"] * (move + decay * value)
        return found

    def loss_after(self, members: Tensor) -> float:
        """Return the summed validation loss after a step on a set."""
        with torch.no_grad():
            outputs = functional_call(self.model, self.after(members), (self.held[0],))
            return float(self.loss(outputs, self.held[1]).double().sum())

    def exact(self) -> np.ndarray:
        """Enumerate every set."""
        n = self.size
        sets = (torch.arange(2**n)[:, None] >> torch.arange(n)) & 1
        worth = -np.array([self.loss_after(one.to(self._like)) for one in sets])
        share = np.array([0.0] + [1 / (n * math.comb(n - 1, size - 1)) for size in range(1, n + 1)])
        found = np.empty(n)
        for player in range(n):
            joined = np.flatnonzero(sets[:, player])
            size = sets[joined].sum(1).numpy()
            found[player] = (share[size] * (worth[joined] - worth[joined - (1 << player)])).sum()
        return found

    def sampled(self, pairs: int, random: np.random.Generator) -> np.ndarray:
        """Return `(pairs, n)`: means over a permutation and its reverse, exact for a quadratic game."""
        rows = np.zeros((pairs, self.size))
        for row in rows:
            order = random.permutation(self.size)
            for joining in (order, order[::-1]):
                members = torch.zeros(self.size).to(self._like)
                before = self.loss_after(members)
                for player in joining:
                    members[player] = 1.0
                    after = self.loss_after(members)
                    row[player] += (before - after) / 2
                    before = after
        return rows

    @property
    def _like(self) -> Tensor:
        return next(iter(self.point.values()))


def agreement(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compare scores with true values: two correlations, the best half, and what choosing it loses.

    The regret is 0 for the truly best half and 1 for the truly worst.
    """
    half = len(truth) // 2
    chosen, best = (np.argsort(-values, kind="stable")[:half] for values in (scores, truth))
    ordered = np.sort(truth)
    most, least = ordered[-half:].sum(), ordered[:half].sum()
    return {
        "Pearson": correlation(scores, truth),
        "Spearman": correlation(*(values.argsort().argsort().astype(float) for values in (scores, truth))),
        "best half": len(set(chosen) & set(best)) / half,
        "regret": float((most - truth[chosen].sum()) / (most - least)),
    }


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Pearson's correlation; 0 where one does not vary."""
    if np.ptp(one) == 0.0 or np.ptp(other) == 0.0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
