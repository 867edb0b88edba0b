"""How often the certificates of top layers decide a sign or an order, in chains on digits."""

from collections.abc import Iterator
from typing import Any

import lai_torch
import numpy as np
from torch import nn

import lai_core as lai
from experiments.figures.networks import LOSS, digits, perceptron, trace, train
from lai_core import assumptions, bounds

WIDTHS = (64, 32, 32, 32, 10)


def certificates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for each network and each number of exact top layers, the shares that are certain and right."""
    training, pool = digits()
    for name, activation in (("ReLU", nn.ReLU), ("GELU", nn.GELU)):
        for steps in (0, 300):
            model = perceptron(WIDTHS, activation=activation)
            train(model, training, steps)
            batches = [(x[:count], y[:count]) for (x, y), count in ((pool, 32), (training, 64))]
            sides = [trace(model, batch) for batch in batches]
            found = assumptions.similarities(*sides)
            parts = (found.alpha + 1) * found.beta  # the bias of each layer is a column of ones
            weights = [layer.weight.detach() for layer in model if isinstance(layer, nn.Linear)]
            gates = [lai_torch.trace_gates(model, LOSS, *batch).gates for batch in batches]
            exact = np.asarray(lai.ghost_scores(*sides))
            for top in range(1, len(weights)):
                below = len(weights) - top
                factors = [
                    np.stack(
                        [np.asarray(bounds.layer_factors(weights[t + 1], side[t])) for t in range(below)]
                    )
                    for side in gates
                ]
                norms = [np.asarray(n[below]) for n in (found.validation_gradients, found.training_gradients)]
                bound = bounds.top_layers_bound(np.asarray(found.alpha[:below] + 1), *factors, *norms)
                score = np.asarray(parts[below:].sum((0, 1)))
                signs, orders = (
                    np.abs(score) > bound,
                    np.triu(np.abs(score[:, None] - score) > bound[:, None] + bound, 1),
                )
                assert (np.abs(exact - score) <= bound * (1 + 1e-4) + 1e-3).all()
                pairs = len(score) * (len(score) - 1) / 2
                yield (
                    f"{name}, {steps} steps, top {top} of {len(weights)}",
                    {
                        "signs": float(signs.mean()),
                        "orders": float(orders.sum() / pairs),
                        "bound_over_missing": float(np.median(bound / np.abs(exact - score))),
                        "certified_regret": float(
                            bounds.certified_regret_bound(score, bound) / np.maximum(exact, 0).sum()
                        ),
                    },
                )
