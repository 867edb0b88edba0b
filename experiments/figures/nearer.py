"""Where LAI is nearer to Ghost than LLI: similarities that decay by rho^2 at each layer, alpha equal."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from experiments.figures import pictures
from lai_core import bounds

DEPTHS = range(2, 25)
RATES = np.linspace(0.3, 1.0, 141)


def study() -> np.ndarray:
    """Return whether LAI is nearer, a row a depth and a column a rate; from the gaps themselves."""
    rows = []
    for depth in DEPTHS:
        powers = RATES[None, :] ** (2.0 * np.arange(depth - 1, -1, -1)[:, None])
        alpha, beta = np.ones((depth, 1, len(RATES))), powers[:, None, :]
        lai_gap = np.abs(bounds.gap(alpha, beta)).sum(0)
        lli_gap = np.abs((alpha * beta)[:-1].sum(0)).sum(0)
        rows.append(lai_gap < lli_gap)
    return np.array(rows)


def draw() -> Figure:
    """Draw the region, and over it where half of the lower layers' similarity is left, by the theorem."""
    figure, (axes,) = pictures.figure()
    axes.pcolormesh(
        RATES, list(DEPTHS), study(), cmap=ListedColormap(["#f2c879", "#9cc9ec"]), alpha=1.0, rasterized=True
    )
    axes.plot([threshold(depth) for depth in DEPTHS], list(DEPTHS), ".", color="#222222", ms=4)
    axes.text(0.45, 12, "LLI is nearer", color="#222222", weight="bold", ha="center")
    axes.text(0.945, 4.0, "LAI is nearer", color="#222222", weight="bold", ha="center")
    pictures.label(axes, xlabel="decay rho of gradients per layer", ylabel="layers")
    return figure


def threshold(depth: int) -> float:
    """Return the rho at which the mean of rho^2, ..., rho^(2 (depth - 1)) is 1/2, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        below = sum(middle ** (2 * k) for k in range(1, depth)) / (depth - 1) < 0.5
        low, high = (middle, high) if below else (low, middle)
    return low
