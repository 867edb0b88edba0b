"""Curated runs on 2 and 4 processes against one process on the whole batch."""

import json

from rich.console import Console
from rich.progress import track

from benchmarks import report
from workloads import torch_processes
from workloads.torch_processes import CASES, ENGINES, errors, launch, runs

BOUND = 1e-12
COUNTS = (2, 4)
JUDGED = ("parameters", "scores", "weights")


def torch_figures() -> dict[str, dict[str, float]]:
    """Return the errors of every case on every engine that takes it, and the bytes a step sends."""
    found: dict[str, dict[str, float]] = {}
    expected = {name: torch_processes.run(case) for name, case in CASES.items()}
    for processes in COUNTS:
        for engine in track(ENGINES, f"{processes} processes", console=Console(stderr=True)):
            todo = [(name, engine) for name, case in CASES.items() if engine in case.engines]
            parts = launch(runs, processes, processes, todo, timeout=600)
            for name, _ in todo:
                title = f"{name}, {engine}, {processes} processes"
                got = [part[name, engine] if isinstance(part, dict) else part for part in parts]
                failed = [one for one in got if isinstance(one, str)]
                if failed:
                    Console(stderr=True).print(title, failed[0])
                    found[title] = dict.fromkeys((*JUDGED, "bytes_per_step"), float("inf"))
                else:
                    sent = max(part.bytes_per_step for part in got)
                    found[title] = {**errors(got, expected[name]), "bytes_per_step": sent}
    return found


def rows(figures: dict[str, dict[str, float]]) -> list[list[str]]:
    """Return the table: errors as powers of ten, bytes as they are."""
    return [
        [title, *(f"{errors[name]:.0e}" for name in JUDGED), f"{errors['bytes_per_step']:,.0f}"]
        for title, errors in figures.items()
    ]


def run() -> None:
    """Measure, print the table, write `build/processes.json` and `build/bench/processes.json`."""
    figures = torch_figures()
    path = report.BUILD / "processes.json"
    path.parent.mkdir(exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, "torch": figures}, indent=2))
    columns = ("case", "parameters", "scores", "weights", "bytes a step")
    report.table(f"Several processes against one; bound {BOUND:g}", columns, rows(figures))
    failed = [
        f"{title}: {name} {errors[name]:.1e}"
        for title, errors in figures.items()
        for name in JUDGED
        if not errors[name] <= BOUND
    ]
    report.close("processes", figures, BOUND, failed, packages=("torch",), processes=COUNTS)
