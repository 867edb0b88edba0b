"""TRL's SFTTrainer, curated, whose head builds no logits; packed rows, whose documents are samples."""

import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lai_torch.integrations.losses import documents_of, next_token_losses
from lai_torch.integrations.rows import LENGTHS, check_documents, kept_documents, unpack
from lai_torch.integrations.trl import CuratedSFTTrainer
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.qwen2 import modeling_qwen2

from lai_core.mixtures import Mixture
from tests.support.refusals import refusals

pytestmark = pytest.mark.filterwarnings("default")  # the trainer's own
EXAMPLE = Path(__file__).parents[2] / "examples" / "trl_sft.py"


@pytest.mark.slow
def test_training_builds_no_logits():
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
    fused = model(**batch, fused_lm_head=True)
    assert not hasattr(fused, "logits")
    torch.testing.assert_close(next_token_losses(fused, batch), expected, rtol=1e-5, atol=1e-6)
    assert trainer.curator.steps == 12


def packed_run(folder, given=None, dtype=torch.float32, **settings):
    """Train a tiny Qwen for two steps; return the trainer and the scores of each step."""
    made = runpy.run_path(str(EXAMPLE))
    settings = {"max_length": None} | settings
    settings |= {"use_cpu": True, "bf16": False, "save_strategy": "no", "gradient_checkpointing": False}
    settings |= {"max_steps": 2, "report_to": [], "disable_tqdm": True, "logging_steps": 1}
    arguments = made["SFTConfig"](output_dir=str(folder), learning_rate=1e-2, **settings)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = made["Qwen2Config"](vocab_size=130, num_key_value_heads=2, **size)
    data = made["texts"](96, 1, 0.4)
    cut = lambda row, index: {"text": row["text"][: 20 + index % 17], "source": index % 2}  # noqa: E731
    ragged = data.map(cut, with_indices=True)
    trainer = CuratedSFTTrainer(
        made["Qwen2ForCausalLM"](config).to(dtype),
        arguments,
        train_dataset=ragged,
        validation=made["texts"](24, 2),
        processing_class=made["tokenizer"](),
        **given or {},
    )
    found, add = [], trainer.shown.add
    trainer.shown.add = lambda report: (found.append(report.scores), add(report))
    trainer.train()
    return trainer, found


