"""Selective backward, model by model: against the masked gradient, its operations, how often it compiles.

Every model trains in its own mode, dropout included, for 20 steps whose kept counts and last batch vary.
"""

import torch

from benchmarks import report
from workloads.torch_masked import STEPS, bound, measure
from workloads.torch_training import MODELS


def run() -> None:
    """Measure every model, print the table, write `build/bench/selective-torch.json`."""
    torch.set_num_threads(1)
    found = {name: measure(build) for name, build in MODELS.items()}
    report.table(
        f"selective backward in {STEPS} steps, operations at half kept",
        ("model", "relative error", "operations / plain", "compilations"),
        (
            (name, f"{row['relative_error']:.1e}", f"{row['flops_ratio']:.3f}", str(row["captures"]))
            for name, row in found.items()
        ),
    )
    bounds = {name: bound(name) for name in found}
    failed = [
        f"{name}: not the masked gradient by one compilation"
        for name, row in found.items()
        if not row["relative_error"] <= bounds[name] or row["captures"] != 1
    ]
    report.close("selective-torch", found, bounds, failed, packages=("torch", "transformers"))
