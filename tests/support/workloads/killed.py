"""Kill runs at random points by a signal that nothing can catch.

Started again after each kill, a run has to end as one that nobody touched. A point is a call of a function,
python's or C's, counted from the start: no clock decides, so that a slow machine is killed at the same
points. What a job imports is there before: killed is the job itself.
"""

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lai_torch
import pandas  # noqa: F401 # as what is below: a job imports nothing as it goes
import torch
import torch._dynamo  # noqa: F401
from lai_storage import tables

from tests.support.workloads import trainers
from tests.support.workloads.torch_processes import LOSS, batch, network

SAMPLES = 40
IN_PARTS: Any = {"batch_size": 4, "rows_per_file": 4, "progress": False, "collate": ("x", "y"), "ids": "uid"}


def score(folder: Path) -> None:
    """Score a stream, or what is missing of it."""
    samples = zip(*batch(SAMPLES, 1), strict=True)
    items = ({"uid": f"s{number}", "x": x, "y": y} for number, (x, y) in enumerate(samples))
    lai_torch.score_dataset(network(), LOSS, items, batch(8, 2), folder, **IN_PARTS)


def fine_tune(folder: Path) -> None:
    """Train by transformers' Trainer, from the last checkpoint that is whole."""
    whole = any(folder.glob("checkpoint-*/curation.pt"))
    parameters, _, _ = trainers.train(0, str(folder), resume=whole, dropout=0.1, save_steps=1)
    torch.save(parameters, folder / "end.pt")


JOBS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "score_dataset": (score, lambda folder: tables.read_scores(folder).to_pydict()),
    "CuratedTrainer": (fine_tune, lambda folder: torch.load(folder / "end.pt", weights_only=True).tolist()),
}
"""A job, and what it left behind."""


def run(job: Callable[[Path], None], folder: Path, last: int, counts: Path) -> bool:
    """Run a job in a process of its own, killed at a call; say whether it ended by itself."""
    child = os.fork()
    if not child:
        code = 1
        try:
            calls = 0

            def count(*_: Any) -> None:
                """Count a call, or the return of one; at the last the process ends as by `kill -9`."""
                nonlocal calls
                calls += 1
                if calls == last:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(count)
            job(folder)
            sys.setprofile(None)
            counts.write_text(str(calls))
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        message = f"a run that was started again ended with {status}"
        raise RuntimeError(message)
    return status == 0


def kill(name: str, kills: int, seed: int = 0) -> int:
    """Kill a job so many times; raise unless every run ends as it should, and return how many did."""
    torch.set_num_threads(1)  # no thread that a fork would leave behind
    job, read = JOBS[name]
    draws, ended = random.Random(seed), 0
    with TemporaryDirectory() as top:
        counts, folder = Path(top, "counts"), Path(top, "whole")
        folder.mkdir()
        run(job, folder, 0, counts)
        whole, calls = read(folder), int(counts.read_text())
        folder = Path(top, "0")
        while kills or folder.exists():
            folder.mkdir(exist_ok=True)
            if not run(job, folder, draws.randint(1, calls) if kills else 0, counts):
                kills -= 1
                continue
            if read(folder) != whole:
                message = f"{name}: a run that was killed and started again ended elsewhere"
                raise AssertionError(message)
            ended += 1
            folder = Path(top, str(ended))
    return ended


if __name__ == "__main__":
    times = int(sys.argv[2])
    print(f"{times} kills, {kill(sys.argv[1], times)} runs: each ended as one that nobody killed")
