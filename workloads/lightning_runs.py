"""A small network in Lightning, on the batches of `torch_processes`, however they are cut."""

import os
from typing import Any

import lightning.pytorch as pl
import torch
from lai_torch.integrations.lightning import Curation
from torch import Tensor

from workloads.torch_processes import LOSS, SAMPLES, VALIDATION, batch, network

BATCHES = 4


class Module(pl.LightningModule):
    """Trains its network by the callback's objective; by hand, where a step is cut into parts."""

    def __init__(self, curation: Curation, parts: int) -> None:
        super().__init__()
        self.net, self.curation, self.parts = network(), curation, parts
        self.automatic_optimization = parts == 1

    def training_step(self, given: Any, index: int) -> Any:
        """Return the loss, or make the step."""
        del index
        if self.automatic_optimization:
            return self.curation.objective(given)
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        cut = list(zip(*(side.chunk(self.parts) for side in given), strict=True))
        for objective in self.curation.objectives(cut):
            self.manual_backward(objective())
        optimizer.step()
        return None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.net.parameters(), lr=0.01)


def rows_of(rank: int, processes: int) -> list[tuple[Tensor, Tensor]]:
    """Return a process's rows of every batch."""
    size = SAMPLES // processes
    own = slice(rank * size, (rank + 1) * size)
    return [
        (inputs[own], targets[own]) for inputs, targets in (batch(SAMPLES, 100 + n) for n in range(BATCHES))
    ]


def train(
    rank: int, folder: str, processes: int = 1, parts: int = 1, epochs: int = 2, resume: str | None = None
) -> tuple[Tensor, dict[str, float]]:
    """Train, save a checkpoint, and return the parameters and what was logged last."""
    if processes > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        os.environ |= {"LOCAL_WORLD_SIZE": str(processes), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}  # asked for; the group is there
    curation = Curation(
        LOSS, batch(VALIDATION, 7), model=lambda module: module.net, refresh=3, estimator="lai"
    )
    module = Module(curation, parts)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        use_distributed_sampler=False,
        logger=False,
        callbacks=[curation],
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    loader: Any = torch.utils.data.DataLoader(rows_of(rank, processes), batch_size=None)  # type: ignore[arg-type]
    trainer.fit(module, loader, ckpt_path=resume)
    trainer.save_checkpoint(f"{folder}/{epochs}.ckpt")
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return torch.cat([each.detach().flatten() for each in module.parameters()]), logged


def cut_in_ways(
    rank: int, folder: str, processes: int, ways: tuple[int, ...]
) -> list[tuple[Tensor, dict[str, float]]]:
    """Train once for each number of parts, as one of several processes."""
    return [train(rank, folder, processes, parts) for parts in ways]


def stopped_and_resumed(rank: int, folder: str, processes: int) -> tuple[Tensor, Tensor]:
    """Train on several processes; return the parameters, and those of a run from its first epoch's end."""
    train(rank, folder, processes, epochs=1)
    resumed, _ = train(rank, folder, processes, resume=f"{folder}/1.ckpt")
    return train(rank, folder, processes)[0], resumed
