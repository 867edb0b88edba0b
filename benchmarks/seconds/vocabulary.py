"""Scoring a language model by means over positions takes little more than its forward pass."""

import statistics
from collections.abc import Callable
from typing import Any

import lai_torch
import torch

from benchmarks import report
from benchmarks.meters_torch import HALF
from benchmarks.models import gpt
from benchmarks.seconds.torch_steps import CACHED, once

SIZES = (2_000, 8_192, 32_000, 128_000)
BOUND = 1.4
"""What scoring a batch may take, over the forward pass and the loss of the same batch."""
ROUNDS = 9


def run() -> None:
    """Measure each size, print the table, write `build/vocabulary.json`."""
    torch.set_num_threads(1)
    found = {f"{size:,}": measured(size, ROUNDS) for size in SIZES}
    report.table(
        "CPU of scoring, over a forward pass and the loss",
        ("vocabulary", "ratio"),
        ((size, f"{ratio:.2f}") for size, ratio in found.items()),
    )
    failed = [f"{size}: {ratio:.2f} > {BOUND}" for size, ratio in found.items() if ratio > BOUND]
    report.close("vocabulary", found, {"ratio": BOUND}, failed, packages=("torch", "transformers"), threads=1)


def measured(size: int, rounds: int) -> float:
    """Return the medians' ratio for a GPT of 4 layers of 256, on 8 sequences of 64."""
    torch.manual_seed(0)
    work = gpt(256, 4, 4, 64, 8, size)
    curator = lai_torch.Curator(
        work.model.eval(),
        work.loss,
        work.optimizer(),
        work.validation,
        estimator=lai_torch.LAI(positions="mean"),
        policy=HALF,
        refresh=CACHED,
    )

    def forward() -> None:
        with torch.no_grad():
            work.loss(work.model(**work.batch[0]), work.batch[1])

    calls: tuple[Callable[[], Any], ...] = (lambda: curator.score(*work.batch), forward)
    for call in calls * 3:  # the first passes prove and plan
        call()
    taken = [[once(call, 1)[1] for call in calls] for _ in range(rounds)]
    scoring, passing = (statistics.median(each) for each in zip(*taken, strict=True))
    return scoring / passing
