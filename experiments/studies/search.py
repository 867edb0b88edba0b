"""What would make curation win: a grid written down first, chosen from on some seeds, judged on others."""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared, judged
from experiments.harness.study import Found, Unit, study_of
from experiments.methods import Outcome, train
from experiments.methods.curated import GRID
from experiments.studies import tasks

NULL, ORACLE = "random", "right labels only"
OPPONENTS = ("plain", "RHO-loss", "validation batch mixed in")
METHODS = (*OPPONENTS, NULL, ORACLE, "KNN-Shapley", *GRID)
CHOOSING = "choosing, "
"""Before the metrics of the seeds that the policy is chosen on."""
NEAR = 0.005
"""A method has reached an opponent's accuracy half a point below it."""
MAIN, PEOPLE = "symmetric 40%", "annotators, worst of three"
SETTINGS: dict[str, Any] = {MAIN: partial(tasks.digits, noise="symmetric", share=0.4, held=300)}
"""What runs; the record has `PEOPLE` too, whose ratings are no longer read."""


def config(size: str) -> dict[str, Any]:
    """Return the settings; a policy is chosen on seeds that are a hundred more than those it is judged on."""
    if size == "quick":
        few = [*OPPONENTS, NULL, ORACLE, GRID[0], GRID[-3]]
        return {"seeds": [0, 1], "epochs": [3], "settings": [MAIN], "methods": few}
    return {"seeds": list(range(5)), "epochs": [30], "settings": [MAIN], "methods": list(METHODS)}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed, setting and purpose."""
    lasts = dict(zip(SETTINGS, config["epochs"], strict=True))
    return [
        Unit(prefix + setting, seed, partial(_run, prefix, setting, seed, lasts[setting], config["methods"]))
        for seed in config["seeds"]
        for setting in config["settings"]
        for prefix in (CHOOSING, "")
    ]


def _run(prefix: str, setting: str, seed: int, epochs: int, names: list[str]) -> Found:
    """Train by every method; say how accurate each gets and how much less it needs than each opponent."""
    drawn = seed + 100 * bool(prefix)
    outcomes = {name: train(name, SETTINGS[setting](drawn, epochs=epochs), drawn) for name in names}
    found: dict[str, dict[str, float]] = {}
    for name, outcome in outcomes.items():
        accuracy, cost = outcome.stopped()
        rows = {"stopped early": accuracy[-1], "cost": cost[-1]} | {
            f"over {other}": multiplier(outcome, outcomes[other]) for other in OPPONENTS
        }
        found[name] = {f"{prefix}{setting}: {key}": value for key, value in rows.items()}
    return found


def multiplier(one: Outcome, other: Outcome) -> float:
    """Return how many times the other's operations are those that one needs to be as accurate as the other.

    Both are stopped early, scoring and validation passes count, and half a point less is as accurate.
    Where one never is: 0.
    """
    target = other.stopped()[0][-1] - NEAR
    needs = [
        next((paid for reached, paid in zip(*each.stopped(), strict=True) if reached >= target), np.inf)
        for each in (one, other)
    ]
    return float(needs[1] / needs[0])


def chosen(methods: Methods, setting: str) -> str:
    """Return the policy whose smallest mean multiplier over the opponents is largest where one chooses."""

    def worst(name: str) -> float:
        return min(methods[name][f"{CHOOSING}{setting}: over {other}"]["mean"] for other in OPPONENTS)

    return max((name for name in methods if name in GRID), key=worst)


def most_accurate(methods: Methods, setting: str) -> str:
    """Return the policy with the highest accuracy, stopped early, where one chooses."""
    metric = f"{CHOOSING}{setting}: stopped early"
    return max((name for name in methods if name in GRID), key=lambda name: methods[name][metric]["mean"])


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge both choices on fresh seeds: operations saved, and accuracy when all are stopped early."""
    found = {}
    for setting in (MAIN, PEOPLE):
        if f"{setting}: cost" not in methods[NULL]:
            continue
        best, exact = chosen(methods, setting), most_accurate(methods, setting)
        for other in OPPONENTS:
            values = methods[best][f"{setting}: over {other}"]["values"]
            text = f"{setting}: {best}: fewer operations than {other} for its accuracy"
            found[text] = judged(values, paper="ours", at_least=1.0)
        for other in (each for each in (*OPPONENTS, "KNN-Shapley") if each in methods):
            text, metric = (
                f"{setting}: {exact}: above {other}, all stopped early",
                f"{setting}: stopped early",
            )
            found[text] = compared(methods, exact, other, metric, paper="ours")
    return found


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw accuracy over cost on fresh seeds, opponents and policies."""
    held = [setting for setting in (MAIN, PEOPLE) if f"{setting}: cost" in record["methods"][NULL]]
    figure, panels = pictures.figure(len(held), height=3.6)
    for axes, setting in zip(panels, held, strict=True):
        named = {choose(record["methods"], setting) for choose in (chosen, most_accurate)}
        for name, metrics in record["methods"].items():
            x, y = (metrics[f"{setting}: {key}"]["mean"] for key in ("cost", "stopped early"))
            ours = name in GRID
            color = pictures.LOOKS[name.split(",")[0]][0] if ours else pictures.INK
            axes.plot(x, y, "os"[not ours], ms=8 if name in named else 5, color=color)
            if name in named or not ours:
                place = {"xytext": (-4, 5), "ha": "right"} if x > 1.2 else {"xytext": (5, 3)}
                axes.annotate(name, (x, y), textcoords="offset points", fontsize=6.5, color=color, **place)
        pictures.label(axes, title=setting, xlabel="cost in plain trainings")
    pictures.label(panels[0], ylabel="test accuracy, stopped early")
    return {"search": figure}


STUDY = study_of(
    __name__,
    name="search",
    title="What would make it win",
    about="ours",
    columns={
        f"{setting}: {key}": f"{short}, {key}"
        for setting, short in ((MAIN, "40%"), (PEOPLE, "annotators"))
        for key in ("stopped early", "cost", *(f"over {other}" for other in OPPONENTS))
    },
)
