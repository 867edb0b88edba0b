"""What the guide's pages do not show by running: their recipes on other settings."""

import re
from pathlib import Path

import pytest
import torch
from transformers import TrainingArguments

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "transformers.md"
CELLS = re.findall(r"```{code-cell}\n(?::tags:[^\n]*\n)?(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("labels", [{}, {"labels": "input_ids"}])
def test_the_trainers_step_is_that_of_the_mean_loss(tmp_path, accumulated, labels):
    """With every sample kept, whether or not the data set has labels, which the trainer would count."""
    names: dict = {}
    with torch.random.fork_rng(devices=[]):
        for cell in CELLS:
            if "def model()" in cell or "def loss(" in cell or "class CuratedTrainer" in cell:
                exec(compile(cell, PAGE.name, "exec"), names)  # the page's own text
        model, ids = names["model"]().double(), names["training"][:8]
        before = [parameter.detach().clone() for parameter in model.parameters()]
        gradients = torch.autograd.grad(
            names["loss"](model(input_ids=ids), ids).mean(), list(model.parameters()), allow_unused=True
        )
        trainer = names["CuratedTrainer"](
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
            train_dataset=[{"input_ids": one, **dict.fromkeys(labels, one)} for one in ids],
            optimizers=(torch.optim.SGD(model.parameters(), lr=0.1), None),
            validation=names["validation"],
        )
        trainer.curator.policy = lambda scores: torch.full_like(scores, 1.0 / len(scores))
        trainer.train()
    for after, start, gradient in zip(model.parameters(), before, gradients, strict=True):
        torch.testing.assert_close(after.detach(), start - 0.1 * gradient, rtol=1e-9, atol=1e-12)
