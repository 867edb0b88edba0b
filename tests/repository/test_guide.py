"""What the guide's pages do not show by running: their recipes on other settings."""

import re
from pathlib import Path

import pytest
import torch
from lai_torch.integrations.transformers import CuratedTrainer
from transformers import TrainingArguments

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "transformers.md"
CELLS = re.findall(r"```{code-cell}\n(?::tags:[^\n]*\n)?(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_trainers_step_is_that_of_the_pages_loss(tmp_path, accumulated):
    """With every sample kept: the mean over sequences of the loss that the page writes down for a loop."""
    names: dict = {}
    with torch.random.fork_rng(devices=[]):
        for cell in CELLS:
            if "def model()" in cell or "def loss(" in cell:
                exec(compile(cell, PAGE.name, "exec"), names)  # the page's own text
        model, ids = names["model"]().double(), names["training"][:8]
        before = [parameter.detach().clone() for parameter in model.parameters()]
        gradients = torch.autograd.grad(
            names["loss"](model(input_ids=ids), ids).mean(), list(model.parameters()), allow_unused=True
        )
        trainer = CuratedTrainer(
            model,
            TrainingArguments(
                output_dir=str(tmp_path),
                per_device_train_batch_size=8 // accumulated,
                gradient_accumulation_steps=accumulated,
                max_steps=1,
                max_grad_norm=0.0,
                lr_scheduler_type="constant",
                use_cpu=True,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                logging_strategy="no",
            ),
            train_dataset=labelled(ids),
            validation=labelled(names["validation"]),
            optimizers=(torch.optim.SGD(model.parameters(), lr=0.1), None),
            curation={
                "policy": lambda scores: torch.full_like(scores, 1.0 / len(scores)),
                "estimator": "lli",
            },
        )
        trainer.train()
    for after, start, gradient in zip(model.parameters(), before, gradients, strict=True):
        torch.testing.assert_close(after.detach(), start - 0.1 * gradient, rtol=1e-9, atol=1e-12)


def labelled(sequences):
    return [{"input_ids": ids, "labels": ids} for ids in sequences]
