"""Torch's methods on one model: what each step counts, and what it takes, all in turn in one process."""

import copy
import functools
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import lai_torch
import torch
from lai_torch._model.batch import count
from lai_torch.integrations.sources import Sources
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

import lai_core as lai
from benchmarks.meters_torch import HALF, PeakBytes, bytes_of, plain_step
from benchmarks.models import TIMED, Work
from benchmarks.seconds.hand import Hand
from lai_core.mixtures import Mixture
from workloads.launches import counted
from workloads.operations import Operations

CACHED = 10**9
PERIOD = 20
"""Steps between two updates of a mixture, as by default."""
PASSES = ("kept", "selective", "whole")
ROUND = 0.05
"""Seconds of a step's own work, at least, in one measurement: small steps are run several times."""


def measure(names: Iterable[str], rounds: int) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return each method's figures over a plain step's on each model; without `rounds`, what is counted."""
    torch.set_num_threads(1)
    return {name: _ratios(TIMED[name], rounds) for name in names}


def _ratios(build: Callable[[], Work], rounds: int) -> dict[str, dict[str, float | None]]:
    torch.manual_seed(0)
    work = build()
    work.model.train()
    steps, held = _steps(work)
    counts = {name: counts_of(work, step, held[name]) for name, step in steps.items()}
    timed = _timed(steps, rounds)
    if "mixture" in steps:  # a call is a period
        for found_of in (counts["mixture"], timed.get("mixture", {})):
            found_of |= {key: value / PERIOD for key, value in found_of.items() if key != "memory"}
    plain = counts["plain"]
    found: dict[str, dict[str, float | None]] = {}
    for name, row in counts.items():
        ratios: dict[str, float | None] = {
            f"{key}_ratio": row[key] / plain[key] for key in ("flops", "memory")
        }
        ratios |= {key: row[key] for key in ("waits", "launches")}
        for key in ("seconds", "cpu"):
            ratios[f"{key}_ratio"] = timed[name][key] / timed["plain"][key] if rounds else None
        ratios["hand_ratio"] = timed[name]["cpu"] / timed["hand"]["cpu"] if rounds else None
        found[name] = ratios
    return found


def _steps(work: Work) -> tuple[dict[str, Callable[[], Any]], dict[str, int]]:
    """Return the step of each method that applies, and the bytes of what it holds beside the model."""
    optimizer = work.optimizer()
    steps: dict[str, Callable[[], Any]] = {"plain": lambda: plain_step(work, optimizer)}
    held = {"plain": 0}
    coupled = any(isinstance(module, _BatchNorm) for module in work.model.modules())
    for name in PASSES[:1] if coupled else PASSES:
        steps[name], held[name] = curated(work, name)
    if not coupled:
        steps["mixture"], held["mixture"] = mixed(work)
    own = replace(work, model=copy.deepcopy(work.model))  # whose hooks slow no other method's calls down
    hand = Hand(own, own.optimizer())
    steps["hand"] = hand.step
    held["hand"] = bytes_in((hand.total, hand.offset))
    for step in steps.values():  # the first steps prove and capture: a user pays them once
        step()
        step()
    return steps, held


def curated(work: Work, name: str = "kept") -> tuple[Callable[[], Any], int]:
    """Return a curated step, taken once, and the bytes of the validation summary that it goes on with."""
    curator = lai_torch.Curator(
        work.model,
        work.loss,
        work.optimizer(),
        work.validation,
        estimator=lai_torch.LAI(positions=work.positions),
        policy=HALF,
        refresh=CACHED,
        backward=name,
    )
    curator.step(*work.batch)
    return lambda: curator.step(*work.batch), bytes_in(curator._scoring.summaries._summary)


def mixed(work: Work) -> tuple[Callable[[], Any], int]:
    """Return a period of steps that move a mixture of sources, and the bytes of their validation summary.

    Every second batch is scored, on the pass that it is trained on; then the mixture is moved and the next
    summary is made.
    """
    everything = functools.partial(lai.keep_top, fraction=1.0)
    curator = lai_torch.Curator(
        work.model,
        work.loss,
        work.optimizer(),
        work.validation,
        estimator="lli",
        policy=lai_torch.Scheduled(everything, lambda step: step % 2 == 0),
        refresh=PERIOD // 2,
        backward="whole",
    )
    sources, groups = Sources(Mixture(4), PERIOD // 2), torch.arange(count(*work.batch)) % 4

    def period() -> None:
        for _ in range(PERIOD):
            report = curator.step(*work.batch)
            if report.scores is not None:
                sources.add(report.scores, groups)

    period()
    return period, bytes_in(curator._scoring.summaries._summary)


def bytes_in(tree: Any) -> int:
    """Return the bytes of the tensors in a summary."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if is_dataclass(tree):
        return sum(bytes_in(getattr(tree, field.name)) for field in fields(tree))
    return sum(map(bytes_in, tree)) if isinstance(tree, list | tuple) else 0


def counts_of(work: Work, step: Callable[[], Any], held: int) -> dict[str, float]:
    """Return what does not depend on the clock."""
    tracker = PeakBytes()
    with Operations() as counter, tracker:
        step()
    found = counted(step)
    memory = bytes_of(work, work.optimizer()) + held + tracker.peak
    return {"flops": counter.total, "memory": memory, "waits": found.waits, "launches": found.launches}


def _timed(steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Return each method's median seconds, by the clock and of this process, the methods in turn."""
    names = list(steps)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    repeats = dict.fromkeys(names, 1)
    for name in names if rounds else ():
        repeats[name] = max(1, round(ROUND / once(steps[name], 1)[1]))
    for index in range(rounds):
        shift = index % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(once(steps[name], repeats[name]))
    return {
        name: {
            key: statistics.median(one[place] for one in taken)
            for place, key in enumerate(("seconds", "cpu"))
        }
        for name, taken in found.items()
        if taken
    }


def once(step: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Return the seconds that a step takes, by the clock and of this process."""
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - clock) / repeats, (time.process_time() - cpu) / repeats
