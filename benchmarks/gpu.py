"""`python -m benchmarks gpu`: each method's tokens a second, peak memory, waits, launches, and its log."""

from functools import partial
from pathlib import Path
from typing import Any

import lai_torch
import torch
from torch import Tensor

from benchmarks import report, ruler
from benchmarks.methods import (
    KEPT,
    SELECTIVE,
    Build,
    Kind,
    Step,
    curated,
    graphed,
    half,
    hand,
    opacus,
    plain,
    prepared,
)
from benchmarks.models import ON_GPU, Work, built
from tests.support.workloads.counts import counted

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}
"""float32, TF32 off; and parameters in float32 under bfloat16 autocast, scored so too."""
METHODS: dict[str, Build] = {
    "plain": plain,
    "plain on half": half,
    "LAI, kept": KEPT,
    "LAI, selective": SELECTIVE,
    "LAI, fresh summary": curated(lai_torch.LAI(), refresh=1),
    "Ghost": curated(lai_torch.Ghost()),
    "Ghost, fresh": curated(lai_torch.Ghost(), refresh=1),
    "exact": curated(lai_torch.Exact()),
    "plain, CUDA graphs": graphed(plain),
    "LAI, kept, CUDA graphs": graphed(KEPT),
    "by hand": hand,
    "opacus, fresh": opacus,
}
COLUMNS = {
    "tokens_per_second": "tokens/s",
    "peak_mib": "peak MiB",
    "milliseconds": "ms",
    "ratio": "ratio",
    "host": "host ms",
    "waits": "waits",
    "launches": "launches",
    "memory": "memory",
    "flops": "flops",
    "log": "log",
}
"""Figures by key, and how the table calls them. `ratio`, `memory` and `flops` are over a plain step's."""
LOGS = report.BUILD / "bench" / "gpu"


def run(rounds: int, names: tuple[str, ...]) -> None:
    """Measure on the GPU, else at toy size on the CPU; fail where a method does, unless refused by name."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    toy = device == "cpu"
    where = "toy sizes on a CPU: it runs, nothing is claimed" if toy else torch.cuda.get_device_name()
    figures: dict[str, Any] = {}
    failed = []
    for name in names or ON_GPU:
        for precision, kind in PRECISIONS.items():
            logs = LOGS / f"{name}-{precision}"
            found, why, broken = cell(name, device, kind, rounds, logs, toy=toy)
            figures[f"{name} {precision}"] = found | {way: {"refused": said} for way, said in why.items()}
            failed += [f"{name} {precision} {way}: {said}" for way, said in broken.items()]
            rows = ((way, *(report.said(row.get(key)) for key in COLUMNS)) for way, row in found.items())
            remarks = (f"{way}: {said}" for way, said in (why | broken).items())
            report.table(f"{name} {precision}, {where}", ("method", *COLUMNS.values()), rows, remarks)
    report.close(
        "gpu", figures, None, failed, packages=("torch", "transformers"), device=where, rounds=rounds
    )


def cell(
    name: str, device: str, kind: Kind, rounds: int, logs: Path, *, toy: bool
) -> tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, str]]:
    """Return each method's figures on one model in one precision; what refuses it, and what fails, and why.

    All methods train the same parameters with the same optimizer, in turn, so that clocks and temperature
    meet them alike. A method's log in `logs` has every measurement, or the traceback of what refused it.
    """
    logs.mkdir(parents=True, exist_ok=True)
    log = {way: logs / f"{way.replace(',', '').replace(' ', '-').lower()}.log" for way in METHODS}
    torch.set_float32_matmul_precision("highest")
    work = built(name, device, toy=toy)
    counts = partial(_counts, device=device)
    steps, found, failures = prepared(METHODS, work, work.optimizer(), counts, kind)
    for way, failure in failures.items():
        log[way].write_text(failure.trace, encoding="utf-8")
    why = {way: failure.line for way, failure in failures.items() if failure.refused}
    broken = {way: f"{each.line}; {log[way]}" for way, each in failures.items() if not each.refused}
    calls = {way: step.run for way, step in steps.items()}
    taken = ruler.in_turn(calls, rounds, clock=ruler.on_gpu if device == "cuda" else _twice)
    for way, (seconds, host) in ruler.medians(taken).items():
        row = found[way]
        row |= {"milliseconds": seconds * 1e3, "host": host * 1e3}
        row |= {"tokens_per_second": _tokens(work) / seconds, "peak_mib": row["memory"] / 2**20}
        machine = torch.cuda.get_device_name() if device == "cuda" else device
        lines = [f"{name}, {way}, {kind or 'float32'}, {machine}, torch {torch.__version__}"]
        lines += [f"{key} {value}" for key, value in row.items()]
        times = enumerate(taken[way])
        lines += [f"round {index}: {1e3 * each} ms, host {1e3 * until} ms" for index, (each, until) in times]
        log[way].write_text("\n".join(lines) + "\n", encoding="utf-8")
        row["log"] = str(log[way])
    plainly = dict(found["plain"])
    for row in found.values():
        row["ratio"] = row["milliseconds"] / plainly["milliseconds"]
        row |= {key: row[key] / plainly[key] for key in ("memory", "flops")}
    return found, why, broken


def _tokens(work: Work) -> int:
    """Return how many tokens a batch has, kept or not; an image counts as one."""
    inputs = work.batch[0]
    ids = inputs["input_ids"] if isinstance(inputs, dict) else inputs
    return ids.numel() if isinstance(ids, Tensor) and not ids.is_floating_point() else len(work.batch[1])


def _counts(step: Step, device: str) -> dict[str, Any]:
    """Return what a step starts, waits for, computes and holds at most."""
    done = counted(step.run)
    row = {"launches": done.launches, "waits": done.waits, "flops": done.flops}
    if device == "cpu":
        return row | {"memory": done.peak}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step.run()
    torch.cuda.synchronize()
    return row | {"memory": torch.cuda.max_memory_allocated()}


def _twice(step: ruler.Call, repeats: int) -> tuple[float, float]:
    """Return the seconds of a call by the clock, for the device and for the host."""
    taken, _ = ruler.on_cpu(step, repeats)
    return taken, taken
