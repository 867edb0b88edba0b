"""How a curated step grows with the batch, the validation set and the model: exponents, fitted to counts.

Nothing here depends on the clock. Each size is doubled three times by itself, the others held; the exponent
of a count is the slope of its logarithm over the size's.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks import report
from benchmarks.methods import KEPT, plain, prepared
from benchmarks.models import Work, gpt, mlp
from benchmarks.seconds import counts_of

DOUBLINGS = 3
BASE = {"width": 32, "depth": 4, "heads": 2, "length": 16, "samples": 8, "vocabulary": 1024}
CHAIN = {"width": 256, "depth": 3, "samples": 64, "validation": 64}
"""Where it starts: below, a summary is a matrix yet, and a step copies all parameters (1 MiB)."""


def _transformer(**sizes: int) -> Work:
    return gpt(**BASE | sizes)


def _chain(**sizes: int) -> Work:
    of = CHAIN | sizes
    widths = [of["width"]] * (of["depth"] + 1)
    return mlp(*widths, 10, samples=of["samples"], validation=of["validation"])


AXES: dict[str, tuple[Callable[..., Work], str, int]] = {
    "batch and validation (GPT)": (_transformer, "samples", BASE["samples"]),
    "depth (GPT)": (_transformer, "depth", BASE["depth"]),
    "width (GPT)": (_transformer, "width", BASE["width"]),
    "length (GPT)": (_transformer, "length", BASE["length"]),
    "vocabulary (GPT)": (_transformer, "vocabulary", BASE["vocabulary"]),
    "batch (MLP)": (_chain, "samples", CHAIN["samples"]),
    "validation (MLP)": (_chain, "validation", CHAIN["validation"]),
    "layers (MLP)": (_chain, "depth", CHAIN["depth"]),
    "width (MLP)": (_chain, "width", CHAIN["width"]),
}
"""What grows: the network that is built, the size's name, and where it starts."""
COUNTS = ("operations over plain", "launches", "waits", "summary's bytes")
BYTES = "bytes over plain, at most"
FLAT = 0.05
"""An exponent that counts as none."""


def bounds(axis: str) -> dict[str, float]:
    """Return how fast each count may grow along an axis."""
    deep = axis.startswith(("depth", "layers"))
    return {
        "operations over plain": FLAT,
        "launches": 1.0 if deep else FLAT,
        "waits": FLAT,
        "summary's bytes": FLAT if axis.startswith("validation") else 1.0 + FLAT,
        BYTES: 1.05,
    }


def along(build: Callable[..., Work], name: str, start: int) -> dict[str, float]:
    """Return the exponent of each count while one size doubles, and the most bytes over plain training's."""
    sizes = [start * 2**power for power in range(DOUBLINGS + 1)]
    found = [_counted(build(**{name: size})) for size in sizes]
    logs = np.log(sizes)
    slopes = {key: _slope(logs, [row[key] for row in found]) for key in COUNTS}
    return slopes | {BYTES: max(row[BYTES] for row in found)}


def _slope(logs: Any, values: list[float]) -> float:
    if any(value <= 0 for value in values):
        return 0.0 if len(set(values)) == 1 else math.inf
    return float(np.polyfit(logs, np.log(values), 1)[0])


def _counted(work: Work) -> dict[str, float]:
    """Count a warm step, half kept, beside a plain one."""
    steps, found, _ = prepared(
        {"plain": plain, "kept": KEPT}, work, work.optimizer(), partial(counts_of, work)
    )
    own, beside = found["kept"], found["plain"]
    return {
        "operations over plain": own["flops"] / beside["flops"],
        BYTES: own["memory"] / beside["memory"],
        "launches": own["launches"],
        "waits": own["waits"],
        "summary's bytes": steps["kept"].held,
    }


def run() -> None:
    """Measure, print the table, write `build/bench/growth.json`."""
    found = {axis: along(*how) for axis, how in track(AXES.items(), "growth", console=Console(stderr=True))}
    report.table(
        "exponents of a curated step's counts, one size doubled three times",
        ("what grows", *COUNTS, BYTES),
        ((axis, *(f"{row[key]:.2f}" for key in (*COUNTS, BYTES))) for axis, row in found.items()),
    )
    failed = [f"{axis}: {line}" for axis, row in found.items() for line in report.over(row, bounds(axis))]
    limits = {axis: bounds(axis) for axis in AXES}
    report.close("growth", found, limits, failed, packages=("torch", "transformers"))
