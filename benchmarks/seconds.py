"""`python -m benchmarks seconds`, `cost torch`: what steps take beside a plain one, and whether counts grew.

Operations, bytes, waits and launches are the same on every machine with the same packages, so two runs may be
judged by them; seconds are shown.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import lai_torch
import torch

from benchmarks import jax_steps, report, ruler
from benchmarks.methods import (
    KEPT,
    SELECTIVE,
    Build,
    Step,
    bytes_of,
    curated,
    diagnosed,
    diagnosed_first,
    half,
    hand,
    mixture,
    peer,
    plain,
    prepared,
)
from benchmarks.models import COSTED, TIMED, Work
from tests.support.workloads.counts import counted

Figures = dict[str, dict[str, dict[str, float | None]]]
OVER = ("half", "hand")
"""What else seconds are divided by: a plain step on as many random rows, and the step written by hand."""
COLUMNS = (
    *("seconds_ratio", "cpu_ratio", "flops_ratio", "memory_ratio", "waits", "launches"),
    *(f"{other}_ratio" for other in OVER),
)
SLACK = {"flops_ratio": 0.01, "memory_ratio": 0.02, "launches": 0.02, "waits": 0.0}
"""By which share a figure may grow before it counts as worse: allocators and kernels differ a little."""
BASELINE = Path(__file__).with_name("baseline.json")
"""What a run may not be worse than."""
METHODS = {
    "plain": plain,
    "half": half,
    "kept": KEPT,
    "selective": SELECTIVE,
    "whole": curated(lai_torch.LAI(), "whole"),
    "mixture": mixture,
    "diagnose": diagnosed,
    "diagnose_first": diagnosed_first,
    "hand": hand,
}
LEAST = 0.05
"""Seconds of a step's own work, at least, in one measurement: small steps are run several times."""
COMPUTING = ("resnet18", "bert_small", "gpt_small", "vit_tiny")
LAUNCHING = ("bert_12_launches", "gpt_12_launches")


CPU = (
    (COMPUTING, ("kept", 0.92), ("selective", 0.80)),
    (LAUNCHING, ("kept", 1.7), ("selective", 1.5)),
    (("tiny_mlp",), ("kept", 2.0), ("selective", 2.0)),
    (tuple(jax_steps.TIMED), ("lai_cached", 0.90), ("lai_selective", 0.80)),
)
MIXTURE = {"bert_small": 1.05, "vit_tiny": 1.05, "gpt_small": 1.10}
"""Without resnet18, which couples samples: nothing rides along; LLI multiplies a vocabulary's gradients."""


def bounds() -> dict[tuple[str, str, str], float]:
    """Return what a model's method may cost: CPU seconds, the summary's memory counted, waits."""
    found = {(name, way, "cpu_ratio"): most for names, *row in CPU for name in names for way, most in row}
    found |= {(name, "mixture", "cpu_ratio"): most for name, most in MIXTURE.items()}
    found |= {(name, method, "memory_ratio"): 1.05 for name in COMPUTING for method in ("kept", "selective")}
    found |= {(name, method, "waits"): 1 for name in TIMED for method in ("kept", "selective", "whole")}
    return found | {("tiny_mlp", "kept", "hand_ratio"): 1.4}


