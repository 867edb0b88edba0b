"""What a curated step costs beside the peer's: operations, seconds, peak bytes, all in one run."""

from pathlib import Path
from typing import Any

import torch

from benchmarks import cost_torch
from benchmarks.cost_models import MODELS

OUT = Path("build/cost-peers.json")
METHODS = {
    name: cost_torch.METHODS[name] for name in ("lai_cached", "lai_fresh", "ghost_fresh", "ghost_chunked")
}
CHEAPER = (("ghost_fresh", "flops_ratio"), ("lai_fresh", "memory_ratio"))
"""What takes no more than the peer, on every model."""


def run() -> dict[str, Any]:
    """Measure Ghost, LAI and the peer on every model, print the table, write `build/cost-peers.json`.

    Raises
    ------
    SystemExit
        If opacus is not installed, if its scores are not Ghost's, or if ours take more than `CHEAPER` says.
    """
    if not cost_torch.peer_installed():
        raise SystemExit("cost peers: opacus is not installed here: `make peers` installs it apart")
    from benchmarks import peer_torch

    torch.set_num_threads(1)
    figures = cost_torch.compare(MODELS, METHODS)
    cost_torch.show(figures)
    cost_torch.write(OUT, figures)
    failed = []
    for name, methods in figures.ratios.items():
        theirs = methods[peer_torch.METHOD]
        for ours, key in CHEAPER:
            if not methods[ours][key] <= theirs[key]:
                failed.append(f"{name} {ours} {key} {methods[ours][key]:.3f} > the peer's {theirs[key]:.3f}")
    if failed:
        raise SystemExit("cost peers: " + "; ".join(failed))
    return figures.ratios
