"""A figure of linear chains: the gaps of LAI and LLI and their bounds."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import lai_core as lai
from experiments.figures import pictures
from lai_core import assumptions, bounds

DEPTH, WIDTH = 5, 16
DECAYS = np.linspace(0.05, 1.0, 20)
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
