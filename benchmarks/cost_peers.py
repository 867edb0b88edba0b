"""What a curated step costs beside the peer's: operations, seconds, peak bytes, all in one run."""

import torch

from benchmarks import cost_torch, report
from benchmarks.models import COSTED

METHODS = {
    name: cost_torch.METHODS[name] for name in ("lai_cached", "lai_fresh", "ghost_fresh", "ghost_chunked")
}
CHEAPER = (("ghost_fresh", "flops_ratio"), ("lai_fresh", "memory_ratio"))
"""What takes no more than the peer, on every model."""


def run() -> None:
    """Measure Ghost, LAI and the peer on every model, print the table, write `build/bench/cost-peers.json`.

    Raises
    ------
    SystemExit
        If opacus is not installed, if its scores are not Ghost's, or if one takes more than `CHEAPER` says.
    """
    if not cost_torch.peer_installed():
        raise SystemExit("cost peers: opacus is not installed here: `make peers` installs it apart")
    from benchmarks import peer_torch

    torch.set_num_threads(1)
    figures = cost_torch.compare(COSTED, METHODS)
    cost_torch.show(figures)
    failed = []
    for name, methods in figures.ratios.items():
        peer = methods[peer_torch.METHOD]
        for method, key in CHEAPER:
            if not methods[method][key] <= peer[key]:
                failed.append(
                    f"{name} {method} {key} {methods[method][key]:.3f} > the peer's {peer[key]:.3f}"
                )
    packages = ("torch", "transformers", "opacus")
    report.close("cost-peers", figures.ratios, CHEAPER, failed, packages=packages)
