"""How much to draw from each source: shares moved by mean scores, against simpler ways, at one total cost."""

from functools import lru_cache, partial
from typing import Any

import torch
from matplotlib.figure import Figure

from experiments.data import prose
from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared
from experiments.harness.study import Found, Unit, study_of
from experiments.mixtures import sources, text
from experiments.mixtures.arms import Arm, Run, Task
from experiments.mixtures.policies import Moved, Odm, Shares, Tried, filtered, horizons

NULL, ORACLE = "uniform", "oracle mixture"
MIXED, DECAYED = "validation mixed in", "validation mixed in, decayed rate"
OURS, ALONE, FILTER = "LLI mixture + validation", "LLI mixture", "static filter + validation"
SAMPLES, BOTH = "LAI per sample + validation", "LLI mixture, then samples, + validation"
GPT = "small GPT"
TRIED = "mixture by trials + validation"
EVERYWHERE: dict[str, Arm] = {
    MIXED: Arm(Shares, mixed=True),
    OURS: Arm(Moved, mixed=True),
    FILTER: Arm(filtered, mixed=True),
    NULL: Arm(Shares),
    DECAYED: Arm(Shares, mixed=True, decayed=True),
    ALONE: Arm(Moved),
    TRIED: Arm(Tried, mixed=True),
    ORACLE: Arm(Shares),
}
"""In all settings; the oracle's shares are its task's."""
WHY = "text, 200 to validate"
"""Where the derivative of one step is held against trials."""
HORIZONS = "one step and many"
FURTHER: dict[str, Arm] = {
    BOTH: Arm(Moved, mixed=True, samples="lli"),
    SAMPLES: Arm(Shares, mixed=True, samples="lai"),
    "LAI mixture + validation": Arm(Moved, mixed=True, options={"estimator": "lai"}),
    "Ghost mixture + validation": Arm(Moved, mixed=True, options={"estimator": "ghost", "every": 4}),
    "ODM": Arm(Odm),
}
"""Beside these, in all settings but the small GPT."""
READING: dict[str, Arm] = {name: EVERYWHERE[name] for name in (MIXED, OURS, FILTER, NULL, TRIED, ORACLE)}
"""On the small GPT."""
PAIRS = (
    (OURS, MIXED), (ALONE, MIXED), (FILTER, MIXED), (TRIED, MIXED), (SAMPLES, MIXED), (OURS, DECAYED),
    (OURS, FILTER), (BOTH, OURS), ("LAI mixture + validation", OURS), ("Ghost mixture + validation", OURS),
)  # fmt: skip
"""Who is said to be above whom."""


def config(size: str) -> dict[str, Any]:
    """Return the settings."""
    if size == "quick":
        return {"seeds": [0, 1], "steps": 100, "settings": ["bad sources", GPT]}
    return {"seeds": list(range(16)), "steps": None, "settings": [*sources.SETTINGS, GPT]}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed, setting and arm; all seeds of an arm are trained side by side."""
    names = (*EVERYWHERE, HORIZONS, *FURTHER)  # an arm of all settings, then the next
    return [
        Unit(f"{setting}: {name}", seed, partial(_run, setting, name, seed, config))
        for name in names
        for setting in config["settings"]
        if name in arms(setting)
        for seed in config["seeds"]
    ]


def arms(setting: str) -> dict[str, Arm]:
    """Return what is compared in a setting."""
    if setting == GPT:
        return READING
    return EVERYWHERE | FURTHER | ({HORIZONS: EVERYWHERE[MIXED]} if setting == WHY else {})


def _run(setting: str, name: str, seed: int, config: dict[str, Any]) -> Found:
    seeds = tuple(config["seeds"])
    found = _trained(setting, name, seeds, config["steps"])
    return {name: {f"{setting}: {key}": values[seeds.index(seed)] for key, values in found.items()}}


@lru_cache(maxsize=1)
def _trained(setting: str, name: str, seeds: tuple[int, ...], steps: int | None) -> dict[str, list[float]]:
    """Train all seeds of an arm; the oracle is the best of a few mixtures by the mean over the test sets."""
    torch.set_num_threads(1)
    task = _task(setting, seeds, steps)
    if name == HORIZONS:
        return horizons(Run(task, arms(setting)[name]))
    if name != ORACLE:
        return _metrics(setting, Run(task, arms(setting)[name]))
    tried = (Run(task, Arm(Shares, options={"weights": known})) for known in task.known)
    return max(
        (_metrics(setting, run) for run in tried),
        key=lambda found: SIGNS[metric(setting)] * sum(found[metric(setting)]),
    )


@lru_cache
def _task(setting: str, seeds: tuple[int, ...], steps: int | None) -> Task:
    return text.task(seeds, steps) if setting == GPT else sources.task(setting, seeds, steps)


def _metrics(setting: str, run: Run) -> dict[str, list[float]]:
    found = run.train().metrics()
    told = run.arm is EVERYWHERE[OURS] or (setting == GPT and isinstance(run.policy, Moved))
    shares = [key for key in found if told and key.startswith("share of")]
    return {key: found[key] for key in (metric(setting), "cost", *shares)}


SIGNS = {"accuracy": 1, "test loss": -1}
"""Whether more is better."""


def metric(setting: str) -> str:
    """Return what a setting is judged by."""
    return "test loss" if setting == GPT or setting.startswith("text") else "accuracy"


def settings(methods: Methods) -> list[str]:
    """Return the settings that a record has."""
    return [name for name in (*sources.SETTINGS, GPT) if f"{name}: {metric(name)}" in methods[NULL]]


def above(methods: Methods, setting: str, one: str, other: str, level: float = 0.95) -> dict[str, Any] | None:
    """Judge that one arm is above another, in points or hundredths of a nat; None where either is missing."""
    key, sign = f"{setting}: {metric(setting)}", SIGNS[metric(setting)]
    if not all(key in methods.get(name, {}) for name in (one, other)):
        return None
    return compared(methods, one, other, key, paper="ours", sign=sign, level=level)


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge each pair in each setting."""
    return {
        f"{setting}: {one} is above {other}": claim
        for setting in settings(methods)
        for one, other in PAIRS
        if (claim := above(methods, setting, one, other)) is not None
    }


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw what the mixture, trials and the static filter gain over the validation mixed in."""
    methods = record["methods"]
    figure, panels = pictures.figure(3, height=4.4, sharey=True)
    for axes, one in zip(panels, (OURS, TRIED, FILTER), strict=True):
        gains = {}
        for setting in settings(methods):
            claim = above(methods, setting, one, MIXED)
            if claim is not None:
                ends = (claim["found"], *claim["interval"])
                hundreds = (None if end is None else 100.0 * end for end in ends)
                gains[setting] = dict(zip(("mean", "low", "high"), hundreds, strict=True))
        pictures.intervals(axes, gains)
        axes.axvline(0.0, color=pictures.INK, lw=0.8)
        pictures.label(axes, title=one.removesuffix(" + validation"), xlabel="points, or nats / 100")
    panels[0].set_ylim(len(gains) - 0.5, -0.5)  # each panel turned the axis that they share
    return {"gains": figure}


STUDY = study_of(
    __name__,
    name="mixtures",
    title="Choosing by source",
    about="ours",
    columns={f"{name}: {metric(name)}": name for name in (*sources.SETTINGS, GPT)},
    data={"prose": prose.digest},
)
