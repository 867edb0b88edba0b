"""A small language model in transformers' Trainer, on padded sequences four in ten of which are noise."""

from typing import Any

import lai_torch
import torch
from lai_torch.integrations.transformers import CuratedTrainer
from torch import Tensor
from transformers import TrainingArguments

from lai_core.mixtures import Mixture
from tests.support.workloads.launches import join
from tests.support.workloads.torch_processes import whole
from tests.support.workloads.transformer_models import transformer

WORDS, LENGTH, BATCH = 64, 12, 24


def sequences(count: int, seed: int, noise: float = 0.0) -> list[dict[str, Any]]:
    """Return sequences of different lengths that count upwards, some of them noise, and which those are."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        length = int(torch.randint(5, LENGTH + 1, (), generator=draw))
        start, step = torch.randint(WORDS, (), generator=draw), torch.randint(1, 4, (), generator=draw)
        ids = (start + step * torch.arange(length)) % (WORDS - 1) + 1
        noisy = bool(torch.rand((), generator=draw) < noise)
        if noisy:
            ids = torch.randint(1, WORDS, (length,), generator=draw)
        found.append({"input_ids": ids.tolist(), "source": int(noisy)})
    return found


def collate(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad sequences to the longest of a batch, with labels beside them."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for place, row in enumerate(rows):
        length = len(row["input_ids"])
        ids[place, :length] = labels[place, :length] = torch.tensor(row["input_ids"])
        mask[place, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def language_model(dropout: float = 0.0) -> Any:
    torch.manual_seed(1)
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    model: Any = transformer(
        "GPT2LMHeadModel", length=LENGTH, vocabulary=WORDS, bos_token_id=0, eos_token_id=0, **rates
    )
    return model.double()


def arguments(folder: str, processes: int = 1, parts: int = 1, **options: Any) -> TrainingArguments:
    """Return the settings of a run whose optimizer steps are on `BATCH` sequences, however they are cut."""
    usual = {
        "max_steps": 6,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "use_cpu": True,
        "save_steps": 3,
        "logging_steps": 2,
        "report_to": [],
        "disable_tqdm": True,
        "max_grad_norm": 0.5,
        "remove_unused_columns": False,
        "per_device_train_batch_size": BATCH // processes // parts,
        "gradient_accumulation_steps": parts,
    }
    return TrainingArguments(output_dir=folder, **{**usual, **options})


def train(
    rank: int,
    folder: str,
    processes: int = 1,
    parts: int = 1,
    resume: str | bool | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, list[dict[str, Any]], CuratedTrainer]:
    """Train, and return the parameters and what was logged."""
    join(rank, processes)
    trainer = CuratedTrainer(
        language_model(dropout),
        arguments(folder, processes, parts, **options),
        train_dataset=sequences(96, 1, noise=0.4),
        eval_dataset={"clean": sequences(24, 2), "noisy": sequences(24, 3, noise=1.0)},
        data_collator=collate,
        validation="clean",
        groups="source",
        curation={"refresh": 3, "estimator": lai_torch.LAI(positions="tokens", sketch=8)},
    )
    trainer.train(resume_from_checkpoint=resume)
    return whole(trainer.model), trainer.state.log_history, trainer


def by_source(
    rank: int, folder: str, processes: int = 1, parts: int = 1, resume: str | None = None, **options: Any
) -> tuple[Tensor, list[dict[str, Any]], CuratedTrainer]:
    """Train on counting and noise by a mixture, with validation samples in each step."""
    join(rank, processes)
    names, dropout = options.pop("names", range(3)), options.pop("dropout", 0.0)
    rows = [*sequences(96, 1, noise=0.5), *(row | {"source": 2} for row in sequences(24, 2))]
    settings = {"max_steps": 12, "save_steps": 6, "logging_steps": 3, "learning_rate": 1e-2}
    trainer = CuratedTrainer(
        language_model(dropout),
        arguments(folder, processes, parts, **settings),
        train_dataset=[row | {"source": names[row["source"]]} for row in rows],
        eval_dataset=sequences(24, 3),
        data_collator=collate,
        validation=sequences(24, 2),
        **{"groups": "source", "mixture": Mixture(2), "period": 2, "fixed": {2: 4}} | options,
    )
    trainer.train(resume_from_checkpoint=resume)
    return whole(trainer.model), trainer.state.log_history, trainer
