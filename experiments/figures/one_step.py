"""Which estimator follows the true Shapley value of one SGD step, at which learning rate and when."""

from collections.abc import Sequence
from typing import Any

import lai_torch
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.utils import parameters_to_vector

import lai_core as lai
from experiments.data.digits import Batch
from experiments.figures import pictures
from experiments.figures.trained import digits, read, trace, train
from experiments.methods.attribution import flat_gradients
from experiments.methods.base import LOSS
from experiments.networks import perceptron
from lai_core import shapley
from lai_core._adapters import fitted_weights, layer_parts
from lai_core.estimators.gates import gate_lai_scores

RATES = (0.1, 0.3, 1.0, 2.0, 5.0)
MOMENTS = (0, 200, 1000)
SEEDS, ORDERS, BATCH, HELD = 3, 24, 16, 128


def study() -> dict[str, dict[str, list[float]]]:
    """Correlate scores with the Shapley values of the averaged step, by the number of steps before it."""
    return {str(steps): correlations(steps, RATES) for steps in MOMENTS}


def correlations(steps: int, rates: Sequence[float]) -> dict[str, list[float]]:
    """Return one curve over learning rates for each score; the mean over seeds."""
    seeds = [_curves(seed, steps, rates) for seed in range(SEEDS)]
    return {name: np.mean([curves[name] for curves in seeds], axis=0).tolist() for name in seeds[0]}


def _curves(seed: int, steps: int, rates: Sequence[float]) -> dict[str, list[float]]:
    training, pool = digits(seed)
    model = perceptron((64, 32, 32, 10), seed=seed)
    train(model, training, steps, seed=seed)
    rows = torch.randperm(len(training[1]), generator=torch.Generator().manual_seed(seed))[:BATCH]
    batch, held = (training[0][rows], training[1][rows]), (pool[0][:HELD], pool[1][:HELD])
    scores = first_order(model, held, batch)
    curves: dict[str, list[float]] = {}
    for rate in rates:
        truth = true_values(model, held, batch, rate, ORDERS, seed)
        middle = lai_torch.exact_scores(model, LOSS, held, batch, at="midpoint", learning_rate=rate)
        for name, values in (scores | {"midpoint": middle}).items():
            curves.setdefault(name, []).append(float(np.corrcoef(truth, values.double())[0, 1]))
    return curves


def first_order(model: Any, held: Batch, batch: Batch) -> dict[str, Tensor]:
    """Return the scores that do not depend on the learning rate."""
    sides = [trace(model, one) for one in (held, batch)]
    layers = sides[0].layers
    parts = [layer_parts(layer, layers[-1], "tokens", trains=True) for layer in layers]
    weights = fitted_weights(parts, ~torch.eye(len(held[1]), dtype=torch.bool))
    return {
        "Ghost": lai.ghost_scores(*sides),
        "LAI": lai.lai_scores(*sides),
        "LLI": lai.lli_scores(*sides),
        "calibrated LAI": lai.lai_scores(*sides, layer_weights=weights),
        "gate LAI": gate_lai_scores(*(lai_torch.trace_gates(model, LOSS, *one) for one in (held, batch))),
    }


def true_values(model: Any, held: Batch, batch: Batch, rate: float, orders: int, seed: int) -> np.ndarray:
    """Return the Shapley values of one step on the batch's mean, over random orders and their reverses."""
    flat = parameters_to_vector(model.parameters()).detach()
    named = dict(model.named_parameters())

    def loss(theta: Tensor) -> Tensor:
        pieces = theta.split([parameter.numel() for parameter in named.values()])
        parts = zip(named, pieces, named.values(), strict=True)
        parameters = {name: piece.view_as(like) for name, piece, like in parts}
        return LOSS(torch.func.functional_call(model, parameters, (held[0],)), held[1]).sum()

    random = np.random.default_rng(seed)
    drawn = [random.permutation(len(batch[1])).tolist() for _ in range(orders // 2)]
    both = [*drawn, *(order[::-1] for order in drawn)]
    gradients = flat_gradients(model, batch).detach()
    with torch.no_grad():
        found, _ = shapley.monte_carlo_shapley(
            loss, flat, gradients, both, learning_rate=rate / len(batch[1])
        )
    return found.double().numpy()


def draw() -> Figure:
    """Draw one panel for each moment of training, from the committed record."""
    figure, panels = pictures.figure(3, height=3.0, sharey=True)
    for axes, (steps, curves) in zip(panels, read("one_step").items(), strict=True):
        axes.axhline(0, color=pictures.INK, lw=0.8)
        pictures.lines(axes, RATES, curves)
        title = "untrained" if steps == "0" else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="learning rate", xscale="log", ylim=(-0.75, 1.03))
    pictures.label(panels[0], ylabel="correlation with the true value")
    handles, look = panels[0].get_legend_handles_labels(), {"fontsize": 8.5, "labelcolor": pictures.INK}
    figure.legend(*handles, loc="outside lower center", ncols=6, frameon=False, **look)
    return figure
