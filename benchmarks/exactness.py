"""Ghost against one gradient per sample, over all trainable parameters, by architecture."""

from collections.abc import Callable
from typing import Any

from benchmarks import report


def run_torch() -> None:
    """Measure every model, print the table, write `build/exactness-torch.json`."""
    import torch

    from tests.support.workloads.torch_exactness import bound, measure
    from tests.support.workloads.torch_models import MODELS

    torch.set_num_threads(1)
    found = {name: measure(build) for name, build in MODELS.items()}
    _report("exactness-torch", "Ghost against per-sample autograd", found, bound, "torch", "transformers")


def run_jax() -> None:
    """Measure every model, print the table, write `build/exactness-jax.json`."""
    import jax

    from tests.support.workloads.jax_exactness import BOUND, measure
    from tests.support.workloads.jax_models import MODELS

    with jax.enable_x64(True):
        found = {name: measure(build) for name, build in MODELS.items()}
    _report("exactness-jax", "Ghost against jax.grad of one sample", found, lambda name: BOUND, "jax")


def _report(
    name: str,
    title: str,
    found: dict[str, dict[str, Any]],
    bound: Callable[[str], float],
    *packages: str,
) -> None:
    """Report relative errors and coverage, model by model; `bound(NAME)` is the error that one may have."""
    columns = ("model", "relative error", "coverage", "parameters")
    figures = [
        (model, f"{row['relative_error']:.1e}", f"{row['coverage']:.4f}", f"{row['parameters']:,}")
        for model, row in found.items()
    ]
    report.table(title, columns, figures)
    bounds = {model: bound(model) for model in found}
    failed = [
        f"{model}: not exact at full coverage"
        for model, row in found.items()
        if not (row["relative_error"] <= bounds[model] and row["coverage"] == 1.0)
    ]
    report.close(name, found, bounds, failed, packages=packages, contract={"models": found})
