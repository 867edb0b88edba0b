"""Figures of linear chains: the gaps of LAI and LLI and their bounds, and how similarities spread."""

from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from scipy import optimize

import lai_core as lai
from experiments.figures import pictures
from lai_core import assumptions, bounds, propagation

DEPTH, WIDTH = 5, 16
DECAYS = np.linspace(0.05, 1.0, 20)
DEPTHS, RATES = range(2, 25), np.linspace(0.3, 1.0, 141)
WIDTHS, BELOW = (8, 32, 128), range(1, 9)
COSINE, DRAWS = 0.5, 4000
CURVES = {
    "LAI's error": ("#3a8fd0", "-"),
    "LLI's error": ("#E69F00", "-"),
    "printed bound": ("#D55E00", "--"),
    "corrected bound": ("#3a8fd0", ":"),
}


def chain(rho: float, random: np.random.Generator, samples: int) -> list[tuple[Any, Any]]:
    """Return the inputs and output gradients of `s = rho Q a + b`: norms of inputs are at most 1."""
    rotations = [np.linalg.qr(random.standard_normal((WIDTH, WIDTH)))[0] for _ in range(DEPTH)]
    shifts = [(1 - rho) * _unit(random.standard_normal(WIDTH)) for _ in range(DEPTH)]
    activations = [_unit(1 + 0.5 * random.standard_normal((samples, WIDTH)))]
    for rotation, shift in zip(rotations[:-1], shifts, strict=False):
        activations.append(rho * activations[-1] @ rotation.T + shift)
    gradients = [_unit(1 + random.standard_normal((samples, WIDTH)))]
    for rotation in reversed(rotations[1:]):
        gradients.append(rho * gradients[-1] @ rotation)
    return list(zip(activations, reversed(gradients), strict=True))


def _unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def gaps() -> dict[str, list[float]]:
    """Measure both gaps, averaged over training samples, and the bounds at the same constants."""
    found: dict[str, list[float]] = {name: [] for name in CURVES}
    parts = slice(8), slice(8, None)
    for rho in DECAYS:
        layers = chain(float(rho), np.random.default_rng(0), 40)
        sides = [lai.Trace([lai.LayerTrace(a[rows], g[rows]) for a, g in layers]) for rows in parts]
        ghost, score, last = (of(*sides) for of in (lai.ghost_scores, lai.lai_scores, lai.lli_scores))
        beta = assumptions.similarities(*sides).beta[-1]
        constants = {"rho": float(rho), "C_a": 1.0, "depth": DEPTH}
        norms = [np.linalg.norm(layers[-1][1][rows], axis=1) for rows in parts]
        printed = bounds.geometric_bound_as_printed(beta, **constants)
        corrected = bounds.lai_gap_bound_without_alignment(beta, *norms, **constants)
        curves = abs(score - ghost), abs(last - ghost), printed, corrected
        for name, values in zip(found, curves, strict=True):
            found[name].append(float(np.mean(values)))
    return found


def draw_gaps() -> Figure:
    """Draw the printed bound crossing the error that it is said to bound."""
    figure, (axes,) = pictures.figure()
    for name, curve in gaps().items():
        color, style = CURVES[name]
        axes.plot(DECAYS, curve, style, color=color, lw=1.8, label=name)
    limits = {"yscale": "log", "ylim": (1e-2, None), "xlim": (0, 1)}
    texts = {"xlabel": "decay rho of gradients per layer", "ylabel": "absolute difference from Ghost"}
    pictures.label(axes, **limits, **texts)
    pictures.legend(axes, loc="lower center", ncols=2)
    return figure


def nearer() -> np.ndarray:
    """Return whether LAI is nearer to Ghost than LLI, a row a depth and a column a rate; from the gaps.

    Similarities decay by rho^2 at each layer, and alpha is equal.
    """
    rows = []
    for depth in DEPTHS:
        powers = RATES[None, :] ** (2.0 * np.arange(depth - 1, -1, -1)[:, None])
        alpha, beta = np.ones((depth, 1, len(RATES))), powers[:, None, :]
        lai_gap = np.abs(bounds.gap(alpha, beta)).sum(0)
        lli_gap = np.abs((alpha * beta)[:-1].sum(0)).sum(0)
        rows.append(lai_gap < lli_gap)
    return np.array(rows)


def draw_nearer() -> Figure:
    """Draw the region, and over it where half of the lower layers' similarity is left, by the theorem."""
    figure, (axes,) = pictures.figure()
    colors = ListedColormap(["#f2c879", "#9cc9ec"])
    axes.pcolormesh(RATES, list(DEPTHS), nearer(), cmap=colors, alpha=1.0, rasterized=True)
    axes.plot([threshold(depth) for depth in DEPTHS], list(DEPTHS), ".", color="#222222", ms=4)
    for x, y, name in ((0.45, 12, "LLI"), (0.945, 4.0, "LAI")):
        axes.text(x, y, f"{name} is nearer", color="#222222", weight="bold", ha="center")
    pictures.label(axes, xlabel="decay rho of gradients per layer", ylabel="layers")
    return figure


def threshold(depth: int) -> float:
    """Return the rho at which the mean of rho^2, ..., rho^(2 (depth - 1)) is 1/2."""
    powers = 2 * np.arange(1, depth)
    return float(optimize.brentq(lambda rho: np.mean(rho**powers) - 0.5, 0.0, 1.0))


def spread(width: int) -> list[float]:
    """Return the variance of beta over its squared mean, so many linear layers below the last."""
    layer, start = propagation.RandomLayer.linear(width=width, variance=1.0 / width), np.array(1.0)
    variances = (
        propagation.random_weights_variance([layer] * depth, start, np.array(COSINE)) for depth in BELOW
    )
    return [float(variance) / COSINE**2 for variance in variances]


def simulated_spread(width: int) -> list[float]:
    """Return the same of drawn weights; the law of two images depends on the inner products alone."""
    random = np.random.default_rng(width)
    # W h for Gaussian W: rows are independent pairs with the covariance of (|z|^2, <z, j>, |j|^2) / width.
    gram = np.tile(np.array([[1.0, COSINE], [COSINE, 1.0]]), (DRAWS, 1, 1))
    found = []
    for _ in BELOW:
        root = np.linalg.cholesky(gram / width)
        pairs = random.standard_normal((DRAWS, width, 2)) @ np.swapaxes(root, 1, 2)
        gram = np.swapaxes(pairs, 1, 2) @ pairs
        found.append(float(gram[:, 0, 1].var() / COSINE**2))
    return found


def draw_spread() -> Figure:
    """Draw lines of the theory through points of the simulation."""
    figure, (axes,) = pictures.figure()
    for width, color in zip(WIDTHS, ("#D55E00", "#3a8fd0", "#009E73"), strict=True):
        axes.plot(BELOW, spread(width), color=color, lw=1.8, label=f"width {width}")
        axes.plot(BELOW, simulated_spread(width), "o", color=color, ms=4)
    pictures.label(axes, yscale="log", xlabel="layers below the last", ylabel="variance / squared mean")
    pictures.legend(axes)
    return figure
