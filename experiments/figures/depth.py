"""Relative errors against depth, in networks on digits before and after training."""

from functools import lru_cache

import numpy as np
from matplotlib.figure import Figure

import lai_core as lai
from experiments.figures import pictures
from experiments.figures.networks import digits, perceptron, trace, train

DEPTHS = (2, 3, 4, 6, 8, 12)
SEEDS = 3


@lru_cache(maxsize=1)
def study() -> dict[int, dict[str, list[float]]]:
    """Measure the median of abs(estimate - Ghost) / abs(Ghost) over samples, after 0 and 300 steps."""
    training, pool = digits()
    found: dict[int, dict[str, list[float]]] = {}
    for steps in (0, 300):
        for depth in DEPTHS:
            errors = {"LAI": [], "LLI": []}
            for seed in range(SEEDS):
                model = perceptron((64, *(32,) * (depth - 1), 10), seed=seed)
                train(model, training, steps, lr=0.05)
                sides = [trace(model, (x[:128], y[:128])) for x, y in (pool, training)]
                ghost = lai.ghost_scores(*sides)
                for name, of in (("LAI", lai.lai_scores), ("LLI", lai.lli_scores)):
                    errors[name].append(float(((of(*sides) - ghost).abs() / ghost.abs()).median()))
            for name, values in errors.items():
                found.setdefault(steps, {}).setdefault(name, []).append(float(np.mean(values)))
    return found


def draw() -> Figure:
    """Draw one panel for each moment of training."""
    figure, panels = pictures.figure(2, height=2.8, sharey=True)
    for axes, (steps, curves) in zip(panels, study().items(), strict=True):
        pictures.lines(axes, DEPTHS, curves)
        title = "untrained" if steps == 0 else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="layers", ylim=(0, 1.1))
    pictures.label(panels[0], ylabel="median of |error| / |Ghost|")
    pictures.legend(panels[0])
    return figure
