"""`python -m benchmarks scoring`: every way to score a batch, beside one plain training step, in one run."""

import statistics
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import report
from benchmarks.meters_torch import PeakBytes, plain_step
from benchmarks.models import TIMED, Work
from benchmarks.scoring.ways import WAYS, Way
from benchmarks.seconds.torch_steps import once
from workloads.operations import operations

SHOWN = ("mlp", "resnet18", "bert_small", "gpt_small")
AGREEMENT = 1e-3
"""Float32 scores of ways that are exact are better than this; what is not exact at all is off by more."""
COLUMNS = ("cached cpu", "fresh cpu", "cached flops", "fresh flops", "memory", "error")


def run(rounds: int, names: tuple[str, ...]) -> None:
    """Measure, print the tables, write `build/bench/scoring.json`.

    Raises
    ------
    SystemExit
        If a way that is exact gives other scores than a loop over the samples.
    """
    torch.set_num_threads(1)
    figures, failed = {}, []
    for name in names or SHOWN:
        torch.manual_seed(0)
        work = TIMED[name]()
        found, refused = measured(work, rounds)
        figures[name] = found
        report.table(
            f"{name}: scoring a batch, over a plain training step",
            ("way", *COLUMNS),
            ((way, *(_said(row[key]) for key in COLUMNS)) for way, row in found.items()),
            (f"{way}: {why}" for way, why in refused.items()),
        )
        failed += [
            f"{name} {way} error {row['error']:.1e} > {AGREEMENT}"
            for way, row in found.items()
            if row["judged"] and not row["error"] <= AGREEMENT
        ]
    report.close(
        "scoring", figures, AGREEMENT, failed, packages=("torch", "transformers"), rounds=rounds, threads=1
    )


def measured(work: Work, rounds: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return each way's figures, seconds only if there are rounds; of those that cannot, why."""
    work.model.train()
    optimizer = work.optimizer()
    calls: dict[str, Callable[[], Any]] = {"plain": lambda: plain_step(work, optimizer)}
    flops = {"plain": operations(calls["plain"])}
    memory = {"plain": _peak(calls["plain"])}
    work.model.eval()  # as scores are: with normalisations by running statistics
    ways, refused = _ways(work)
    truth = ways["loop"].cached()
    errors: dict[str, float] = {}
    for name, way in ways.items():
        for kind, call in (("cached", way.cached), ("fresh", way.fresh)):
            calls[f"{name} {kind}"] = call
            flops[f"{name} {kind}"] = operations(call)
        memory[name] = _peak(way.cached) + way.held
        errors[name] = (
            float((way.cached() - truth).abs().max() / truth.abs().max()) if way.exact is not False else None
        )
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            work.model.train(name == "plain")
            taken[name].append(once(call, 1)[1])
    cpu = {name: statistics.median(times) if times else float("nan") for name, times in taken.items()}
    return {
        name: {
            "cached cpu": cpu[f"{name} cached"] / cpu["plain"],
            "fresh cpu": cpu[f"{name} fresh"] / cpu["plain"],
            "cached flops": flops[f"{name} cached"] / flops["plain"],
            "fresh flops": flops[f"{name} fresh"] / flops["plain"],
            "memory": memory[name] / memory["plain"],
            "error": errors.get(name),
            "judged": way.exact,
        }
        for name, way in ways.items()
    }, refused


def _ways(work: Work) -> tuple[dict[str, Way], dict[str, str]]:
    """Return the ways that there are; of those that fail, the error."""
    found, refused = {}, {}
    for name, build in WAYS.items():
        try:
            way = build(work)
            if way is None:
                refused[name] = "not installed, or not for such a model"
                continue
            way.fresh()
            found[name] = way
        except (RuntimeError, ValueError, NotImplementedError) as error:
            refused[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return found, refused


def _peak(call: Callable[[], Any]) -> int:
    """Return the bytes that a call has alive at most, beside what was there."""
    call()
    tracker = PeakBytes()
    with tracker:
        call()
    return tracker.peak


def _said(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.2g}"
