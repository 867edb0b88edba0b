"""What a curated step costs beside a plain one: operations, seconds, peak bytes, all in one run.

Where opacus is installed, what a user would pick instead of Ghost is measured on the same work.
"""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import lai_torch
import torch

from benchmarks import report
from benchmarks.meters_torch import HALF, forward, measure, plain_step
from benchmarks.models import COSTED, Work
from workloads.operations import operations

BOUNDS = {
    ("resnet18", "lai_cached", "flops_ratio"): 0.86,
    ("resnet18", "lai_fresh", "flops_ratio"): 1.53,
    ("resnet18", "lai_cached", "memory_ratio"): 1.05,
    ("bert_small", "lai_selective", "flops_ratio"): 0.72,
    ("gpt_neo_small", "lai_selective", "flops_ratio"): 0.72,
}
SCORING_BOUND = 1.05
"""Scoring a batch from a cached summary over one forward pass, in operations."""


METHODS = {
    "lai_cached": {"estimator": "lai", "refresh": 10**9},
    "lai_fresh": {"estimator": "lai"},
    "lli_cached": {"estimator": "lli", "refresh": 10**9},
    "ghost_fresh": {"estimator": "ghost"},
    "ghost_chunked": {"estimator": lai_torch.Ghost(chunk=8)},
    "exact_fresh": {"estimator": "exact"},
    "lai_selective": {"estimator": "lai", "refresh": 10**9, "backward": "selective"},
}
APPLIES = {"lai_selective": ("bert_small", "gpt_neo_small")}
"""Methods that not every model allows: ResNet's BatchNorm couples samples."""


@dataclass
class Figures:
    """What was found on each model.

    Attributes
    ----------
    ratios
        Per model and method, operations, seconds and peak bytes over plain training.
    scoring
        Per model, the operations of scoring from a cached summary over those of a forward pass.
    remarks
        What the peer does not see, and how far its scores are from Ghost's.
    """

    ratios: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    scoring: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def compare(names: Iterable[str], methods: dict[str, dict[str, Any]]) -> Figures:
    """Measure the methods, and the peer where it is installed, on each model."""
    figures = Figures()
    for name in names:
        torch.manual_seed(0)
        work = COSTED[name]()
        work.model.train()
        optimizer = work.optimizer()
        plain = measure(work, lambda work=work, optimizer=optimizer: plain_step(work, optimizer), optimizer)
        found = figures.ratios[name] = {}
        for method, options in methods.items():
            if name in APPLIES.get(method, (name,)):
                step, curator = curated(work, **options)
                found[method] = over(plain, step)
                if method == "lai_cached":
                    scored = operations(lambda work=work, curator=curator: curator.score(*work.batch))
                    figures.scoring[name] = scored / operations(lambda work=work: forward(work))
        if peer_installed():
            from benchmarks import peer_torch  # opacus may not be installed

            step, remark = peer_torch.curated(work)
            found[peer_torch.METHOD] = over(plain, step)
            figures.remarks.append(f"{peer_torch.METHOD} on {name}: {remark}")
    if not peer_installed():
        figures.remarks.append("opacus is not installed here: `make peers` measures it on the same work")
    return figures


def peer_installed() -> bool:
    """Return whether opacus can be imported."""
    return importlib.util.find_spec("opacus") is not None


def curated(work: Work, **options: Any) -> tuple[dict[str, float], lai_torch.Curator]:
    """Return what `measure` finds of a curator's step, and the curator."""
    optimizer = work.optimizer()
    if options["estimator"] == "lai":
        options["estimator"] = lai_torch.LAI(positions=work.positions)
    curator = lai_torch.Curator(work.model, work.loss, optimizer, work.validation, policy=HALF, **options)
    return measure(work, lambda: curator.step(*work.batch), optimizer), curator


def over(plain: dict[str, float], step: dict[str, float]) -> dict[str, float]:
    """Return a step's figures over plain training's."""
    return {f"{key}_ratio": step[key] / plain[key] for key in plain}


def show(figures: Figures) -> None:
    """Print the table, and what it cannot hold."""
    scoring = (
        f"scoring {name} from a cached summary: {ratio:.3f} forward passes"
        for name, ratio in figures.scoring.items()
    )
    report.table(
        "over plain training, half kept",
        ("model", "method", "operations", "seconds", "memory"),
        (
            (name, method, *(f"{ratio:.3f}" for ratio in row.values()))
            for name, methods in figures.ratios.items()
            for method, row in methods.items()
        ),
        [*figures.remarks, *scoring],
    )


def run() -> None:
    """Measure every model and method, print the table, write `build/cost-torch.json`."""
    torch.set_num_threads(1)
    figures = compare(COSTED, METHODS)
    show(figures)
    bounds = {" ".join(key): bound for key, bound in BOUNDS.items()} | {"scoring resnet18": SCORING_BOUND}
    found = {" ".join(key): figures.ratios[key[0]][key[1]][key[2]] for key in BOUNDS}
    found |= {f"scoring {name}": ratio for name, ratio in figures.scoring.items()}
    report.close(
        "cost-torch",
        {"ratios": figures.ratios, "scoring": figures.scoring},
        bounds,
        report.over(found, bounds),
        packages=("torch", "transformers"),
        contract=figures.ratios,
        threads=torch.get_num_threads(),
    )
