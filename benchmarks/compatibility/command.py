"""`python -m benchmarks compatibility`: run the suites, write `build/compatibility.json`, hold the counts."""

import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.compatibility.counts import ESTIMATORS, Rows, counted, pin, pinned, worse
from benchmarks.compatibility.judge import VERDICTS, Row
from benchmarks.report import close, table

SUITES = {
    "opinfo": "opinfo",
    "moduleinfo": "moduleinfo",
    "transformers": "architectures",
    "peft": "peft_methods",
    "timm": "timm_models",
    "harnesses": "harnesses",
    "jax-libraries": "jax_libraries",
}
"""Each suite's file."""
EXTRA = ("peft", "timm")
"""Suites of packages that the extra `compatibility` installs."""
JAX = ("harnesses", "jax-libraries")
FORGET_AFTER = 20
"""Compiled JAX programs are dropped after so many cases, which share none."""
Asked = tuple[str, str, Callable[[], Row]]


def run_suites(suites: list[str], *, every: int = 1, named: Sequence[str] = (), write: bool = False) -> None:
    """Run every n-th case of suites, or those named; exit 1 where a suite is worse than pinned."""
    for suite in EXTRA:
        if suite in suites and find_spec(suite) is None:
            hint = "run `make compatibility` or install 'lai-core[compatibility]'"
            raise SystemExit(f"{suite}: not installed; {hint}")
    _prepare(suites)
    modules = [import_module(f"benchmarks.compatibility.{SUITES[suite]}") for suite in suites]
    found_cases = (itertools.islice(_find_cases(module, named), 0, None, every) for module in modules)
    rows: Rows = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what operations say of themselves on the way
        for number, (suite, case, judge) in enumerate(itertools.chain.from_iterable(found_cases)):
            rows.setdefault(suite, {})[case] = judge().json()
            if number % FORGET_AFTER == FORGET_AFTER - 1 and "jax" in sys.modules:
                sys.modules["jax"].clear_caches()
    found = counted(rows, 0 if named else every)
    _print(found)
    if write:
        pin(found)
    packages = ["torch", "transformers", "jax", "optax", "equinox", "flax"]
    bound = "no wrong case and no crash but those recorded, and no fewer exact ones"
    close(
        "compatibility", found, bound, worse(found, pinned()), packages=packages, contract=rows, every=every
    )


def _prepare(suites: list[str]) -> None:
    """Compute in float64 on one thread, so that what is wrong is seen and runs side by side are not slow."""
    if set(suites) - set(JAX):
        import torch

        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)
        import_module("tests.support.workloads.transformer_models").fit_torchvision()
    if set(suites) & set(JAX):
        # a program runs on a few numbers: what takes time is compiling it
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        cheap = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": flags}
        os.environ.update(cheap | os.environ)
        import jax

        jax.config.update("jax_enable_x64", True)


def _find_cases(module: Any, patterns: Sequence[str]) -> Iterator[Asked]:
    """Yield a suite's cases; of patterns with shell wildcards, those of a name or of a group of that name."""
    for group in module.groups():
        if any(fnmatchcase(group, pattern.split("#")[0]) for pattern in patterns or ("*",)):
            for case in module.cases(group):
                if any(
                    fnmatchcase(name, pattern) for pattern in patterns or ("*",) for name in (group, case[1])
                ):
                    yield case


def _print(found: dict[str, Any]) -> None:
    rows = [
        (suite, estimator, *(str(entry["counts"][estimator].get(verdict, 0)) for verdict in VERDICTS))
        for suite, entry in found.items()
        for estimator in ESTIMATORS
    ]
    table("Compatibility", ("suite", "estimator", *VERDICTS), rows)
