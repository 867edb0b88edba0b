"""`python -m benchmarks seconds` and `compare`: measure, print, judge, write."""

import os
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.models import TIMED
from benchmarks.seconds import jax_steps, torch_steps
from benchmarks.seconds.history import COLUMNS, changes, read, worse

COMPUTING = ("resnet18", "bert_small", "gpt_small", "vit_tiny")
LAUNCHING = ("bert_12_launches", "gpt_12_launches")


def bounds() -> dict[tuple[str, str, str], float]:
    """Return what a model's method may cost: CPU seconds, the summary's memory counted, waits."""
    found: dict[tuple[str, str, str], float] = {}
    for names, kept, selective in ((COMPUTING, 0.92, 0.80), (LAUNCHING, 1.7, 1.5), (("tiny_mlp",), 2.0, 2.0)):
        for name in names:
            found[(name, "kept", "cpu_ratio")] = kept
            found[(name, "selective", "cpu_ratio")] = selective
    found[("tiny_mlp", "kept", "hand_ratio")] = 1.4
    for name in COMPUTING:
        found |= {(name, method, "memory_ratio"): 1.05 for method in ("kept", "selective")}
    methods = ("kept", "selective", "whole")
    found |= {(name, method, "waits"): 1 for name in TIMED for method in methods}
    for name, bound in (("bert_small", 1.05), ("vit_tiny", 1.05), ("gpt_small", 1.10)):
        # resnet18 couples samples: nothing rides along; LLI multiplies a vocabulary's gradients once more
        found[(name, "mixture", "cpu_ratio")] = bound
    for name in jax_steps.MODELS:
        found |= {(name, "lai_cached", "cpu_ratio"): 0.90, (name, "lai_selective", "cpu_ratio"): 0.80}
    return found


def run(rounds: int, names: tuple[str, ...]) -> None:
    """Measure the models, torch's first, print the table, write `build/seconds.json`."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    found = torch_steps.measure([name for name in names if name in TIMED], rounds)
    if set(jax_steps.MODELS) & set(names):
        found |= jax_steps.measure(rounds)
    _show("over a plain step, half kept, cached summaries", found)
    failed = []
    limits = bounds()
    for (model, method, key), bound in limits.items():
        value = found.get(model, {}).get(method, {}).get(key)
        if value is not None and value > bound:
            failed.append(f"{model} {method} {key} {value:.3f} > {bound}")
    report.close(
        "seconds",
        found,
        {" ".join(key): bound for key, bound in limits.items()},
        failed,
        packages=("torch", "transformers", "jax"),
        contract=found,
        rounds=rounds,
        load=os.getloadavg(),
        threads=1,
    )


def compare(before: Path, after: Path) -> None:
    """Print what changed between two files; fail where what does not depend on the clock got worse.

    Raises
    ------
    SystemExit
        If something did.
    """
    old, new = read(before), read(after)
    report.table(
        f"{before} to {after}",
        ("model", "method", "figure", "before", "after"),
        ((*where, f"{a:.3f}", f"{b:.3f}") for where, a, b in changes(old, new)),
    )
    if broken := worse(old, new):
        raise SystemExit("; ".join(broken))


def _show(title: str, found: dict[str, dict[str, dict[str, Any]]]) -> None:
    rows = (
        (model, method, *("" if row[key] is None else f"{row[key]:.3f}" for key in COLUMNS))
        for model, methods in found.items()
        for method, row in methods.items()
    )
    report.table(title, ("model", "method", *(key.removesuffix("_ratio") for key in COLUMNS)), rows)
