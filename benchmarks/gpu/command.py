"""`python -m benchmarks gpu`: each method's tokens a second, peak memory, waits, launches, and its log."""

import gc
import statistics
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import report
from benchmarks.gpu.methods import METHODS
from benchmarks.meters_torch import PeakBytes
from benchmarks.models import ON_GPU, Work, built
from workloads.launches import counted
from workloads.operations import operations

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}
"""float32, TF32 off; and parameters in float32 under bfloat16 autocast, scored so too."""
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
FIRST = 3
"""Steps that prove and capture, which a user pays once."""


def run(rounds: int, names: tuple[str, ...]) -> None:
    """Measure on the GPU that there is, else at toy size on the CPU; write `build/bench/gpu.json`.

    Raises
    ------
    SystemExit
        If a method fails that is not refused by name.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    toy = device == "cpu"
    where = "toy sizes on a CPU: it runs, nothing is claimed" if toy else torch.cuda.get_device_name()
    figures: dict[str, Any] = {}
    failed = []
    for name in names or ON_GPU:
        for precision, kind in PRECISIONS.items():
            logs = LOGS / f"{name}-{precision}"
            found, refused, broken = cell(name, device, kind, rounds, logs, toy=toy)
            figures[f"{name} {precision}"] = found | {way: {"refused": why} for way, why in refused.items()}
            failed += [f"{name} {precision} {way}: {why}" for way, why in broken.items()]
            rows = ((way, *(_said(row.get(key)) for key in COLUMNS)) for way, row in found.items())
            remarks = (f"{way}: {why}" for way, why in (refused | broken).items())
            report.table(f"{name} {precision}, {where}", ("method", *COLUMNS.values()), rows, remarks)
    report.close(
        "gpu", figures, None, failed, packages=("torch", "transformers"), device=where, rounds=rounds
    )


def cell(
    name: str, device: str, kind: torch.dtype | None, rounds: int, logs: Path, *, toy: bool
) -> tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, str]]:
    """Return each method's figures on one model in one precision; what refuses it, and what fails, and why.

    All methods train the same parameters with the same optimizer, in turn, so that clocks and temperature
    meet them alike. A method's log in `logs` has every measurement, or the traceback of what refused it.
    """
    logs.mkdir(parents=True, exist_ok=True)
    log = {way: logs / f"{way.replace(',', '').replace(' ', '-').lower()}.log" for way in METHODS}
    torch.set_float32_matmul_precision("highest")
    work = built(name, device, toy=toy)
    optimizer = work.optimizer()
    steps: dict[str, Callable[[], Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    refused, broken = {}, {}
    for way, build in METHODS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = build(work, optimizer, kind)
                for _ in range(FIRST):
                    step()
                found[way] = _counts(step, device)
        except (ValueError, NotImplementedError, ModuleNotFoundError) as error:
            refused[way] = str(error).splitlines()[0]
            log[way].write_text(traceback.format_exc(), encoding="utf-8")
        except RuntimeError as error:
            broken[way] = f"{type(error).__name__}: {str(error).splitlines()[0]}; {log[way]}"
            log[way].write_text(traceback.format_exc(), encoding="utf-8")
        else:
            steps[way] = step
        gc.collect()
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in steps}
    names = list(steps)
    for index in range(rounds):
        shift = index % len(names)
        for way in names[shift:] + names[:shift]:
            taken[way].append(_milliseconds(steps[way], device))
    for way, times in taken.items():
        row = found[way]
        row["milliseconds"], row["host"] = map(statistics.median, zip(*times, strict=True))
        row["tokens_per_second"] = _tokens(work) / row["milliseconds"] * 1e3
        row["peak_mib"] = row["memory"] / 2**20
        machine = torch.cuda.get_device_name() if device == "cuda" else device
        lines = [f"{name}, {way}, {kind or 'float32'}, {machine}, torch {torch.__version__}"]
        lines += [f"{key} {value}" for key, value in row.items()]
        lines += [f"round {index}: {each} ms, host {host} ms" for index, (each, host) in enumerate(times)]
        log[way].write_text("\n".join(lines) + "\n", encoding="utf-8")
        row["log"] = str(log[way])
    plain = dict(found["plain"])
    for row in found.values():
        row["ratio"] = row["milliseconds"] / plain["milliseconds"]
        row["memory"], row["flops"] = row["memory"] / plain["memory"], row["flops"] / plain["flops"]
    return found, refused, broken


def _tokens(work: Work) -> int:
    """Return how many tokens a batch has, kept or not; an image counts as one."""
    inputs = work.batch[0]
    ids = inputs["input_ids"] if isinstance(inputs, dict) else inputs
    return ids.numel() if isinstance(ids, Tensor) and not ids.is_floating_point() else len(work.batch[1])


def _counts(step: Callable[[], Any], device: str) -> dict[str, float]:
    """Return what a step starts, waits for, computes and holds at most."""
    done = counted(step)
    row = {"launches": done.launches, "waits": done.waits, "flops": operations(step)}
    if device == "cpu":
        tracker = PeakBytes()
        with tracker:
            step()
        return row | {"memory": tracker.peak}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return row | {"memory": torch.cuda.max_memory_allocated()}


def _milliseconds(step: Callable[[], Any], device: str) -> tuple[float, float]:
    """Return a step's milliseconds: between two events on the device, and until the host was done."""
    if device == "cpu":
        start = time.perf_counter()
        step()
        taken = (time.perf_counter() - start) * 1e3
        return taken, taken
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start = time.perf_counter()
    begin.record()
    step()
    end.record()
    host = (time.perf_counter() - start) * 1e3
    torch.cuda.synchronize()
    return begin.elapsed_time(end), host


def _said(figure: float | str | None) -> str:
    if isinstance(figure, str):
        return figure
    return "" if figure is None else f"{figure:.4g}"
