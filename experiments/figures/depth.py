"""Relative errors against depth, in networks on digits before and after training."""

import numpy as np
from matplotlib.figure import Figure

import lai_core as lai
from experiments.figures import kept, pictures
from experiments.figures.networks import digits, perceptron, trace, train

STEPS = (0, 300)
DEPTHS = (2, 3, 4, 6, 8, 12)
SEEDS = 3


def study() -> dict[str, dict[str, list[float]]]:
    """Measure the errors of LAI and LLI at every depth, by the number of steps."""
    found = {}
    for steps in STEPS:
        rows = [errors(steps, depth) for depth in DEPTHS]
        found[str(steps)] = {name: [row[name] for row in rows] for name in rows[0]}
    return found


def errors(steps: int, depth: int) -> dict[str, float]:
    """Measure the median of abs(estimate - Ghost) / abs(Ghost) over samples; the mean over seeds."""
    training, pool = digits()
    found: dict[str, list[float]] = {"LAI": [], "LLI": []}
    for seed in range(SEEDS):
        model = perceptron((64, *(32,) * (depth - 1), 10), seed=seed)
        train(model, training, steps, lr=0.05)
        sides = [trace(model, (x[:128], y[:128])) for x, y in (pool, training)]
        ghost = lai.ghost_scores(*sides)
        for name, of in (("LAI", lai.lai_scores), ("LLI", lai.lli_scores)):
            found[name].append(float(((of(*sides) - ghost).abs() / ghost.abs()).median()))
    return {name: float(np.mean(values)) for name, values in found.items()}


def draw() -> Figure:
    """Draw one panel for each moment of training, from the committed record."""
    figure, panels = pictures.figure(2, height=2.8, sharey=True)
    for axes, (steps, curves) in zip(panels, kept.read("depth").items(), strict=True):
        pictures.lines(axes, DEPTHS, curves)
        title = "untrained" if steps == "0" else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="layers", ylim=(0, 1.1))
    pictures.label(panels[0], ylabel="median of |error| / |Ghost|")
    pictures.legend(panels[0])
    return figure
