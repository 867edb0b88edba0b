"""Studies of which the record alone is left: what a page shows of it."""

from typing import Any

from matplotlib.figure import Figure

from experiments.figures import pictures
from experiments.harness.study import Shown

MIXED, NETWORKS = "validation mixed in", ("MLP", "conv", "GPT")
ACCURACY = (
    *("scarce clean source", "drift", "curriculum", "nothing wrong", "sources by class", "random sources"),
    *("half random sources", "sources unknown, clusters", "2 sources", "30 sources"),
)
METRICS = {
    **dict.fromkeys(("bad sources", "20 to validate", "wrong validation labels", "tabular"), "accuracy"),
    **{f"text, {count} to validate": "test loss" for count in (30, 200, 1000)},
    **dict.fromkeys(ACCURACY, "accuracy"),
    "small GPT": "test loss",
}
"""What each setting of the mixtures is judged by."""


def draw_gains(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw what the mixture, trials and the static filter gain over the validation mixed in."""
    figure, panels = pictures.figure(3, height=4.4, sharey=True)
    for axes, one in zip(panels, ("LLI mixture", "mixture by trials", "static filter"), strict=True):
        gains = {}
        for setting in METRICS:
            claim = record["claims"].get(f"{setting}: {one} + validation is above {MIXED}")
            if claim is not None:
                hundreds = (100.0 * each for each in (claim["found"], *claim["interval"]))
                gains[setting] = dict(zip(("mean", "low", "high"), hundreds, strict=True))
        pictures.intervals(axes, gains)
        axes.axvline(0.0, color=pictures.INK, lw=0.8)
        pictures.label(axes, title=one, xlabel="points, or nats / 100")
    panels[0].set_ylim(len(METRICS) - 0.5, -0.5)  # each panel turned the axis that they share
    return {"gains": figure}


COST = Shown(
    name="cost",
    title="Cost",
    commit="6ea15c5f",
    null="plain",
    oracle="half chosen for nothing",
    columns={f"{name}: {key}": f"{name}, {key}" for key in ("operations", "bytes") for name in NETWORKS},
)
MIXTURES = Shown(
    name="mixtures",
    title="Choosing by source",
    commit="6ea15c5f",
    pictures=draw_gains,
    null="uniform",
    oracle="oracle mixture",
    columns={f"{setting}: {metric}": setting for setting, metric in METRICS.items()},
)
