"""Curated runs of a model whose layers are parallel over features, on meshes of one and two dimensions."""

from typing import Any

import lai_torch
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from workloads.torch_processes import LOSS, SAMPLES, VALIDATION, Run, batch, largest, network, trained

ESTIMATORS = (
    lai_torch.LAI(),
    lai_torch.LAI(sketch=3),
    lai_torch.Ghost(),
    lai_torch.LLI(),
    lai_torch.Exact(),
    lai_torch.PreconditionedLAI(),
    lai_torch.CalibratedLAI(),
    lai_torch.GateLAI(),
)


def parallel(model: nn.Module, mesh: DeviceMesh, *, last: bool = True) -> nn.Module:
    """Spread the features of the network's layers over a mesh, those of the last one if asked."""
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(output_layouts=Replicate())}
    return parallelize_module(model, mesh, dict(list(plan.items())[: 2 + last]))


def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Shard every linear layer by itself."""
    for module in model.children():
        if isinstance(module, nn.Linear):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(model: nn.Module, part: slice, **options: Any) -> Run:
    """Take three steps on a part of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    options |= {"generator": torch.Generator().manual_seed(5), "max_norm": 1.0}
    curator = lai_torch.Curator(model, LOSS, optimizer, batch(VALIDATION, 7), **options)
    sides = [batch(SAMPLES, 100 + step) for step in range(3)]
    return trained(curator, ((inputs[part], targets[part]) for inputs, targets in sides))


def errors(model: nn.Module, part: slice, estimator: Any, group: Any = None) -> tuple[float, float]:
    """Return how far parameters and scores are from those of one process."""
    torch.manual_seed(part.start)  # processes are seeded apart
    found = train(model, part, estimator=estimator, group=group)
    expected = train(network(), slice(0, SAMPLES), estimator=estimator, group=False)
    off = max(largest(one, other[part]) for one, other in zip(found.scores, expected.scores, strict=True))
    return largest(found.parameters, expected.parameters), off


def on_one_dimension(estimators: Any = ESTIMATORS) -> dict[str, tuple[float, float]]:
    """Spread features over all processes, which have the same rows."""
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    return {str(each): errors(parallel(network(), mesh), slice(0, SAMPLES), each) for each in estimators}


def on_two_dimensions(rank: int) -> dict[str, tuple[float, float]]:
    """Spread features over pairs of four processes, and rows over the pairs, with and without shards."""
    del rank
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    half = SAMPLES // 2
    own = slice(half * mesh["dp"].get_local_rank(), half * (mesh["dp"].get_local_rank() + 1))
    found = {}
    for estimator in ESTIMATORS[:3]:
        spread = parallel(network(), mesh["tp"], last=estimator != lai_torch.Ghost())
        found[f"features, rows, {estimator}"] = errors(spread, own, estimator, mesh["dp"])
        spread = sharded(parallel(network(), mesh["tp"], last=False), mesh["dp"])
        found[f"features, shards, {estimator}"] = errors(spread, own, estimator, mesh["dp"])
    return found | replicated_shards()


def replicated_shards() -> dict[str, tuple[float, float]]:
    """Shard over pairs of processes what two pairs have alike, with other rows on each process."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
    rank, part = torch.distributed.get_rank(), SAMPLES // 4
    found = {}
    for estimator in ESTIMATORS[:3]:
        model, own = sharded(network(), mesh), slice(rank * part, (rank + 1) * part)
        found[f"copies, shards, {estimator}"] = errors(model, own, estimator, torch.distributed.group.WORLD)
    return found


class Counting(nn.Module):
    """A network whose code reads how its layers are spread: another function of whole parameters."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.network = parallel(network(), mesh)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits, scaled by the width that a process holds."""
        hidden: Tensor = self.network[:2](inputs)
        logits: Tensor = self.network[2:](hidden)
        return logits * (hidden.shape[-1] / 8)
