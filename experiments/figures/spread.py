"""How a layer's similarity spreads over random weights: the recursion, and networks that are drawn."""

import numpy as np
from matplotlib.figure import Figure

from experiments.figures import pictures
from lai_core import propagation

WIDTHS = (8, 32, 128)
DEPTHS = range(1, 9)
COSINE, DRAWS = 0.5, 4000


def theory(width: int) -> list[float]:
    """Return the variance of beta over its squared mean, so many linear layers below the last."""
    return [
        float(propagation.random_weights_variance([_layer(width)] * depth, np.array(1.0), np.array(COSINE)))
        / COSINE**2
        for depth in DEPTHS
    ]


def simulated(width: int, draws: int = DRAWS) -> list[float]:
    """Return the same of drawn weights; the law of two images depends on the inner products alone."""
    random = np.random.default_rng(width)
    # W h for Gaussian W: rows are independent pairs with the covariance of (|z|^2, <z, j>, |j|^2) / width.
    gram = np.tile(np.array([[1.0, COSINE], [COSINE, 1.0]]), (draws, 1, 1))
    found = []
    for _ in DEPTHS:
        root = np.linalg.cholesky(gram / width)
        pairs = random.standard_normal((draws, width, 2)) @ np.swapaxes(root, 1, 2)
        gram = np.swapaxes(pairs, 1, 2) @ pairs
        found.append(float(gram[:, 0, 1].var() / COSINE**2))
    return found


def draw() -> Figure:
    """Draw lines of the theory through points of the simulation."""
    figure, (axes,) = pictures.figure()
    for width, color in zip(WIDTHS, ("#D55E00", "#3a8fd0", "#009E73"), strict=True):
        axes.plot(DEPTHS, theory(width), color=color, lw=1.8, label=f"width {width}")
        axes.plot(DEPTHS, simulated(width), "o", color=color, ms=4)
    pictures.label(axes, yscale="log", xlabel="layers below the last", ylabel="variance / squared mean")
    pictures.legend(axes)
    return figure


def _layer(width: int) -> propagation.RandomLayer:
    return propagation.RandomLayer.linear(width=width, variance=1.0 / width)
