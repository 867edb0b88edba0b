"""`python -m benchmarks compatibility`: run the suites, write `build/compatibility.json`, hold the counts."""

import json
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.compatibility.judge import ESTIMATORS, VERDICTS, judge
from benchmarks.report import close, table

SUITES = {
    "moduleinfo": "moduleinfo",
    "transformers": "architectures",
    "peft": "peft_methods",
    "timm": "timm_models",
    "jax-libraries": "jax_libraries",
}
"""Each suite's file: its `cases` yields the suite, the case's name and a function that builds it."""
EXTRA = ("peft", "timm")
"""Suites of packages that the extra `compatibility` installs."""
JAX = "jax-libraries"
PINNED = Path(__file__).parent / "counts.json"
Rows = dict[str, dict[str, dict[str, Any]]]
"""`{SUITE: {CASE: row}}`, as written."""


def run_suites(suites: list[str], *, named: Sequence[str] = (), write: bool = False) -> None:
    """Run the cases of suites, or those named; exit 1 where a suite is worse than pinned."""
    for suite in EXTRA:
        if suite in suites and find_spec(suite) is None:
            hint = "run `make compatibility` or install 'lai-core[compatibility]'"
            raise SystemExit(f"{suite}: not installed; {hint}")
    _prepare(suites)
    rows: Rows = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what operations say of themselves on the way
        for module in (import_module(f"benchmarks.compatibility.{SUITES[suite]}") for suite in suites):
            for suite, case, build in module.cases():
                if not named or any(fnmatchcase(case, pattern) for pattern in named):
                    rows.setdefault(suite, {})[case] = judge(build)
    found = count(rows)
    pinned: dict[str, Any] = json.loads(PINNED.read_text())
    figures = [
        (suite, estimator, *(str(entry["counts"][estimator].get(verdict, 0)) for verdict in VERDICTS))
        for suite, entry in found.items()
        for estimator in ESTIMATORS
    ]
    table("Compatibility", ("suite", "estimator", *VERDICTS), figures)
    if write and not named:
        PINNED.write_text(json.dumps(dict(sorted((pinned | found).items())), indent=1) + "\n")
    packages = ["torch", "transformers", "jax", "optax", "equinox", "flax"]
    bound = "no wrong case, no crash, and no fewer exact cases than pinned"
    complaints = find_failures(rows) + ([] if named else find_losses(found, pinned))
    close("compatibility", found, bound, complaints, packages=packages, contract=rows)


def _prepare(suites: list[str]) -> None:
    """Compute in float64 on one thread, so that what is wrong is seen and runs side by side are not slow."""
    if {*suites} - {JAX}:
        import torch

        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)
        import_module("tests.support.workloads.transformer_models").fit_torchvision()
    if JAX in suites:
        # a program runs on a few numbers: what takes time is compiling it
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        cheap = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": flags}
        os.environ.update(cheap | os.environ)
        import jax

        jax.config.update("jax_enable_x64", True)


def count(rows: Rows) -> dict[str, Any]:
    """Return what is pinned of a run: of each suite how many cases came to what."""
    return {
        suite: {
            "cases": len(found),
            "counts": {
                each: dict(sorted(Counter(row[each] for row in found.values() if each in row).items()))
                for each in ESTIMATORS
            },
        }
        for suite, found in rows.items()
    }


def find_failures(rows: Rows) -> list[str]:
    """Return what is wrong or crashes."""
    return [
        f"{suite}: {estimator} of {case}: {row['reason']}"
        for suite, found in rows.items()
        for case, row in found.items()
        for estimator in ESTIMATORS
        if row.get(estimator) in {"wrong", "crash"}
    ]


def find_losses(found: dict[str, Any], pinned: dict[str, Any]) -> list[str]:
    """Return where fewer cases are exact than are pinned."""
    complaints = []
    for suite, now in found.items():
        for estimator, counts in pinned.get(suite, {"counts": {}})["counts"].items():
            exact, was = now["counts"][estimator].get("exact", 0), counts.get("exact", 0)
            if exact < was:
                complaints.append(f"{suite}: {estimator} was exact in {was} cases, and is in {exact}")
    return complaints
