"""Curated runs on 2 and 4 processes, JAX's on 8 devices and 2 processes, against one on the whole batch."""

import json
import os
import re
import subprocess
import sys
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track

from benchmarks import report
from tests.support.workloads import torch_processes
from tests.support.workloads.launches import launch, launch_jax
from tests.support.workloads.torch_processes import CASES, ENGINES, errors, runs

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


def jax_figures() -> dict[str, dict[str, float]]:
    """Return the errors on eight devices and on two processes, and the bytes a step moves."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.support.workloads.jax_meshes"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    found.pop("operations")
    with TemporaryDirectory() as folder:
        parts = launch_jax(2, Path(folder))
    if not all(part.pop("orbax") for part in parts):
        message = "orbax gave back another state than it was given"
        raise AssertionError(message)
    runs = {case: [row] for case, row in found.items()}
    runs |= {f"{case}, 2 processes": [part[case] for part in parts] for case in parts[0]}
    figures = {case: {name: max(row[name] for row in rows) for name in JUDGED} for case, rows in runs.items()}
    for case, rows in runs.items():
        figures[case]["bytes_per_step"] = max(sum(map(_bytes, row["update"])) for row in rows)
    return figures


def _bytes(collective: list[str]) -> int:
    """Return what a collective of a compiled program moves, of types and shapes as `f64[8,3]`."""
    shapes = re.findall(r"(\w+?)(\d+)\[([\d,]*)\]", collective[1])
    return sum(
        int(bits) // 8 * prod(int(each) for each in shape.split(",") if each) for _, bits, shape in shapes
    )


def run() -> None:
    """Measure, print the tables, write `build/processes.json` and `build/bench/processes.json`."""
    by_torch, by_jax = torch_figures(), jax_figures()
    contract = {"torch": by_torch, "jax": by_jax}
    figures = by_torch | {f"JAX: {case}": each for case, each in by_jax.items()}
    columns = ("case", "parameters", "scores", "weights", "bytes a step")
    rows = (
        (title, *(f"{errors[name]:.0e}" for name in JUDGED), f"{errors['bytes_per_step']:,.0f}")
        for title, errors in figures.items()
    )
    report.table(f"Several processes against one; bound {BOUND:g}", columns, rows)
    failed = [
        f"{title}: {name} {errors[name]:.1e}"
        for title, errors in figures.items()
        for name in JUDGED
        if not errors[name] <= BOUND
    ]
    setting = {"packages": ("torch", "jax"), "contract": contract, "processes": COUNTS}
    report.close("processes", figures, BOUND, failed, **setting)
