"""What a long curated run holds on to: `python -m workloads.steady STEPS` prints bytes before and after."""

import gc
import os
import sys
from pathlib import Path

import lai_torch
import torch

from tests.support.workloads.torch_processes import LOSS, batch, network

WARM = 200


def resident() -> int:
    """Return the bytes of this process that lie in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(steps: int) -> tuple[int, int]:
    """Train, after some steps for what is made once; return the memory before and after."""
    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    options = {"refresh": 5, "validation_fraction": 0.5, "estimator": lai_torch.LAI(sketch=3)}
    curator = lai_torch.Curator(model, LOSS, optimizer, batch(40, 1), **options)
    before = 0
    for step in range(WARM + steps):
        if step == WARM:
            before = resident()
        inputs, targets = batch(16 - step % 3, step)
        curator.step(inputs, targets, groups=targets)
    return before, resident()


if __name__ == "__main__":
    print(*run(int(sys.argv[1])))
