"""`python -m benchmarks compatibility`: run the suites, write `build/compatibility.json`, hold the counts."""

import itertools
import os
import random
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.compatibility.counts import ESTIMATORS, Rows, counted, pin, pinned, worse
from benchmarks.compatibility.verdicts import VERDICTS, Row
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


def run_suites(
    suites: list[str],
    *,
    sample: int | None = None,
    every: int = 1,
    named: Sequence[str] = (),
    write: bool = False,
) -> None:
    """Run suites whole, every n-th case, so many, or those named; exit 1 where one is worse than pinned."""
    for suite in EXTRA:
        if suite in suites and find_spec(suite) is None:
            hint = "run `make compatibility` or install 'lai-core[compatibility]'"
            raise SystemExit(f"{suite}: not installed; {hint}")
    _prepare(suites)
    modules = [import_module(f"benchmarks.compatibility.{SUITES[suite]}") for suite in suites]
    asked = _whole(modules, every) if sample is None else itertools.islice(_mixed(modules), sample)
    if named:
        asked = named_cases(modules, named)
    rows: Rows = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what operations say of themselves on the way
        for number, (suite, case, judge) in enumerate(asked):
            rows.setdefault(suite, {})[case] = judge().json()
            if number % FORGET_AFTER == FORGET_AFTER - 1 and "jax" in sys.modules:
                sys.modules["jax"].clear_caches()
    found = counted(rows, 0 if named or sample is not None else every)
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


def _whole(modules: list[Any], every: int) -> Iterator[Asked]:
    for module in modules:
        cases = (case for group in module.groups() for case in module.cases(group))
        yield from itertools.islice(cases, 0, None, every)


def named_cases(modules: list[Any], patterns: Sequence[str]) -> Iterator[Asked]:
    """Yield the cases of a name, with shell wildcards, or all those of a group of that name."""
    for module, pattern in itertools.product(modules, patterns):
        for group in filter(lambda group: fnmatchcase(group, pattern.split("#")[0]), module.groups()):
            whole = "#" not in pattern
            yield from (case for case in module.cases(group) if whole or fnmatchcase(case[1], pattern))


def _mixed(modules: list[Any]) -> Iterator[Asked]:
    """Yield one case of a group, suite by suite in turn, always in one order."""
    for groups in itertools.zip_longest(*map(_shuffled, modules)):
        for module, group in zip(modules, groups, strict=True):
            if group is None:
                continue
            cases = list(module.cases(group))
            if cases:
                yield cases[zlib.crc32(group.encode()) % len(cases)]


def _shuffled(module: Any) -> list[str]:
    groups = [group for group in module.groups() if group not in getattr(module, "SLOW", ())]
    random.Random(0).shuffle(groups)
    return groups


def _print(found: dict[str, Any]) -> None:
    rows = [
        (suite, estimator, *(str(entry["counts"][estimator].get(verdict, 0)) for verdict in VERDICTS))
        for suite, entry in found.items()
        for estimator in ESTIMATORS
    ]
    table("Compatibility", ("suite", "estimator", *VERDICTS), rows)
