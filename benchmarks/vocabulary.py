"""Scoring a language model by means over positions takes little more than its forward pass."""

from functools import partial

import lai_torch
import torch

from benchmarks import report, ruler
from benchmarks.methods import CACHED, curator, forward
from benchmarks.models import gpt

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
    work.model.eval()
    made = curator(work, None, lai_torch.LAI(), refresh=CACHED)
    calls = {"scoring": partial(made.score, *work.batch), "forward": partial(forward, work)}
    for call in (*calls.values(),) * 3:  # the first passes prove and plan
        call()
    taken = ruler.medians(ruler.in_turn(calls, rounds))
    return taken["scoring"][1] / taken["forward"][1]
