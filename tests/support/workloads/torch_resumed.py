"""A curated run that is kept and taken up by other numbers of processes."""

from pathlib import Path
from typing import Any

import lai_torch
import torch
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from tests.support.workloads.torch_processes import LOSS, SAMPLES, VALIDATION, batch, network, whole, wrapped

RESUMED = {"estimator": "preconditioned_lai", "refresh": 3, "validation_fraction": 0.5, "accumulate": 2}
"""Options under which a curator remembers something of every kind: moments, an aged summary, its draws."""


def resumed(rank: int, processes: int, engine: str | None, steps: range, folder: str) -> Tensor:
    """Take up the run that is kept in a folder, go on for some steps, and keep it again."""
    model: nn.Module = network()
    more: dict[str, Any] = {}
    if engine is not None:
        model, more = wrapped(model, engine, processes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    more |= RESUMED | {"generator": torch.Generator().manual_seed(5)}
    curator = lai_torch.Curator(model, LOSS, optimizer, batch(VALIDATION, 7), **more)
    apart = Path(folder, "curator.pt")

    def states() -> dict[str, Any]:
        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))

    if steps.start:
        kept = states()
        checkpoint.load(kept, checkpoint_id=f"{folder}/{steps.start}")
        set_state_dict(model, optimizer, model_state_dict=kept["model"], optim_state_dict=kept["optimizer"])
        curator.load_state_dict(torch.load(apart, weights_only=True))
    for step in steps:
        curator.step(*(side.chunk(processes)[rank] for side in batch(SAMPLES, 100 + step)))
    checkpoint.save(states(), checkpoint_id=f"{folder}/{steps.stop}")
    if rank == 0:
        torch.save(curator.state_dict(), apart)
    return whole(model)
