"""Packed rows as samples: unpacking, losses by document, the row that is left of the kept ones."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lai_torch.integrations.losses import documents_of, next_token_losses
from lai_torch.integrations.rows import LENGTHS, check_documents, kept_documents, unpacked
from transformers.modeling_outputs import CausalLMOutput

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
    """Return logits that depend on a position's token alone."""
    return CausalLMOutput(logits=torch.sin(torch.arange(11.0) * (1 + batch["input_ids"][..., None])))


@given(DOCUMENTS)
def test_a_document_has_the_loss_that_it_has_unpacked(documents):
    batch, lengths = packed(documents)
    apart = unpacked(batch)
    assert apart["attention_mask"].sum(1).tolist() == lengths
    found, expected = (next_token_losses(outputs_of(one), one) for one in (batch, apart))
    torch.testing.assert_close(found, expected)


@given(DOCUMENTS, st.randoms(use_true_random=False))
def test_the_kept_documents_are_one_row_with_the_same_losses(documents, draw):
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


def test_rows_that_are_not_packed_are_left_alone():
    positions, again = torch.arange(4).expand(2, 4), torch.tensor([[0, 1, 0, 1]])
    assert documents_of({"position_ids": positions}) is None
    assert documents_of({"input_ids": positions}) is None
    assert documents_of({"position_ids": again, "attention_mask": torch.ones(1, 4)}) is None
    assert documents_of({"position_ids": again + 1}) is None
    assert documents_of({"position_ids": again}).tolist() == [[0, 0, 1, 1]]


def test_padding_at_a_rows_end_stays_with_the_document_before_it():
    positions = torch.tensor([[0, 1, 2, 0, 1, 0, 0, 0]])
    assert documents_of({"position_ids": positions}).tolist() == [[0, 0, 0, 1, 1, 1, 1, 1]]


NOT_PACKED = "batch: expected packed rows, with position_ids and no attention_mask, got ['input_ids']"
NOT_APART = "model: expected the documents of a packed row not to see one another, got a loss of document 0 "
TWO = {"input_ids": torch.tensor([[1, 2, 3, 4]]), "position_ids": torch.tensor([[0, 1, 0, 1]])}


def documents_checked(losses):
    check_documents(losses, TWO, TWO, [])


def sums(batch):
    return batch["input_ids"].view(2, 2).double().sum(1)


REFUSED = {
    NOT_PACKED: lambda: unpacked({"input_ids": torch.ones(1, 4)}),
    "batch: expected packed rows whose entries have (1, 4) positions, got 'pixels' of shape (3, 2)": (
        lambda: unpacked({"position_ids": torch.tensor([[0, 1, 0, 1]]), "pixels": torch.ones(3, 2)})
    ),
    f"{NOT_APART}that moves with another's contents; ": lambda: documents_checked(
        lambda batch: sums(batch) + 1e-9 * sums(batch).sum()
    ),
    "sample_loss: expected one number a document of packed rows, (2,), got shape (1,); ": (
        lambda: documents_checked(lambda batch: sums(batch)[:1])
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_packed_or_not_apart_is_refused_by_name(message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        REFUSED[message]()


def test_losses_that_are_not_known_are_not_compared():
    documents_checked(lambda batch: sums(batch) / torch.tensor([0.0, 1.0]))
