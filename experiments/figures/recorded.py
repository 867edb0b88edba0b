"""What small networks gave once: figures of the theory pages, from their committed record.

Commit `18ce3ef9` is the last that has the code which trained them: `python -m experiments figures`.
"""

from typing import Any

from matplotlib.figure import Figure

from experiments.figures import pictures
from experiments.harness import record as records

DEPTHS, RATES = (2, 3, 4, 6, 8, 12), (0.1, 0.3, 1.0, 2.0, 5.0)
"""Layers; learning rates of the one step."""


def read() -> dict[str, Any]:
    return records.read(records.RESULTS / "theory" / "figures.json")


def draw_depth() -> Figure:
    """Draw the errors, one panel for each moment of training, from the committed record."""
    figure, panels = pictures.figure(2, height=2.8, sharey=True)
    for axes, (steps, curves) in zip(panels, read()["depth"].items(), strict=True):
        pictures.lines(axes, DEPTHS, curves)
        title = "untrained" if steps == "0" else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="layers", ylim=(0, 1.1))
    pictures.label(panels[0], ylabel="median of |error| / |Ghost|")
    pictures.legend(panels[0])
    return figure


def draw_one_step() -> Figure:
    """Draw one panel for each moment of training, from the committed record."""
    figure, panels = pictures.figure(3, height=3.0, sharey=True)
    for axes, (steps, curves) in zip(panels, read()["one_step"].items(), strict=True):
        axes.axhline(0, color=pictures.INK, lw=0.8)
        pictures.lines(axes, RATES, curves)
        title = "untrained" if steps == "0" else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="learning rate", xscale="log", ylim=(-0.75, 1.03))
    pictures.label(panels[0], ylabel="correlation with the true value")
    handles, look = panels[0].get_legend_handles_labels(), {"fontsize": 8.5, "labelcolor": pictures.INK}
    figure.legend(*handles, loc="outside lower center", ncols=6, frameon=False, **look)
    return figure
