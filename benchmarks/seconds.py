"""`python -m benchmarks seconds`, `cost`: what steps take beside a plain one, and whether counts grew.

Operations, bytes, waits and launches are the same on every machine with the same packages, so two runs may be
judged by them; seconds are shown. Where there is a GPU, torch's models run on it: `seconds` are then the
device's, `cpu` the host's until it is done, and no bound of seconds is judged.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import lai_torch
import torch

from benchmarks import jax_steps, report, ruler
from benchmarks.methods import (
    KEPT,
    SELECTIVE,
    Build,
    curated,
    diagnosed,
    diagnosed_first,
    half,
    hand,
    plain,
    prepared,
)
from benchmarks.models import COSTED, FOR_GPU, TIMED, Work, built

Figures = dict[str, dict[str, dict[str, float | None]]]
COLUMNS = (
    *("seconds_ratio", "cpu_ratio", "flops_ratio", "memory_ratio", "waits", "launches"),
    *("half_ratio", "hand_ratio"),
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
    "diagnose": diagnosed,
    "diagnose_first": diagnosed_first,
    "hand": hand,
}
LEAST = 0.05
"""Seconds of a step's own work, at least, in one measurement: small steps are run several times."""
SECONDS = ("cpu_ratio", "hand_ratio")
COMPUTING = ("resnet18", "bert_small", "gpt_small", "vit_tiny")
LAUNCHING = ("bert_12_launches", "gpt_12_launches")
CPU = (
    (COMPUTING, ("kept", 0.92), ("selective", 0.80)),
    (LAUNCHING, ("kept", 1.7), ("selective", 1.5)),
    (("tiny_mlp",), ("kept", 2.0), ("selective", 2.0)),
    (tuple(jax_steps.TIMED), ("lai_cached", 0.90), ("lai_selective", 0.80)),
)


def bounds() -> dict[tuple[str, str, str], float]:
    """Return what a model's method may cost: CPU seconds, the summary's memory counted, waits."""
    found = {(name, way, "cpu_ratio"): most for names, *row in CPU for name in names for way, most in row}
    found |= {(name, method, "memory_ratio"): 1.05 for name in COMPUTING for method in ("kept", "selective")}
    found |= {(name, method, "waits"): 1 for name in TIMED for method in ("kept", "selective", "whole")}
    return found | {("tiny_mlp", "kept", "hand_ratio"): 1.4}


def run(rounds: int, names: tuple[str, ...]) -> None:
    """Measure the models, torch's first, print the table, write `build/seconds.json`."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    found = measure([name for name in names if name not in jax_steps.TIMED], rounds)
    found |= {
        name: jax_steps.timed(jax_steps.TIMED[name](), rounds) for name in names if name in jax_steps.TIMED
    }
    judged = {where for where, *_ in _paired(found, found)}
    if torch.cuda.is_available():
        judged = {where for where in judged if where[2] not in SECONDS}
    limits = {where: most for where, most in bounds().items() if where in judged}
    close("seconds", found, limits, rounds)


def close(name: str, found: Figures, limits: Mapping[tuple[str, str, str], float], rounds: int) -> None:
    """Print the table, write `build/NAME.json`, fail where a figure is above its bound."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "one CPU thread"
    rows = (
        (model, method, *("" if row.get(key) is None else f"{row[key]:.3f}" for key in COLUMNS))
        for model, methods in found.items()
        for method, row in methods.items()
    )
    columns = ("model", "method", *(key.removesuffix("_ratio") for key in COLUMNS))
    report.table(f"over a plain step, half kept, on {device}", columns, rows)
    bound = {" ".join(where): most for where, most in limits.items()}
    values = {" ".join(where): found[where[0]][where[1]][where[2]] for where in limits}
    setting = {"rounds": rounds, "load": os.getloadavg(), "device": device}
    packages = ("torch", "transformers", "jax")
    broken = (where for where, most in bound.items() if not values[where] <= most)
    failed = [f"{where} {values[where]:.3f} > {bound[where]}" for where in broken]
    report.close(name, found, bound, failed, packages=packages, contract=found, **setting)


def measure(names: Iterable[str], rounds: int) -> Figures:
    """Return each method's figures over a plain step's on each model; without `rounds`, what is counted."""
    torch.set_num_threads(1)
    return {name: ratios((TIMED | FOR_GPU)[name], METHODS, rounds) for name in names}


def ratios(
    build: Callable[[], Work], methods: Mapping[str, Build], rounds: int, *, least: float = LEAST
) -> dict[str, dict[str, float | None]]:
    """Return the figures on one model of the methods that it allows, `plain` among them."""
    work = built(build)
    steps, counts = prepared(methods, work)
    calls = {name: step.run for name, step in steps.items()}
    clock = ruler.on_gpu if torch.cuda.is_available() else ruler.on_cpu
    times = ruler.in_turn(calls, rounds, least=least, clock=clock)
    return ruler.compare(counts, times, dict.fromkeys(counts, "hand"))


COSTS: dict[str, Build] = {
    "plain": plain,
    "half": half,
    "lai_cached": KEPT,
    "lai_fresh": curated(lai_torch.LAI(), refresh=1),
    "lli_cached": curated(lai_torch.LLI()),
    "ghost_fresh": curated(lai_torch.Ghost(), refresh=1),
    "ghost_chunked": curated(lai_torch.Ghost(chunk=8), refresh=1),
    "exact_fresh": curated(lai_torch.Exact(), refresh=1),
    "lai_selective": SELECTIVE,
}
COST_BOUNDS = {
    ("resnet18", "lai_cached", "flops_ratio"): 0.86,
    ("resnet18", "lai_fresh", "flops_ratio"): 1.53,
    ("resnet18", "lai_cached", "memory_ratio"): 1.05,
    ("bert_small", "lai_selective", "flops_ratio"): 0.72,
    ("gpt_neo_small", "lai_selective", "flops_ratio"): 0.72,
}
JAX_BOUNDS = {
    (model, method, "flops_ratio"): most
    for model in jax_steps.COSTED
    for method, most in (("lai_cached", 0.86), ("lai_selective", 0.72))
}


def cost_torch() -> None:
    """Measure every model and method at the paper's sizes, print the table, write `build/cost-torch.json`."""
    torch.set_num_threads(1)
    found = {name: ratios(build, COSTS, 2, least=0.0) for name, build in COSTED.items()}
    close("cost-torch", found, COST_BOUNDS, 2)


def cost_jax() -> None:
    """Do the same for JAX's models, write `build/cost-jax.json`."""
    found = {name: jax_steps.timed(build(), 3) for name, build in jax_steps.COSTED.items()}
    close("cost-jax", found, JAX_BOUNDS, 3)


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
