"""`python -m benchmarks compatibility`: run the suites, write `build/compatibility.json`, hold the counts."""

import itertools
import os
import random
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
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
    "harnesses": "harnesses",
    "jax-libraries": "jax_libraries",
}
"""Each suite's file. `peft` needs the extra `compatibility`."""
JAX = ("harnesses", "jax-libraries")
FORGET_AFTER = 20
"""Compiled JAX programs are dropped after so many cases, which share none."""
Asked = tuple[str, str, Callable[[], Row]]


def run_suites(suites: list[str], *, sample: int | None = None, every: int = 1, write: bool = False) -> None:
    """Run suites whole, every n-th case, or so many cases; exit 1 where one is worse than pinned."""
    if "peft" in suites and find_spec("peft") is None:
        raise SystemExit("peft: not installed; run `make compatibility` or install 'lai-core[compatibility]'")
    _prepare(suites)
    modules = [import_module(f"benchmarks.compatibility.{SUITES[suite]}") for suite in suites]
    asked = _whole(modules, every) if sample is None else itertools.islice(_mixed(modules), sample)
    rows: Rows = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what operations say of themselves on the way
        for number, (suite, case, judge) in enumerate(asked):
            rows.setdefault(suite, {})[case] = judge().json()
            if number % FORGET_AFTER == FORGET_AFTER - 1 and "jax" in sys.modules:
                sys.modules["jax"].clear_caches()
    found = counted(rows, every if sample is None else 0)
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
    if set(suites) & set(JAX):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        jax.config.update("jax_enable_x64", True)


def _whole(modules: list[Any], every: int) -> Iterator[Asked]:
    for module in modules:
        cases = (case for group in module.groups() for case in module.cases(group))
        yield from itertools.islice(cases, 0, None, every)


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
