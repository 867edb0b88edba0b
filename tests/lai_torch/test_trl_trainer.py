"""TRL's SFTTrainer, curated: its own head builds no logits, and finds the losses that are scored."""

import runpy
from pathlib import Path

import pytest
import torch
from lai_torch.integrations.losses import next_token_losses

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
