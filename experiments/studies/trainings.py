"""What studies of whole trainings share: every method in every setting, and plain training stopped early."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from experiments.figures import pictures
from experiments.harness.statistics import Methods
from experiments.harness.study import Found, Unit
from experiments.methods import Task, train

NULL, ORACLE, STOPPED = "plain", "right labels only", "plain, stopped early"
Setting = tuple[Sequence[str], Callable[[int], Task]]
"""Which methods are tried on which task, by its seed."""


def units(seeds: Sequence[int], settings: Mapping[str, Setting]) -> list[Unit]:
    """Return one unit a seed, setting and method."""
    return [
        (seed, partial(_run, name, setting, make, seed))
        for seed in seeds
        for setting, (methods, make) in settings.items()
        for name in methods
    ]


def _run(name: str, setting: str, make: Callable[[int], Task], seed: int) -> Found:
    outcome = train(name, make(seed), seed)
    metrics = outcome.metrics()
    found = {name: {f"{setting}: {metric}": value for metric, value in metrics.items()}}
    if name == NULL:
        cost = 1.0 + outcome.checks / outcome.plain_operations
        found[STOPPED] = {f"{setting}: accuracy": metrics["stopped early"], f"{setting}: cost": cost}
    return found


def settings(methods: Methods) -> list[str]:
    """Return the settings that a record has, in its order."""
    ends = ": accuracy"
    return [metric.removesuffix(ends) for metric in methods[NULL] if metric.endswith(ends)]


def best_first(record: dict[str, Any], height: float) -> dict[str, Figure]:
    """Draw accuracy in the first setting, best first, each method with its cost."""
    setting = settings(record["methods"])[0]
    rows = {
        name: [metrics[f"{setting}: {key}"] for key in ("accuracy", "cost")]
        for name, metrics in record["methods"].items()
        if f"{setting}: cost" in metrics
    }
    names = sorted(rows, key=lambda name: -rows[name][0]["mean"])
    figure, (axes,) = pictures.figure(height=height)
    written = [f"{name} (cost {rows[name][1]['mean']:.1f})" for name in names]
    pictures.intervals(axes, {name: rows[name][0] for name in names}, written)
    pictures.label(axes, xlabel="test accuracy; in brackets the cost in plain trainings")
    return {"accuracy": figure}
