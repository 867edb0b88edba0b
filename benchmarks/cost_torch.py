"""What a curated step costs beside a plain one: operations, seconds, peak bytes, all in one run.

Where opacus is installed, what a user would pick instead of Ghost is measured on the same work.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from importlib.util import find_spec

import lai_torch
import torch

from benchmarks import report
from benchmarks.methods import CACHED, SELECTIVE, Build, curated, curator, forward, half, peer, plain
from benchmarks.models import COSTED
from benchmarks.seconds import ratios
from workloads.counts import counted

METHODS: dict[str, Build] = {
    "lai_cached": curated(lai_torch.LAI()),
    "lai_fresh": curated(lai_torch.LAI(), refresh=1),
    "lli_cached": curated(lai_torch.LLI()),
    "ghost_fresh": curated(lai_torch.Ghost(), refresh=1),
    "ghost_chunked": curated(lai_torch.Ghost(chunk=8), refresh=1),
    "exact_fresh": curated(lai_torch.Exact(), refresh=1),
    "lai_selective": SELECTIVE,
}
BOUNDS = {
    ("resnet18", "lai_cached", "flops_ratio"): 0.86,
    ("resnet18", "lai_fresh", "flops_ratio"): 1.53,
    ("resnet18", "lai_cached", "memory_ratio"): 1.05,
    ("bert_small", "lai_selective", "flops_ratio"): 0.72,
    ("gpt_neo_small", "lai_selective", "flops_ratio"): 0.72,
}
SCORING_BOUND = 1.05
"""Scoring a batch from a cached summary over one forward pass, in operations."""
CHEAPER = (("ghost_fresh", "flops_ratio"), ("lai_fresh", "memory_ratio"))
"""What takes no more than the peer, on every model."""
PEER = "opacus_fresh"
KEYS = ("flops_ratio", "seconds_ratio", "memory_ratio")
OVER_HALF = ("flops_ratio", "seconds_ratio")
"""What is also printed over a plain step on a random batch of the kept size: `half_flops_ratio` and so on."""
ROUNDS = 2
Ratios = dict[str, dict[str, dict[str, float]]]


def compare(names: Iterable[str], methods: Mapping[str, Build]) -> tuple[Ratios, dict[str, float]]:
    """Measure the methods, and the peer where it is installed, on each model; print what was found.

    Per model and method, operations, seconds and peak bytes are over those of a plain step, operations and
    seconds also over those of a plain step on a random batch of the kept size. Per model, the operations of
    scoring from a cached summary are over those of a forward pass.
    """
    found: Ratios = {}
    scored, remarks, builds = {}, [], {"plain": plain, "half": half, **methods}
    if installed():
        builds[PEER] = peer
    else:
        remarks.append("opacus is not installed here: `make peers` measures it on the same work")
    for name in names:
        rows, work = ratios(COSTED[name], builds, ROUNDS, least=0.0)
        del rows["plain"]
        found[name] = {
            method: {key: row[key] for key in KEYS}
            | {f"half_{key}": row[key] / rows["half"][key] for key in OVER_HALF}
            for method, row in rows.items()
        }
        made = curator(work, None, lai_torch.LAI(), refresh=CACHED)
        for _ in range(2):
            made.score(*work.batch)
        scoring = counted(partial(made.score, *work.batch)).flops
        scored[name] = scoring / counted(partial(forward, work)).flops
        remarks.append(f"scoring {name} from a cached summary: {scored[name]:.3f} forward passes")
        if installed():
            from benchmarks.peer_torch import agreement  # opacus may not be installed

            remarks.append(f"{PEER} on {name}: {agreement(work)}")
    title = "over a plain step, and over a plain step on a random half (half); half kept"
    report.ratios(title, found, (*KEYS, *(f"half_{key}" for key in OVER_HALF)), *remarks)
    return found, scored


def installed() -> bool:
    """Return whether opacus can be imported."""
    return find_spec("opacus") is not None


def run() -> None:
    """Measure every model and method, print the table, write `build/cost-torch.json`."""
    torch.set_num_threads(1)
    found, scored = compare(COSTED, METHODS)
    bounds = {" ".join(key): bound for key, bound in BOUNDS.items()} | {"scoring resnet18": SCORING_BOUND}
    bounded = {" ".join(key): found[key[0]][key[1]][key[2]] for key in BOUNDS}
    bounded["scoring resnet18"] = scored["resnet18"]
    report.close(
        "cost-torch",
        {"ratios": found, "scoring": scored},
        bounds,
        report.over(bounded, bounds),
        packages=("torch", "transformers"),
        contract=found,
        threads=torch.get_num_threads(),
    )


def run_peers() -> None:
    """Measure Ghost, LAI and the peer on every model; fail where one takes more than `CHEAPER` says."""
    if not installed():
        raise SystemExit("cost peers: opacus is not installed here: `make peers` installs it apart")
    torch.set_num_threads(1)
    names = ("lai_cached", "lai_fresh", "ghost_fresh", "ghost_chunked")
    found, _ = compare(COSTED, {name: METHODS[name] for name in names})
    failed = [
        f"{name} {method} {key} {methods[method][key]:.3f} > the peer's {methods[PEER][key]:.3f}"
        for name, methods in found.items()
        for method, key in CHEAPER
        if not methods[method][key] <= methods[PEER][key]
    ]
    packages = ("torch", "transformers", "opacus")
    report.close("cost-peers", found, CHEAPER, failed, packages=packages)