@pytest.mark.slow
def test_packed_documents_are_samples(tmp_path):
    """Rows without padding: the same scores, and the same parameters after two steps."""
    size = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    (plain, expected), (packed, found) = (
        packed_run(tmp_path, padding_free=free, **size) for free in (False, True)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    kept = [line["curation/kept"] for line in packed.state.log_history if "curation/kept" in line]
    assert all(0 < share < 1 for share in kept)
    for one, other in zip(packed.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_packing_scores_documents(tmp_path):
    trainer, found = packed_run(tmp_path, packing=True, max_length=48, per_device_train_batch_size=2)
    assert all(len(scores) > 2 for scores in found)
    assert len(trainer.curator.validation[0]["input_ids"]) == 24


@pytest.mark.slow
def test_mixed_documents_are_refused(tmp_path, monkeypatch):
    """A layer that adds up all tokens before, of whichever document."""
    plain = modeling_qwen2.Qwen2MLP.forward
    monkeypatch.setattr(modeling_qwen2.Qwen2MLP, "forward", lambda own, x: plain(own, x) + x.cumsum(1) / 8)
    message = "model: expected the documents of a packed row not to see one another"
    with pytest.raises(ValueError, match=message):
        packed_run(tmp_path, padding_free=True, per_device_train_batch_size=4)


@pytest.mark.slow
def test_mixtures_of_rows_and_documents(tmp_path):
    """TRL's collators drop the column that names a source."""
    means = []
    for free in (False, True):
        mixture = Mixture(2)
        given = {"groups": "source", "mixture": mixture, "period": 2}
        packed_run(tmp_path, given, padding_free=free, per_device_train_batch_size=6)
        (update,) = mixture.history
        means.append(update.means)
    assert means[0] == pytest.approx(means[1], rel=1e-4)
    assert means[0][0] != means[0][1]


@pytest.mark.slow
def test_other_losses_are_refused(tmp_path):
    with pytest.raises(ValueError, match="loss_type: expected 'nll'"):
        packed_run(tmp_path, loss_type="dft")


DOCUMENTS = st.lists(st.lists(st.integers(2, 5), min_size=2, max_size=4), min_size=1, max_size=3)


def packed(lengths):
    """Pack documents of these lengths; one document more fills a row up, two tokens longer at least."""
    longest = max(map(sum, lengths)) + 2
    rows = [[*row, longest - sum(row)] for row in lengths]
    positions = torch.stack([torch.cat([torch.arange(one) for one in row]) for row in rows])
    ids = torch.arange(positions.numel()).view(positions.shape) % 11
    labels = torch.where(ids % 4 == 0, -100, ids)
    return {"input_ids": ids, "labels": labels, "position_ids": positions}, [
        one for row in rows for one in row
    ]


def outputs_of(batch):
    return CausalLMOutput(logits=torch.sin(torch.arange(11.0) * (1 + batch["input_ids"][..., None])))


@given(DOCUMENTS)
def test_documents_losses_packed_and_unpacked(documents):
    batch, lengths = packed(documents)
    apart = unpack(batch)
    assert apart["attention_mask"].sum(1).tolist() == lengths
    found, expected = (next_token_losses(outputs_of(one), one) for one in (batch, apart))
    torch.testing.assert_close(found, expected)


@given(DOCUMENTS, st.randoms(use_true_random=False))
def test_kept_documents_are_one_row(documents, draw):
    batch, lengths = packed(documents)
    weights = torch.tensor([draw.choice([0.0, 0.5, 2.0]) for _ in lengths])
    row, own = kept_documents(batch | dict.fromkeys(LENGTHS), weights)
    index = weights.nonzero().squeeze(1) if weights.any() else torch.tensor([0])
    kept = [lengths[one] for one in index]
    torch.testing.assert_close(own, weights[index])
    assert row["input_ids"].shape == (1, sum(kept))
    assert row["cu_seq_lens_q"].diff().tolist() == row["seq_idx"][0].bincount().tolist() == kept
    assert row["max_length_k"] == max(kept)
    expected = next_token_losses(outputs_of(batch), batch)[index]
    # a single document is a row like any other
    torch.testing.assert_close(next_token_losses(outputs_of(row), row), expected)


def test_which_rows_are_packed():
    positions, padded = torch.arange(4).expand(2, 4), torch.tensor([[0, 1, 2, 0, 1, 0, 0, 0]])
    assert documents_of({"position_ids": positions}) is None
    assert documents_of({"input_ids": positions}) is None
    assert documents_of({"position_ids": padded, "attention_mask": torch.ones(1, 8)}) is None
    assert documents_of({"position_ids": padded + 1}) is None
    # padding at a row's end stays with the document before it
    assert documents_of({"position_ids": padded}).tolist() == [[0, 0, 0, 1, 1, 1, 1, 1]]


NOT_APART = "model: expected the documents of a packed row not to see one another, got a loss of document 0 "
PLACES = torch.tensor([[0, 1, 0, 1]])
TWO = {"input_ids": torch.tensor([[1, 2, 3, 4]]), "position_ids": PLACES}


def documents_checked(losses):
    """Return a call that checks losses of documents, which are functions of these sums."""
    return lambda: check_documents(
        lambda batch: losses(batch["input_ids"].view(2, 2).double().sum(1)), TWO, TWO, []
    )


test_unscorable_documents_are_named = refusals(
    {
        "ValueError: batch: expected packed rows whose entries have (1, 4) positions, got 'pixels' of": (
            lambda: unpack({"position_ids": PLACES, "pixels": torch.ones(3, 2)})
        ),
        f"ValueError: {NOT_APART}that moves with another's contents; ": documents_checked(
            lambda sums: sums + 1e-9 * sums.sum()
        ),
        "ValueError: sample_loss: expected one number a document of packed rows, (2,), got shape (1,); ": (
            documents_checked(lambda sums: sums[:1])
        ),
    }
)
