"""Small networks on digits with wrong labels, and the figures that train them.

`python -m experiments figures` measures the committed record, which the pages of the documentation read.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import lai_torch
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

import lai_core as lai
from experiments.data.digits import Batch, noisy_digits
from experiments.figures import pictures
from experiments.harness.page import markdown
from experiments.methods.attribution import flat_gradients
from experiments.methods.base import LOSS, descend
from experiments.networks import perceptron
from lai_core import shapley
from lai_core._adapters import fitted_weights, layer_parts
from lai_core.estimators.gates import gate_lai_scores

RECORD = Path(__file__).with_name("kept.json")
STEPS, DEPTHS, SEEDS = (0, 300), (2, 3, 4, 6, 8, 12), 3
DRAWS, VALIDATION, PARTS, RATE = 200, 128, 16, 0.1


def read(name: str) -> Any:
    """Return the committed numbers of one figure."""
    return json.loads(RECORD.read_text(encoding="utf-8"))[name]


def write(found: dict[str, Any]) -> None:
    """Write the numbers of every figure."""
    RECORD.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")


@lru_cache(maxsize=8)
def digits(seed: int = 0) -> tuple[Batch, Batch]:
    """Return the training set, 40% of it labelled wrongly, and a pool of clean images to validate on."""
    found = noisy_digits(seed)
    x, y = (torch.cat(parts) for parts in zip(found.validation, found.test, strict=True))
    return found.training, (x, y)


def train(model: nn.Module, batch: Batch, steps: int, *, lr: float = 0.1, seed: int = 0) -> None:
    """Take steps of SGD on random batches of 32."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    generator, weights = torch.Generator().manual_seed(seed), torch.full((32,), 1 / 32)
    for _ in range(steps):
        rows = torch.randint(len(batch[1]), (32,), generator=generator)
        descend(model, optimizer, (batch[0][rows], batch[1][rows]), weights)


def trace(model: nn.Module, batch: Batch, gradients: str = "all") -> lai.Trace:
    """Trace a batch."""
    return lai_torch.trace(model, LOSS, *batch, gradients=gradients)


def depth() -> dict[str, dict[str, list[float]]]:
    """Measure the errors of LAI and LLI at every depth, by the number of steps."""
    found = {}
    for steps in STEPS:
        rows = [errors(steps, layers) for layers in DEPTHS]
        found[str(steps)] = {name: [row[name] for row in rows] for name in rows[0]}
    return found


def errors(steps: int, layers: int) -> dict[str, float]:
    """Measure the median of abs(estimate - Ghost) / abs(Ghost) over samples; the mean over seeds."""
    training, pool = digits()
    found: dict[str, list[float]] = {"LAI": [], "LLI": []}
    for seed in range(SEEDS):
        model = perceptron((64, *(32,) * (layers - 1), 10), seed=seed)
        train(model, training, steps, lr=0.05)
        sides = [trace(model, (x[:128], y[:128])) for x, y in (pool, training)]
        ghost = lai.ghost_scores(*sides)
        for name, of in (("LAI", lai.lai_scores), ("LLI", lai.lli_scores)):
            found[name].append(float(((of(*sides) - ghost).abs() / ghost.abs()).median()))
    return {name: float(np.mean(values)) for name, values in found.items()}


def draw_depth() -> Figure:
    """Draw the errors, one panel for each moment of training, from the committed record."""
    figure, panels = pictures.figure(2, height=2.8, sharey=True)
    for axes, (steps, curves) in zip(panels, read("depth").items(), strict=True):
        pictures.lines(axes, DEPTHS, curves)
        title = "untrained" if steps == "0" else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="layers", ylim=(0, 1.1))
    pictures.label(panels[0], ylabel="median of |error| / |Ghost|")
    pictures.legend(panels[0])
    return figure


def error_bars(draws: int = DRAWS, steps: int = 300) -> dict[str, dict[str, float]]:
    """Measure how often intervals of scores hold, and what the noise of a validation set alone drops.

    Validation sets are drawn from a pool that stands for all samples; LAI scores of 256 training samples.
    """
    training, pool = digits()
    model = perceptron((64, 32, 32, 10))
    train(model, training, steps)
    batch = training[0][:256], training[1][:256]
    kernel = lai.lai_kernel(trace(model, pool, "output"), trace(model, batch, "output")).double()
    mean, bound = kernel.mean(0), kernel.abs().amax(0)
    generator = torch.Generator().manual_seed(0)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(draws):
        rows = kernel[torch.randint(len(kernel), (VALIDATION,), generator=generator)]
        parts = rows.reshape(PARTS, -1, rows.shape[1]).sum(1)
        for name, low, high in (
            (f"normal, {PARTS} parts", *lai.score_intervals(parts)),
            ("normal, every sample", *lai.score_intervals(rows)),
            ("empirical Bernstein, every sample", *lai.score_intervals(rows, bound=bound)),
        ):
            target = VALIDATION * mean
            held = ((low <= target) & (target <= high)).double().mean()
            found.setdefault(name, []).append((float(held), float((high - low).median())))
        for name, weights in (
            ("`keep_positive`", lai.keep_positive(rows.sum(0))),
            (f"`drop_harmful`, {PARTS} parts", lai.drop_harmful(parts, rate=RATE)),
            ("`drop_harmful`, every sample", lai.drop_harmful(rows, rate=RATE)),
            (
                "`drop_harmful`, every sample, `positive`",
                lai.drop_harmful(rows, rate=RATE, dependence="positive"),
            ),
        ):
            found.setdefault(name, []).append(dropped(weights, mean))
    return {name: _means(name, pairs) for name, pairs in found.items()}


def _means(name: str, pairs: list[tuple[float, float]]) -> dict[str, float]:
    first, second = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    if name.startswith("`"):
        return {"harmful dropped": first, "harmless among dropped": second}
    return {"held": first, "width": second}


def dropped(weights: Tensor, mean: Tensor) -> tuple[float, float]:
    """Return the share of harmful samples that are dropped, and the share of the dropped that do no harm."""
    gone = weights == 0
    wrong = float((gone & (mean >= 0)).sum()) / max(int(gone.sum()), 1)
    return float(gone[mean < 0].double().mean()), wrong


def error_bars_table() -> str:
    """Write the committed record as two tables in markdown."""
    found = read("error_bars")
    intervals = {name: row for name, row in found.items() if "held" in row}
    narrow = min(row["width"] for row in intervals.values())
    held = [(name, f"{row['held']:.1%}", f"{row['width'] / narrow:.2f}") for name, row in intervals.items()]
    policies = [
        (name, *(f"{share:.1%}" for share in row.values()))
        for name, row in found.items()
        if name not in intervals
    ]
    heads = (
        ("95% interval", "holds the mean", "width, the narrowest = 1"),
        (f"policy (`rate={RATE}`)", "of the harmful, dropped", "of the dropped, harmless"),
    )
    return "\n\n".join(markdown(*table) for table in zip(heads, (held, policies), strict=True))


RATES = (0.1, 0.3, 1.0, 2.0, 5.0)
MOMENTS = (0, 200, 1000)
ORDERS, PLAYERS, HELD = 24, 16, 128


def one_step() -> dict[str, dict[str, list[float]]]:
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
    rows = torch.randperm(len(training[1]), generator=torch.Generator().manual_seed(seed))[:PLAYERS]
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


def draw_one_step() -> Figure:
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