def run(rounds: int, names: tuple[str, ...]) -> None:
    """Measure the models, torch's first, print the table, write `build/seconds.json`."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    found = measure([name for name in names if name in TIMED], rounds)
    found |= {name: jax_steps.timed(jax_steps.TIMED[name](), rounds) for name in names if name not in TIMED}
    report.ratios("over a plain step, half kept, cached summaries", found, COLUMNS)
    limits = {" ".join(key): bound for key, bound in bounds().items()}
    values = {" ".join(where): value for where, value, _ in _paired(found, found)}
    measured = {key: bound for key, bound in limits.items() if key in values}
    report.close(
        "seconds",
        found,
        limits,
        report.over(values, measured),
        packages=("torch", "transformers", "jax"),
        contract=found,
        rounds=rounds,
        load=os.getloadavg(),
        threads=1,
    )


def measure(names: Iterable[str], rounds: int) -> Figures:
    """Return each method's figures over a plain step's on each model; without `rounds`, what is counted."""
    torch.set_num_threads(1)
    return {name: ratios(TIMED[name], METHODS, rounds) for name in names}


def ratios(
    build: Callable[[], Work], methods: Mapping[str, Build], rounds: int, *, least: float = LEAST
) -> dict[str, dict[str, float | None]]:
    """Return the figures on one model of the methods that it allows, `plain` among them."""
    torch.manual_seed(0)
    work = build()
    work.model.train()
    steps, counts, failures = prepared(methods, work, work.optimizer(), partial(counts_of, work))
    if failed := [failure.trace for failure in failures.values() if not failure.refused]:
        raise RuntimeError(failed[0])
    calls = {name: step.run for name, step in steps.items()}
    times = ruler.medians(ruler.in_turn(calls, rounds, least=least))
    found: dict[str, dict[str, float | None]] = {}
    for name, row in counts.items():
        found[name] = {f"{key}_ratio": row[key] / counts["plain"][key] for key in ("flops", "memory")}
        found[name] |= {key: row[key] for key in ("waits", "launches")}
        found[name] |= dict.fromkeys(("seconds_ratio", "cpu_ratio", *(f"{other}_ratio" for other in OVER)))
        if rounds:
            clock, cpu = (each / steps[name].steps for each in times[name])
            found[name]["seconds_ratio"] = clock / times["plain"][0]
            found[name]["cpu_ratio"] = cpu / times["plain"][1]
            for other in OVER:
                found[name][f"{other}_ratio"] = cpu / times[other][1] if other in times else None
    return found


def counts_of(work: Work, step: Step) -> dict[str, float]:
    """Return what does not depend on the clock, of one step."""
    done = counted(step.run)
    found = {key: getattr(done, key) / step.steps for key in ("flops", "waits", "launches")}
    return found | {"memory": bytes_of(work, work.optimizer()) + step.held + done.peak}


COSTS: dict[str, Build] = {
    "lai_cached": KEPT,
    "lai_fresh": curated(lai_torch.LAI(), refresh=1),
    "lli_cached": curated(lai_torch.LLI()),
    "ghost_fresh": curated(lai_torch.Ghost(), refresh=1),
    "ghost_chunked": curated(lai_torch.Ghost(chunk=8), refresh=1),
    "exact_fresh": curated(lai_torch.Exact(), refresh=1),
    "lai_selective": SELECTIVE,
}
COST_BOUNDS = {
    "resnet18 lai_cached flops_ratio": 0.86,
    "resnet18 lai_fresh flops_ratio": 1.53,
    "resnet18 lai_cached memory_ratio": 1.05,
    "bert_small lai_selective flops_ratio": 0.72,
    "gpt_neo_small lai_selective flops_ratio": 0.72,
}
PEER = "opacus_fresh"
CHEAPER = (("ghost_fresh", "flops_ratio"), ("lai_fresh", "memory_ratio"))
"""What takes no more than opacus' step, on every model, where it is installed."""
COST_KEYS = ("flops_ratio", "seconds_ratio", "memory_ratio")
OVER_HALF = {f"half_{key}": key for key in ("flops_ratio", "seconds_ratio")}
"""What is also told over a plain step on a random batch of the kept size."""


def cost() -> None:
    """Measure every model and method at the paper's sizes, print the table, write `build/cost-torch.json`."""
    torch.set_num_threads(1)
    builds = {"plain": plain, "half": half, **COSTS}
    if find_spec("opacus") is None:
        print("opacus is not installed here: `make peers` measures it on the same work")
    else:
        builds[PEER] = peer
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, build in COSTED.items():
        figures = ratios(build, builds, 2, least=0.0)
        rows = {way: {key: float(row[key] or 0.0) for key in COST_KEYS} for way, row in figures.items()}
        for row in rows.values():
            row |= {over: row[key] / rows["half"][key] for over, key in OVER_HALF.items()}
        found[name] = {way: row for way, row in rows.items() if way != "plain"}
    title = "over a plain step, and over one on a random half (half); half kept"
    report.ratios(title, found, (*COST_KEYS, *OVER_HALF))
    bounded = {key: found[model][way][figure] for key in COST_BOUNDS for model, way, figure in [key.split()]}
    failed = report.over(bounded, COST_BOUNDS)
    failed += [
        f"{name} {method} {key} {methods[method][key]:.3f} > opacus' {methods[PEER][key]:.3f}"
        for name, methods in found.items()
        for method, key in CHEAPER
        if PEER in methods and not methods[method][key] <= methods[PEER][key]
    ]
    packages = ("torch", "transformers")
    report.close("cost-torch", found, COST_BOUNDS, failed, packages=packages, contract=found, threads=1)


def worse(old: Figures, new: Figures) -> list[str]:
    """Say which figure of those that do not depend on the clock grew, or is gone."""
    found = [
        f"{' '.join(where)}: {before:.3f} before, {after:.3f} now"
        for where, before, after in _paired(old, new)
        if where[2] in SLACK and after > before * (1 + SLACK[where[2]])
    ]
    return found + [
        f"{model} {method}: not measured any more"
        for model, methods in old.items()
        if model in new
        for method in methods
        if method not in new[model]
    ]


def _paired(old: Figures, new: Figures) -> Iterator[tuple[tuple[str, str, str], float, float]]:
    for model, methods in old.items():
        for method, row in methods.items():
            for key, before in row.items():
                after = new.get(model, {}).get(method, {}).get(key)
                if before is not None and after is not None:
                    yield (model, method, key), float(before), float(after)
