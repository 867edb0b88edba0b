"""A small network in Lightning, on the batches of `torch_processes`, however they are cut."""

from typing import Any

import lai_torch
import lightning.pytorch as pl
import torch
from lai_torch.integrations.lightning import Curation
from torch import Tensor

from lai_core.mixtures import Mixture
from tests.support.workloads.launches import join
from tests.support.workloads.torch_processes import LOSS, SAMPLES, VALIDATION, batch, network, whole

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
            inputs, targets, *groups = given
            return self.curation.objective((inputs, targets), groups=groups[0] if groups else None)
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        cut = list(zip(*(side.chunk(self.parts) for side in given), strict=True))
        for objective in self.curation.objectives(cut):
            self.manual_backward(objective())
        optimizer.step()
        return None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.net.parameters(), lr=0.01)


def rows_of(rank: int, processes: int) -> list[tuple[Tensor, ...]]:
    """Return a process's rows of every batch."""
    drawn = (batch(SAMPLES, 100 + number) for number in range(BATCHES))
    return [tuple(side.chunk(processes)[rank] for side in sides) for sides in drawn]


def train(
    rank: int, folder: str, processes: int = 1, parts: int = 1, epochs: int = 2, resume: str | None = None
) -> tuple[Tensor, dict[str, float]]:
    """Train, save a checkpoint, and return the parameters and what was logged last."""
    curation = Curation(
        LOSS, batch(VALIDATION, 7), model=lambda module: module.net, refresh=3, estimator="lai"
    )
    loader: Any = torch.utils.data.DataLoader(rows_of(rank, processes), batch_size=None)  # type: ignore[arg-type]
    options = {"max_epochs": epochs, "ckpt_path": resume}
    return fitted(Module(curation, parts), loader, f"{folder}/{epochs}.ckpt", rank, processes, **options)


def mixed(
    folder: str, *, stream: bool = False, steps: int = 12, resume: str | None = None
) -> tuple[Tensor, dict[str, float]]:
    """Train as `train` does, on three sources whose mixture follows their scores."""
    rows = [(*row, number % 3) for number, row in enumerate(zip(*batch(60, 3), strict=True))]
    mixture = Mixture(3, confidence=0.0)
    if stream:
        sampler: Any = lai_torch.MixtureStream([rows[k::3] for k in range(3)], mixture, SAMPLES)
        loader: Any = torch.utils.data.DataLoader(sampler, SAMPLES)
    else:
        sampler = lai_torch.MixtureSampler([row[2] for row in rows], mixture, SAMPLES, batches=7)
        loader = torch.utils.data.DataLoader(rows, SAMPLES, sampler=sampler)  # type: ignore[arg-type]
    curation = Curation(
        LOSS, batch(VALIDATION, 7), model=lambda module: module.net, sampler=sampler, period=2
    )
    options = {"max_steps": steps, "ckpt_path": resume}
    return fitted(Module(curation, 1), loader, f"{folder}/{steps}.ckpt", 0, 1, **options)


def fitted(
    module: Module,
    loader: Any,
    path: str,
    rank: int,
    processes: int,
    *,
    ckpt_path: str | None,
    **options: Any,
) -> tuple[Tensor, dict[str, float]]:
    """Fit a module, save a checkpoint, and return the parameters and what was logged last."""
    join(rank, processes)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        use_distributed_sampler=False,
        logger=False,
        callbacks=[module.curation],
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, loader, ckpt_path=ckpt_path)
    trainer.save_checkpoint(path)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return whole(module), logged
