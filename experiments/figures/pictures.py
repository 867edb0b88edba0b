"""How the figures of the theory pages look: no background, and greys that are read on white and on black."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#7f7f7f"
"""4 to 1 on white and 4.6 to 1 on the site's black."""

LOOKS: dict[str, tuple[str, str]] = {  # Okabe and Ito's colours: told apart by colour-blind eyes
    "Ghost": ("#009E73", "-"),
    "LAI": ("#3a8fd0", "-"),
    "LLI": ("#E69F00", "-"),
    "calibrated LAI": ("#3a8fd0", ":"),
    "gate LAI": ("#CC79A7", "--"),
    "midpoint": ("#D55E00", "-"),
}


def figure(columns: int = 1, *, height: float = 3.0, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure of some panels side by side, without a background."""
    plt.rcParams["figure.dpi"] = 120
    made, panels = plt.subplots(
        1, columns, figsize=(7.2, height), layout="constrained", squeeze=False, **options
    )
    made.patch.set_alpha(0)
    for axes in panels[0]:
        axes.set_facecolor("none")
        axes.tick_params(colors=INK, which="both")
        axes.grid(color=INK, alpha=0.25, lw=0.6)
        axes.spines[:].set_color(INK)
        axes.spines[["top", "right"]].set_visible(False)
    return made, list(panels[0])


def label(axes: Axes, **texts: Any) -> None:
    """Set titles, labels and limits, in the grey of the axes."""
    axes.set(**texts)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(INK)
        text.set_fontsize(9.5)


def lines(axes: Axes, x: Sequence[float], curves: Mapping[str, Any]) -> None:
    for name, curve in curves.items():
        color, style = LOOKS[name]
        axes.plot(x, np.asarray(curve), style, color=color, lw=1.8, label=name)


def intervals(axes: Axes, means: Mapping[str, Any], written: Sequence[str] | None = None) -> None:
    """Draw a row a method, from the top: its mean, and its interval where there is one."""
    for at, (name, of) in enumerate(means.items()):
        color = color_of(name.split(",")[0])
        axes.plot(of["mean"], at, "o", ms=5, color=color)
        if of["low"] is not None:
            axes.plot([of["low"], of["high"]], [at, at], color=color, lw=1.0)
    axes.set_yticks(range(len(means)), list(means) if written is None else written, fontsize=8)
    axes.invert_yaxis()


def points(axes: Axes, x: Sequence[float], rows: Sequence[Any], style: str, **looks: Any) -> None:
    """Draw means of a method, and the interval of each where there is one."""
    axes.plot(x, [row["mean"] for row in rows], style, ms=5, **looks)
    for at, row in zip(x, rows, strict=True):
        if row["low"] is not None:
            axes.plot([at, at], [row["low"], row["high"]], color=looks["color"], lw=0.8)


def color_of(name: str) -> str:
    """Return the colour of an estimator; grey of anything else."""
    return LOOKS.get(name, (INK,))[0]


def legend(axes: Axes, **options: Any) -> None:
    """Write what the lines are."""
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, **options)
