"""Ghost on JAX models against one gradient a sample, over all parameters; and JAX against Torch."""

import jax

from benchmarks import report
from workloads import agreement
from workloads.jax_exactness import BOUND, measure
from workloads.jax_models import MODELS
from workloads.pairs import PAIRS


def run() -> None:
    """Measure every model, print the table, write `build/exactness-jax.json`."""
    with jax.enable_x64(True):
        found = {name: measure(build) for name, build in MODELS.items()}
        found |= {f"{name}, torch and jax": agreement.measure(build) for name, build in PAIRS.items()}
    title, packages = "Ghost against jax.grad of one sample", ("jax", "equinox", "flax", "torch")
    report.exactness("exactness-jax", title, found, lambda name: BOUND, packages)
