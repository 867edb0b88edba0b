"""What curation is worth by equal steps and by equal seconds, the rate decayed within each budget."""

from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks import ruler
from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared
from experiments.harness.study import Found, Unit, study_of
from experiments.methods import METHODS, Task
from experiments.methods.base import Run
from experiments.networks import uniform
from experiments.studies.tasks import digits
from experiments.studies.trainings import NULL, ORACLE

RANDOM, MIXED = "random", "validation batch mixed in"
SIMPLE = (NULL, RANDOM, MIXED)
"""What curated arms are compared with: steps on a batch, on half of it, on validation samples as well."""
CURATED = ("LAI", "LAI, refresh 8", "LAI, majority, each fourth epoch", "Ghost")
ARMS = (*SIMPLE, ORACLE, *CURATED)
STEPS, SECONDS = "equal steps", "equal seconds"
AXES = {STEPS: "accuracy by equal steps", SECONDS: "accuracy by equal seconds"}
MAIN = "digits, 40% wrong"
WIDTHS = (64, 512, 512, 10)
"""Wider than in the other studies, where a step is nearly all calls."""
PROVED = 65
"""Steps before those that are timed: graphs are proved at steps 1, 2, 4, ..., 64, and then at 128: in one
round of three, which their median leaves out."""
SETTINGS: dict[str, dict[str, Any]] = {
    MAIN: {"noise": "symmetric", "share": 0.4, "held": 300},
    "digits, no noise": {"noise": "symmetric", "share": 0.0, "held": 300},
}


def config(size: str) -> dict[str, Any]:
    """Return the settings: epochs of plain training; how often arms are timed, and over how many steps.

    Of four epochs, one scores where each fourth does.
    """
    if size == "quick":
        return {"seeds": [0, 1], "epochs": 1, "rounds": 1, "timed": 8, "settings": [MAIN]}
    return {"seeds": list(range(5)), "epochs": 12, "rounds": 3, "timed": 32, "settings": list(SETTINGS)}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed and setting: the arms are timed in turn, then trained."""
    return [
        Unit(name, seed, partial(_run, name, seed, config))
        for seed in config["seeds"]
        for name in config["settings"]
    ]


def task_of(name: str, seed: int, config: dict[str, Any]) -> Task:
    """Return a setting's task."""
    found = digits(seed, **SETTINGS[name], epochs=config["epochs"])
    return replace(found, network=partial(uniform, widths=WIDTHS))


def _run(name: str, seed: int, config: dict[str, Any]) -> Found:
    """Return each arm's seconds of a step and its accuracy within both budgets."""
    torch.set_num_threads(1)
    task = task_of(name, seed, config)
    seconds = time_arms(task, seed, config["rounds"], config["timed"])
    steps = Run(task, seed).steps * task.epochs
    found = {}
    for arm in ARMS:
        own = max(1, round(steps * seconds[NULL] / seconds[arm]))
        made = {
            "milliseconds of a step": 1e3 * seconds[arm],
            "step over plain": seconds[arm] / seconds[NULL],
            "step over random half": seconds[arm] / seconds[RANDOM],
            "steps in plain's seconds": own,
            AXES[STEPS]: train_within(arm, task, seed, steps),
            AXES[SECONDS]: train_within(arm, task, seed, own),
        }
        found[arm] = {f"{name}: {key}": float(value) for key, value in made.items()}
    return found


def time_arms(task: Task, seed: int, rounds: int, timed: int) -> dict[str, float]:
    """Return the CPU seconds of each arm's step: medians of rounds, in turn, after its graphs are proved."""
    calls = {}
    for arm in ARMS:
        run, step = _begin(arm, replace(task, epochs=PROVED), seed)
        _go(run, step, PROVED)
        calls[arm] = partial(_go, run, step, timed)
    times = ruler.medians(ruler.in_turn(calls, rounds))
    return {arm: times[arm][1] / timed for arm in ARMS}


def train_within(arm: str, task: Task, seed: int, steps: int) -> float:
    """Return the test accuracy after so many steps; over them the learning rate falls to 0 as a cosine."""
    per_epoch = max(1, len(task.training[1]) // task.batch)
    run, step = _begin(arm, replace(task, epochs=ceil(steps / per_epoch)), seed)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(run.optimizer, steps)
    _go(run, step, steps, decay)
    return run.accuracy(task.test)


def _begin(arm: str, task: Task, seed: int) -> tuple[Run, Any]:
    """Return an arm's run and its step."""
    torch.manual_seed(seed)
    run = Run(task, seed)
    return run, METHODS[arm](run)


def _go(run: Run, step: Any, steps: int, decay: Any = None) -> None:
    """Take so many steps in the seed's order of samples."""
    order, total = np.random.default_rng((run.seed, 2)), len(run.labels)
    per_epoch = max(1, total // run.task.batch)
    for count in range(steps):
        if count % per_epoch == 0:
            passes = ceil(run.task.batch / total)
            rows = torch.from_numpy(np.concatenate([order.permutation(total) for _ in range(passes)]))
        run.progress = count // per_epoch / run.task.epochs
        start = count % per_epoch * run.task.batch
        step(rows[start : start + run.task.batch])
        if decay is not None:
            decay.step()


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge every curated arm against the simple ones, on both axes."""
    return {
        f"{setting}: {one} is above {other} by {axis}": compared(
            methods, one, other, f"{setting}: {key}", paper="not compared"
        )
        for setting in settings(methods)
        for axis, key in AXES.items()
        for one in CURATED
        for other in SIMPLE
    }


def settings(methods: Methods) -> list[str]:
    """Return the settings that a record has, in its order."""
    ends = f": {AXES[STEPS]}"
    return [metric.removesuffix(ends) for metric in methods[NULL] if metric.endswith(ends)]


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw each arm's accuracy in the main setting, by equal steps and by equal seconds."""
    methods = record["methods"]
    figure, panels = pictures.figure(2, height=3.2, sharex=True, sharey=True)
    for axes, (axis, key) in zip(panels, AXES.items(), strict=True):
        means = {arm: methods[arm][f"{MAIN}: {key}"] for arm in methods}
        pictures.intervals(axes, means)
        pictures.label(axes, xlabel="test accuracy", title=axis)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)  # drawn twice, and turned twice
    return {"axes": figure}


STUDY = study_of(
    __name__,
    name="budget",
    title="Two budgets",
    about="by equal steps and by equal seconds",
    columns={
        f"{setting}: {key}": f"{setting}, {short}"
        for setting in SETTINGS
        for key, short in (
            (AXES[STEPS], STEPS),
            (AXES[SECONDS], SECONDS),
            ("step over plain", "step over plain"),
            ("step over random half", "step over random half"),
        )
    },
)
