"""Ghost on real architectures against one backward pass per sample, over all trainable parameters."""

import torch

from benchmarks import report
from workloads.torch_exactness import bound, measure
from workloads.torch_models import MODELS


def run() -> None:
    """Measure every model, print the table, write `build/exactness-torch.json`."""
    torch.set_num_threads(1)
    found = {name: measure(build) for name, build in MODELS.items()}
    packages = ("torch", "transformers")
    report.exactness("exactness-torch", "Ghost against per-sample autograd", found, bound, packages)
