"""A deep network sharded by `fully_shard` block by block, and the most bytes that live during its steps."""

from collections.abc import Iterator
from typing import Any

import lai_torch
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

from tests.support.workloads.counts import Counts
from tests.support.workloads.launches import launch
from tests.support.workloads.torch_processes import LOSS, Run, batch, errors, trained

BLOCKS, WIDTH, CLASSES = 8, 256, 5
ROWS, STEPS, VALIDATION = 4, 3, 24
ESTIMATORS = ("lai", "lli", "ghost")


class Deep(nn.Module):
    """Blocks of one matrix each, nearly all parameters in them."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        hidden = self.start(inputs)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        logits: Tensor = self.head(hidden)
        return logits


def deep(processes: int | None) -> nn.Module:
    """Return the network, in double precision and with fixed parameters; sharded over processes if any."""
    with torch.device("meta"):
        model = Deep().double()
    if processes is not None:
        mesh = init_device_mesh("cpu", (processes,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            size = 0.5 * parameter.shape[-1] ** -0.5
            values = size * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            if processes is not None:
                values = distribute_tensor(values, mesh, parameter.placements, src_data_rank=None)
            parameter.copy_(values)
    return model


def rows_of(step: int, rank: int, processes: int) -> slice:
    """Return a process's rows of a batch; in the last one, the last process has one row and not four."""
    start = rank * ROWS
    last = step == STEPS - 1 and rank == processes - 1
    return slice(start, start + (1 if last else ROWS))


def train(rank: int, processes: int, estimator: str | None, *, sharded: bool) -> tuple[Run | None, int]:
    """Take some steps, plain ones without an estimator; return what was found, and the most bytes in a step.

    Without shards one process takes the steps, on the rows of all.
    """

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for step in range(STEPS):
            part = rows_of(step, rank, processes)
            if not sharded:
                part = slice(0, rows_of(step, processes - 1, processes).stop)
            inputs, targets = batch(ROWS * processes, 100 + step)
            yield inputs[part], targets[part]
        peaks.append(live.peak)  # before the parameters are put together

    peaks: list[int] = []
    with Counts(written=True) as live:
        model = deep(processes if sharded else None)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        if estimator is not None:
            options: dict[str, Any] = {"estimator": estimator, "refresh": 2}
            curator = lai_torch.Curator(model, LOSS, optimizer, batch(VALIDATION, 7), **options)
            live.peak = 0
            return trained(curator, batches()), peaks[0]
        live.peak = 0
        for inputs, targets in batches():
            optimizer.zero_grad()
            LOSS(model(inputs), targets).mean().backward()
            optimizer.step()
        return None, peaks[0]


def sharded_steps(rank: int, processes: int) -> dict[str, tuple[Run | None, int]]:
    """Train on this process's rows, without an estimator and with each.

    Of two runs the one that took fewer bytes counts: threads that communicate may hold for a while what they
    gathered.
    """
    estimators = {"plain": None} | {name: name for name in ESTIMATORS}
    runs = [
        {name: train(rank, processes, each, sharded=True) for name, each in estimators.items()} for _ in "ab"
    ]
    return {name: min((run[name] for run in runs), key=lambda each: each[1]) for name in estimators}


def shard_figures(processes: int, timeout: float) -> dict[str, dict[str, float]]:
    """Return each estimator's errors against one process, and its most bytes over those of a plain step."""
    parts = launch(sharded_steps, processes, processes, timeout=timeout)
    for part in parts:
        if isinstance(part, str):
            raise RuntimeError(part)
    most = {name: max(part[name][1] for part in parts) for name in ("plain", *ESTIMATORS)}
    figures = {}
    for name in ESTIMATORS:
        expected, _ = train(0, processes, name, sharded=False)
        figures[name] = errors([part[name][0] for part in parts], expected)
        figures[name]["bytes_per_step"] = max(part[name][0].bytes_reported for part in parts)
        figures[name]["memory_ratio"] = most[name] / most["plain"]
    return figures
