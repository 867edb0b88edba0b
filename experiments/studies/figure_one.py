"""Figure 1's own setting: batches that are their own validation set, Adam, and two references.

The reference in the authors' released code is an affine function of each sample's own loss. The true one is
the Shapley value of what Adam's step on a subset does to the batch's loss.
"""

from collections.abc import Callable
from typing import Any

import lai_torch
import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import lai_core as lai
from experiments.data import prose
from experiments.data.digits import Batch
from experiments.harness.statistics import Methods, compared
from experiments.harness.study import Found
from experiments.methods.base import descend
from experiments.networks import next_loss
from lai_core import shapley

RELEASED, TRUE = "figure 1: with the released reference", "figure 1: with the true values"
SIZE, EVERY, CONTEXT = 16, 60, 32
Loss = Callable[..., Tensor]


def sample_gradients(model: nn.Module, loss: Loss, batch: Batch) -> dict[str, Tensor]:
    """Return each sample's gradient of each parameter, `(n, ...)`."""
    point = {name: value.detach() for name, value in model.named_parameters()}

    def one(at: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Any:
        return loss(functional_call(model, at, (inputs[None],)), targets[None])[0]

    return vmap(grad(one), in_dims=(None, 0, 0))(point, *batch)


def small(network: Callable[[int], nn.Module], seed: int, config: dict[str, Any]) -> Found:
    """Train a small network that reads prose; correlate at checkpoints, and average over them."""
    model, random = network(seed).double(), np.random.default_rng((seed, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    weights = torch.full((SIZE,), 1.0 / SIZE)
    rows: dict[str, dict[str, list[float]]] = {}
    for step in range(1, EVERY * (1 if len(config["checkpoints"]) == 1 else 5) + 1):
        ids = torch.from_numpy(prose.windows(prose.prose(), SIZE, CONTEXT + 1, random))
        batch = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        if step % EVERY == 0:
            with torch.no_grad():
                own = next_loss(model(batch[0]), batch[1])
            true = Game(model, next_loss, batch, batch, optimizer).sampled(config["pairs"], random)
            trace = lai_torch.trace(model, next_loss, *batch, gradients="all")
            scores = {
                "LAI, flattened": lai.lai_scores(trace, trace, positions="flatten"),
                "Ghost, flattened": flattened_ghost(trace),
                "LAI": lai.lai_scores(trace, trace),
                "LLI": lai.lli_scores(trace, trace),
                "Ghost": lai.ghost_scores(trace, trace),
                "midpoint of the optimizer": lai_torch.exact_scores(
                    model, next_loss, batch, batch, at="midpoint", optimizer=optimizer
                ),
                "own loss": own,
                "random": torch.from_numpy(random.normal(size=SIZE)),
                "Shapley values": torch.from_numpy(true.mean(0)),
            }
            for name, value in scores.items():
                for metric, reference in ((RELEASED, own.numpy()), (TRUE, true.mean(0))):
                    found = correlation(value.detach().numpy(), reference)
                    rows.setdefault(name, {}).setdefault(metric, []).append(found)
        descend(model, optimizer, batch, weights, next_loss)
    return means(rows)


def means(rows: dict[str, dict[str, list[float]]]) -> Found:
    """Return the mean of each method's each metric."""
    return {name: {key: float(np.mean(of)) for key, of in metrics.items()} for name, metrics in rows.items()}


def flattened_ghost(trace: Any) -> Tensor:
    """Return the authors' Ghost: of each layer, products of inputs and of output gradients, flattened."""
    total: Any = 0.0
    for layer in trace.layers:
        if isinstance(layer, lai.LayerTrace):
            a, g = layer.activations.flatten(1), layer.output_gradients.flatten(1)
            total = total + (a @ a.T) * (g @ g.T)
    return total.sum(0)


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge that the printed order is that of the reference."""
    texts = ("released reference (own loss)", RELEASED), ("true values", TRUE)
    pair, paper = ("LAI, flattened", "Ghost, flattened"), "0.96 against 0.90 (Figure 1)"
    return {
        f"Figure 1, {text}: LAI's correlation is above Ghost's": compared(methods, *pair, metric, paper=paper)
        for text, metric in texts
    }


class Game:
    """What a set of samples is worth: how much the optimizer's next step on it lowers the validation loss.

    A set's gradient is the sum of its samples', each over the batch's size: the step is the one that training
    would take with the other samples' losses left out of the mean.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        held: Batch,
        batch: Batch,
        optimizer: Any,
    ) -> None:
        self.model, self.loss, self.held, self.optimizer = model, loss, held, optimizer
        self.point = {name: value.detach() for name, value in model.named_parameters()}
        self.gradients = sample_gradients(model, loss, batch)
        self.size = len(batch[1])

    def after(self, members: Tensor) -> dict[str, Tensor]:
        """Return the parameters after a step on a set, `(n,)` of zeros and ones."""
        group, found = self.optimizer.param_groups[0], {}
        gradients = {name: torch.tensordot(members, of, 1) / self.size for name, of in self.gradients.items()}
        for parameter, (name, value) in zip(self.model.parameters(), self.point.items(), strict=True):
            gradient = move = gradients[name]
            if isinstance(self.optimizer, torch.optim.Adam):
                state, (first, second) = self.optimizer.state[parameter], group["betas"]
                count = float(state["step"]) + 1.0
                mean = (first * state["exp_avg"] + (1 - first) * gradient) / (1 - first**count)
                square = (second * state["exp_avg_sq"] + (1 - second) * gradient**2) / (1 - second**count)
                move = mean / (square.sqrt() + group["eps"])
            found[name] = value - group["lr"] * move
        return found

    def loss_after(self, members: Tensor) -> float:
        """Return the summed validation loss after a step on a set."""
        with torch.no_grad():
            outputs = functional_call(self.model, self.after(members), (self.held[0],))
            return float(self.loss(outputs, self.held[1]).double().sum())

    def exact(self) -> np.ndarray:
        """Enumerate every set."""
        start, players = np.zeros(self.size), np.eye(self.size)
        return shapley.one_step_shapley(self._loss_at, start, players, learning_rate=1.0)

    def sampled(self, pairs: int, random: np.random.Generator) -> np.ndarray:
        """Return `(pairs, n)`: means over a permutation and its reverse, exact for a quadratic game."""
        start, players, rows = np.zeros(self.size), np.eye(self.size), []
        for order in (random.permutation(self.size) for _ in range(pairs)):
            orders = (order, order[::-1])
            means, _ = shapley.monte_carlo_shapley(self._loss_at, start, players, orders, learning_rate=1.0)
            rows.append(means)
        return np.stack(rows)

    def _loss_at(self, place: np.ndarray) -> np.float64:
        """Return the loss after a step on a set, minus whose members is the place that `shapley` steps to."""
        return np.float64(self.loss_after(torch.from_numpy(-place)))


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Pearson's correlation; 0 where one does not vary."""
    if np.ptp(one) == 0.0 or np.ptp(other) == 0.0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
