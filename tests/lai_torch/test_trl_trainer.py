"""TRL's SFTTrainer, curated: its own head builds no logits, and finds the losses that are scored."""

import runpy
from pathlib import Path

import pytest
import torch
from lai_torch.integrations.losses import next_token_losses
from lai_torch.integrations.trl import CuratedSFTTrainer

pytestmark = pytest.mark.filterwarnings("default")  # the trainer's own
EXAMPLE = Path(__file__).parents[2] / "examples" / "trl_sft.py"


@pytest.mark.slow
def test_what_trains_builds_no_logits_and_is_what_is_scored():
    kept, trainer = runpy.run_path(str(EXAMPLE))["main"](epochs=1)
    assert 0 < kept < 1
    model = trainer.model
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(5)])
    batch["labels"][0, :7] = -100
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    expected = next_token_losses(model(**inputs), batch)
    found = trainer.trained_losses(model, batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    weights = torch.rand(5)
    gradients = [
        torch.autograd.grad((weights * losses).sum(), list(model.parameters()))
        for losses in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)
    assert not hasattr(model(**batch, fused_lm_head=True), "logits")
    assert trainer.curator.steps == 12
    trainer.args.loss_type = "dft"
    with pytest.raises(ValueError, match="loss_type: expected 'nll'"):
        trainer.trained_losses(model, batch)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 8])
def test_a_batch_that_is_one_row_is_a_sample_only_where_it_should_be(rows, tmp_path):
    """Rows that are laid end to end are one sample: alone in a batch it is weighed, together refused."""
    made = runpy.run_path(str(EXAMPLE))
    settings = {"packing": True, "max_length": 48, "use_cpu": True, "bf16": False, "save_strategy": "no"}
    settings |= {"per_device_train_batch_size": rows, "gradient_accumulation_steps": 8, "logging_steps": 1}
    settings |= {"max_steps": 2, "report_to": [], "disable_tqdm": True, "gradient_checkpointing": False}
    arguments = made["SFTConfig"](output_dir=str(tmp_path), **settings)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = made["Qwen2ForCausalLM"](made["Qwen2Config"](vocab_size=130, num_key_value_heads=2, **size))
    data = {"train_dataset": made["texts"](96, 1, 0.4), "validation": made["texts"](24, 2)}

    def trainer():
        return CuratedSFTTrainer(model, arguments, **data, processing_class=made["tokenizer"]())

    if rows > 1:
        with pytest.raises(
            ValueError, match="per_device_train_batch_size: expected 1 where a batch is one row"
        ):
            trainer()
        return
    curated = trainer()
    curated.train()
    kept = [line["curation/kept"] for line in curated.state.log_history if "curation/kept" in line]
    assert len(kept) == 2
    assert all(0 < share < 1 and (8 * share).is_integer() for share in kept)
