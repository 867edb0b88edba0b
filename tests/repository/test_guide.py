"""What the guide's pages do not show by running: their recipes in their hosts, on other settings."""

import re
import runpy
from pathlib import Path

import pytest
import torch
from trl import SFTConfig, SFTTrainer

ROOT = Path(__file__).parents[2]


def cells(page):
    """List the code of a page: its own text."""
    text = (ROOT / "docs" / "guide" / page).read_text()
    return re.findall(r"```{code-cell}\n(?::tags:[^\n]*\n)?(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def page():
    names: dict = {}
    with torch.random.fork_rng(devices=[]):
        for cell in cells("weights.md"):
            exec(compile(cell, "weights.md", "exec"), names)
    return names


def trained(page, folder, data, weights):
    """Return the parameters after two steps of two micro-batches by the page's trainer, or TRL's."""
    made = runpy.run_path(str(ROOT / "examples/trl_sft.py"))
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    settings = {"use_cpu": True, "bf16": False, "save_strategy": "no", "gradient_checkpointing": False}
    settings |= {"max_steps": 2, "report_to": [], "disable_tqdm": True, "optim": "sgd", "learning_rate": 0.1}
    settings |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    torch.manual_seed(0)
    model = made["Qwen2ForCausalLM"](made["Qwen2Config"](vocab_size=130, num_key_value_heads=2, **size))
    kind, options = SFTTrainer, {"processing_class": made["tokenizer"]()}
    if weights is not None:
        kind, data = page["WeightedSFTTrainer"], data.add_column("weight", weights)
    trainer = kind(model, SFTConfig(output_dir=str(folder), **settings), train_dataset=data, **options)
    if weights is not None:
        trainer.data_collator = page["with_weights"](trainer.data_collator)
    trainer.train()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.filterwarnings("default")  # the trainer's own
def test_weighted_trainer_honours_ones_and_zeros(page, tmp_path):
    data = runpy.run_path(str(ROOT / "examples/trl_sft.py"))["texts"](16, 1, 0.4)
    half = [2.0] * 8 + [0.0] * 8
    changed = data.map(
        lambda row, index: row if index < 8 else {"text": "5 " * 16},  # as long, for TRL divides by tokens
        with_indices=True,
    )
    plain, ones = (trained(page, tmp_path, data, weights) for weights in (None, [1.0] * 16))
    assert torch.equal(plain, ones)
    left, other = (trained(page, tmp_path, each, half) for each in (data, changed))
    assert torch.equal(left, other)
    assert (left - plain).abs().max() > 1e-3
