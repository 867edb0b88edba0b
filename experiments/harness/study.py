"""A study: its settings, its units of work, its claims and its pictures."""

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from tqdm import tqdm

from experiments.harness import record as records
from experiments.harness.statistics import Methods, summary

Found = Mapping[str, Mapping[str, float]]
"""From methods to metrics to what one seed gave."""


Unit = tuple[int, Callable[[], Found]]
"""A piece of work of one seed: the seed, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a page shows of a committed record."""

    name: str
    title: str
    pictures: Callable[[dict[str, Any]], dict[str, Figure]] = lambda record: {}
    """From a record to figures, by name; none where the table says it all."""
    null: str
    """The method that uses nothing; `oracle` knows what no user knows: no study without both."""
    oracle: str
    columns: Mapping[str, str]
    """The metrics that the page's table shows, with their headings; all others are in the JSON."""
    commit: str = ""
    """The last that has the study; empty where it is here."""

    @property
    def committed(self) -> Path:
        """Where its committed record lies, if any."""
        return records.RESULTS / f"{self.name}.json"


@dataclass(frozen=True, kw_only=True)
class Study(Shown):
    """A study; one module under `experiments/studies` defines each."""

    about: str
    """What it stands for in the paper; `docs/theory/studies.md` says what is compared and what is drawn."""
    config: Callable[[str], dict[str, Any]]
    """From `quick` or `full` to settings that JSON can hold; `seeds` among them."""
    units: Callable[[dict[str, Any]], Sequence[Unit]]
    """From settings to the work. Every seed must give every method the same metrics."""
    claims: Callable[[Methods], dict[str, dict[str, Any]]]
    """From what the methods did to `harness.statistics` judgements, by text."""
    data: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Hashes of data that vary from machine to machine, by name."""

    def run(
        self,
        size: str,
        seeds: int | None = None,
        *,
        out: Path,
    ) -> dict[str, Any]:
        """Do the work, and write the record and its pictures under `out`."""
        config, command = self.config(size), f"python -m experiments {self.name} --{size}"
        if seeds is not None:
            config["seeds"] = list(range(seeds))
            command += f" --seeds {seeds}"
        held = {name: digest() for name, digest in self.data.items()}
        config |= {"size": size, "command": command, "data": held}
        # on what it ran, without saying where
        config["machine"] = f"{platform.machine()}, {platform.system()}, one thread, torch {version('torch')}"
        units = tqdm(self.units(config), desc=self.name, unit="run", disable=None)
        methods = merged([(seed, work()) for seed, work in units], config["seeds"])
        record = {"study": self.name, "config": config, "methods": methods, "claims": self.claims(methods)}
        records.write(record, out / f"{self.name}.json")
        for name, figure in self.pictures(record).items():
            figure.savefig(out / f"{self.name}-{name}.svg", transparent=True, metadata={"Date": None})
        return record


def study_of(module: str, **described: Any) -> Study:
    """Return the study of a module: of its `config`, `units`, `claims`, `draw`, `NULL` and `ORACLE`."""
    own = vars(sys.modules[module])
    parts = {key: own[key] for key in ("config", "units", "claims")}
    return Study(**parts, pictures=own["draw"], null=own["NULL"], oracle=own["ORACLE"], **described)


def merged(found: Sequence[tuple[int, Found]], seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Summarise what the seeds gave, method by method and metric by metric."""
    values: dict[tuple[str, str], dict[int, float]] = {}
    for seed, methods in found:
        for name, metrics in methods.items():
            for metric, value in metrics.items():
                values.setdefault((name, metric), {})[seed] = float(value)
    made: dict[str, dict[str, Any]] = {}
    for (name, metric), of in values.items():
        if set(of) != set(seeds):
            msg = f"{name}, {metric}: expected values of the seeds {list(seeds)}, got those of {sorted(of)}"
            raise ValueError(msg)
        made.setdefault(name, {})[metric] = summary([of[seed] for seed in seeds], metric)
    return made
