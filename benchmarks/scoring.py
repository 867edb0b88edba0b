"""`python -m benchmarks scoring`: every way to score a batch, beside one plain training step, in one run."""

from functools import partial
from typing import Any

import torch

from benchmarks import report, ruler
from benchmarks.methods import plain_step
from benchmarks.models import TIMED, Work
from benchmarks.ways import WAYS, Way
from tests.support.workloads.counts import counted

SHOWN = ("mlp", "resnet18", "bert_small", "gpt_small")
AGREEMENT = 1e-3
"""Float32 scores of ways that are exact are better than this; what is not exact at all is off by more."""
COLUMNS = ("cached cpu", "fresh cpu", "cached flops", "fresh flops", "memory", "error")


def run(rounds: int, names: tuple[str, ...]) -> None:
    """Measure, print the tables; fail where a way that is exact gives other scores than a loop."""
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
            ((way, *(report.said(row[key], "{:.2g}") for key in COLUMNS)) for way, row in found.items()),
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
    calls: dict[str, ruler.Call] = {"plain": partial(plain_step, work, optimizer)}
    calls["plain"]()
    counts = {"plain": counted(calls["plain"])}
    work.model.eval()  # as scores are: with normalisations by running statistics
    ways, refused = _ways(work)
    truth = ways["loop"].cached()
    for name, way in ways.items():
        calls |= {f"{name} cached": way.cached, f"{name} fresh": way.fresh}
    # Batches are proved at calls 1, 2, 4, 8, ...: of three in a row one at least proves nothing.
    counts |= {
        name: min((counted(call) for _ in range(3)), key=lambda one: one.flops)
        for name, call in calls.items()
        if name != "plain"
    }

    def clock(call: ruler.Call, repeats: int) -> tuple[float, float]:
        work.model.train(call is calls["plain"])
        return ruler.on_cpu(call, repeats)

    seconds = ruler.medians(ruler.in_turn(calls, rounds, clock=clock))
    cpu = {name: seconds[name][1] if rounds else float("nan") for name in calls}
    figures: dict[str, dict[str, Any]] = {}
    for name, way in ways.items():
        row: dict[str, Any] = {
            f"{kind} cpu": cpu[f"{name} {kind}"] / cpu["plain"] for kind in ("cached", "fresh")
        }
        for kind in ("cached", "fresh"):
            row[f"{kind} flops"] = counts[f"{name} {kind}"].flops / counts["plain"].flops
        row["memory"] = (counts[f"{name} cached"].peak + way.held) / counts["plain"].peak
        off = (way.cached() - truth).abs().max() / truth.abs().max()
        figures[name] = row | {"error": None if way.exact is False else float(off), "judged": way.exact}
    return figures, refused


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
