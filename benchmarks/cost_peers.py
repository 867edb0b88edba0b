"""What a curated step costs beside the peer's: operations, seconds, peak bytes, all in one run."""

from pathlib import Path
from typing import Any

import torch

from benchmarks.cost_models import MODELS
from benchmarks.cost_torch import compare, peer_installed, show, write

OUT = Path("build/cost-peers.json")
METHODS = ("lai_cached", "lai_fresh", "ghost_fresh")


def run() -> dict[str, Any]:
    """Measure Ghost, LAI and the peer on every model, print the table, write `build/cost-peers.json`.

    Raises
    ------
    SystemExit
        If opacus is not installed, if its scores are not Ghost's, or if Ghost takes more operations.
    """
    if not peer_installed():
        raise SystemExit("cost peers: opacus is not installed here: `make peers` installs it apart")
    from benchmarks import peer_torch

    torch.set_num_threads(1)
    figures = compare(MODELS, METHODS)
    show(figures)
    write(OUT, figures)
    failed = []
    for name, methods in figures.ratios.items():
        ours, theirs = (methods[method]["flops_ratio"] for method in ("ghost_fresh", peer_torch.METHOD))
        if not ours <= theirs:
            failed.append(f"{name} ghost_fresh {ours:.3f} > {peer_torch.METHOD} {theirs:.3f}")
    if failed:
        raise SystemExit("cost peers: " + "; ".join(failed))
    return figures.ratios
