"""A peer's published log by updates and by seconds: GREATS in GhostSuite, against random batches."""

from pathlib import Path

from matplotlib.figure import Figure

from experiments.figures import pictures
from experiments.harness import record as records

LOG = records.read(Path(__file__).parents[1] / "data" / "greats_log.json")
"""Some validation losses of two arms, as their logs print them, and what a step takes there."""
COLORS = {"random 16": pictures.INK, "best 16 of 32": pictures.color_of("Ghost")}


def draw() -> dict[str, Figure]:
    """Draw the losses by updates, and by updates times the seconds of a step."""
    figure, panels = pictures.figure(2, height=2.9, sharey=True)
    for axes, by_time in zip(panels, (False, True), strict=True):
        for name, arm in LOG["arms"].items():
            x = [update * (arm["seconds"] if by_time else 1) for update in arm["updates"]]
            axes.plot(x, arm["loss"], "o-", ms=4, lw=1.4, color=COLORS[name], label=name)
        pictures.label(axes, xlabel="seconds" if by_time else "updates")
    pictures.label(panels[0], ylabel="validation loss")
    pictures.legend(panels[0])
    return {"axes": figure}
