"""The gaps of LAI and LLI and their bounds, in linear chains whose gradients decay by rho at each layer."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import lai_core as lai
from experiments.figures import pictures
from lai_core import assumptions, bounds

DEPTH, WIDTH = 5, 16
RATES = np.linspace(0.05, 1.0, 20)


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


def study(pairs: tuple[int, int] = (8, 32)) -> dict[str, list[float]]:
    """Measure both gaps, averaged over training samples, and the bounds at the same constants."""
    found: dict[str, list[float]] = {}
    for rho in RATES:
        layers = chain(float(rho), np.random.default_rng(0), sum(pairs))
        sides = [
            lai.Trace([lai.LayerTrace(a[rows], g[rows]) for a, g in layers])
            for rows in (slice(pairs[0]), slice(pairs[0], None))
        ]
        ghost, score, last = (of(*sides) for of in (lai.ghost_scores, lai.lai_scores, lai.lli_scores))
        beta = assumptions.similarities(*sides).beta
        constants = {"rho": float(rho), "C_a": 1.0, "depth": DEPTH}
        norms = [
            np.linalg.norm(layers[-1][1][rows], axis=1) for rows in (slice(pairs[0]), slice(pairs[0], None))
        ]
        for name, values in {
            "LAI's error": abs(score - ghost),
            "LLI's error": abs(last - ghost),
            "printed bound": bounds.geometric_bound_as_printed(beta[-1], **constants),
            "corrected bound": bounds.lai_gap_bound_without_alignment(beta[-1], *norms, **constants),
        }.items():
            found.setdefault(name, []).append(float(np.mean(values)))
    return found


def draw() -> Figure:
    """Draw the printed bound crossing the error that it is said to bound."""
    found = study()
    figure, (axes,) = pictures.figure()
    looks = {
        "LAI's error": ("#3a8fd0", "-"),
        "LLI's error": ("#E69F00", "-"),
        "printed bound": ("#D55E00", "--"),
        "corrected bound": ("#3a8fd0", ":"),
    }
    for name, curve in found.items():
        axes.plot(RATES, curve, looks[name][1], color=looks[name][0], lw=1.8, label=name)
    pictures.label(
        axes,
        yscale="log",
        ylim=(1e-2, None),
        xlim=(0, 1),
        xlabel="decay rho of gradients per layer",
        ylabel="absolute difference from Ghost",
    )
    pictures.legend(axes, loc="lower center", ncols=2)
    return figure


def _unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
