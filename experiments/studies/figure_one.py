"""Figure 1's own setting: batches that are their own validation set, Adam, and two references.

The reference in the authors' released code is an affine function of each sample's own loss. The true one is
the Shapley value of what Adam's step on a subset does to the batch's loss.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lai_torch
import numpy as np
import torch
from torch import Tensor, nn

import lai_core as lai
from experiments.data import prose
from experiments.harness.statistics import Methods, compared
from experiments.harness.study import Found
from experiments.networks import next_loss
from experiments.studies.steps import Game, correlation

RELEASED, TRUE = "figure 1: with the released reference", "figure 1: with the true values"
SIZE, EVERY, CONTEXT = 16, 60, 32


@dataclass
class Reading:
    """A language model that is being trained: its batches, its optimizer, and when it is looked at."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Iterator[Any]
    every: int
    checkpoints: int
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None
    max_norm: float = math.inf

    def step(self, batch: Any) -> None:
        """Train on a batch."""
        self.optimizer.zero_grad()
        next_loss(self.model(batch[0]), batch[1]).mean().backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()


def small(network: Callable[[int], nn.Module], seed: int, config: dict[str, Any]) -> Found:
    """Run Figure 1 on a small network that reads prose."""
    model, random = network(seed).double(), np.random.default_rng((seed, 8))

    def batches() -> Iterator[Any]:
        while True:
            ids = torch.from_numpy(prose.windows(prose.prose(), SIZE, CONTEXT + 1, random))
            yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    checkpoints = 1 if len(config["checkpoints"]) == 1 else 5
    return run(Reading(model, optimizer, batches(), EVERY, checkpoints), config["pairs"], random)


def run(reading: Reading, pairs: int, random: np.random.Generator) -> Found:
    """Train; correlate at checkpoints, and average over them."""
    model, optimizer = reading.model, reading.optimizer
    rows: dict[str, dict[str, list[float]]] = {}
    for step in range(1, reading.every * reading.checkpoints + 1):
        batch = next(reading.batches)
        if step % reading.every == 0:
            with torch.no_grad():
                own = next_loss(model(batch[0]), batch[1]).double().cpu()
            game = Game(model, next_loss, batch, batch, optimizer, max_norm=reading.max_norm)
            true = game.sampled(pairs, random)
            scores = _scores(model, batch, optimizer) | {
                "own loss": own,
                "random": torch.from_numpy(random.normal(size=len(own))),
                "Shapley values": torch.from_numpy(true.mean(0)),
            }
            for name, value in scores.items():
                for metric, reference in ((RELEASED, own.numpy()), (TRUE, true.mean(0))):
                    found = correlation(value.detach().double().cpu().numpy(), reference)
                    rows.setdefault(name, {}).setdefault(metric, []).append(found)
        reading.step(batch)
    return means(rows)


def means(rows: dict[str, dict[str, list[float]]]) -> Found:
    """Return the mean of each method's each metric."""
    return {name: {key: float(np.mean(of)) for key, of in metrics.items()} for name, metrics in rows.items()}


def _scores(model: nn.Module, batch: Any, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    trace = lai_torch.trace(model, next_loss, *batch, gradients="all")
    return {
        "LAI, flattened": lai.lai_scores(trace, trace, positions="flatten"),
        "Ghost, flattened": flattened_ghost(trace),
        "LAI": lai.lai_scores(trace, trace),
        "LLI": lai.lli_scores(trace, trace),
        "Ghost": lai.ghost_scores(trace, trace),
        "midpoint of the optimizer": lai_torch.exact_scores(
            model, next_loss, batch, batch, at="midpoint", optimizer=optimizer
        ),
    }


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
