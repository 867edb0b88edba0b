"""The same samples, padded further, have the same scores: on BERT and GPT-2, whatever reads them."""

import re

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.support import LOSS
from tests.support.torch_modules import held, holding
from tests.support.workloads.torch_parts import next_token
from tests.support.workloads.transformer_models import configured, transformer

WORDS, LENGTH, FURTHER = 31, 12, 48


def bert():
    sizes = {"depth": 1, "intermediate_size": 24, "num_labels": 3}
    model = transformer("BertForSequenceClassification", length=FURTHER, **sizes).double().eval()
    return model, lambda outputs, targets: LOSS(outputs.logits, targets[:, 0] % 3)


def gpt2():
    model = transformer("GPT2LMHeadModel", depth=1, length=FURTHER, bos_token_id=0, eos_token_id=0)
    return model.double().eval(), next_token


MODELS = {"bert": bert, "gpt2": gpt2}


def padded(n, seed, length):
    """Draw samples of 3 to 12 tokens, padded to a length."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, WORDS, (n, LENGTH), generator=generator)
    lengths = torch.randint(3, LENGTH + 1, (n, 1), generator=generator)
    mask = functional.pad((torch.arange(LENGTH) < lengths).long(), (0, length - LENGTH))
    words = functional.pad(words, (0, length - LENGTH)) * mask
    return {"input_ids": words, "attention_mask": mask}, words.masked_fill(mask == 0, -100)


def scored(model, loss, length, backward="kept", **options):
    """Score one batch, the second time by what the first one taught of the model, or in a step of a pass."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curator = lai_torch.Curator(model, loss, optimizer, padded(5, 1, length), backward=backward, **options)
    if backward != "kept":
        return curator.step(*padded(8, 2, length)).scores
    return [curator.score(*padded(8, 2, length))[1].scores for _ in range(2)][-1]


ESTIMATORS = {
    "mean": lai_torch.LAI(positions="mean"),
    "flatten": lai_torch.LAI(positions="flatten"),
    "tokens": lai_torch.LAI(positions="tokens"),
    "sketch": lai_torch.LAI(positions="tokens", sketch=8),
    "lli": "lli",
    "ghost": "ghost",
    "preconditioned": lai_torch.PreconditionedLAI(positions="mean", exponent=0.5),
    "calibrated": lai_torch.CalibratedLAI(positions="mean"),
}
CASES = [("bert", "mean", "whole"), ("bert", "mean", "selective")]
CASES += [
    (name, kind, "kept")
    for name in MODELS
    for kind in ESTIMATORS
    if (name, kind) not in {("bert", "tokens"), ("bert", "sketch")}
]


@pytest.mark.parametrize(("name", "kind", "backward"), CASES)
def test_scores_do_not_depend_on_padding(name, kind, backward):
    found = []
    for length in (LENGTH, FURTHER):
        torch.manual_seed(0)  # of the sketch's draw
        found.append(scored(*MODELS[name](), length, backward, estimator=ESTIMATORS[kind]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12 * float(found[0].abs().max()))


@holding(lambda: held(words=nn.Embedding(WORDS, 8), inner=nn.Linear(8, 8), head=nn.Linear(8, 3)))
def pooled(own, words, kept, **_):
    """Classify tokens, by a mask of another name, and use nothing else that is given."""
    hidden = own.inner(own.words(words)).relu() * kept.unsqueeze(-1)
    return own.head(hidden.sum(1) / kept.sum(1, keepdim=True))


def test_masks_passed_must_fit():
    model = pooled().double()

    def batch(n, seed, length):
        inputs, targets = padded(n, seed, length)
        return tuple(inputs.values()), targets[:, 0] % 3

    found = []
    for length in (LENGTH, FURTHER):
        estimator = lai_torch.LAI(valid=lambda inputs: inputs[1])
        curator = lai_torch.Curator(model, LOSS, None, batch(5, 1, length), estimator=estimator)
        found.append([curator.score(*batch(8, 2, length))[1].scores for _ in range(2)])
    for short, long in zip(*found, strict=True):
        torch.testing.assert_close(long, short)
    inputs, targets = batch(4, 1, LENGTH)
    traced = lai_torch.trace(model, LOSS, inputs, targets, valid=inputs[1])
    assert torch.equal(traced.layers[0].valid, inputs[1] != 0)
    assert lai_torch.trace(model, LOSS, inputs, targets, valid=lambda _: None).layers[0].valid is None
    message = "valid: expected shape (n, t) with the positions of a layer, 12, got (4, 5)"
    with pytest.raises(ValueError, match=re.escape(message)):
        lai_torch.trace(model, LOSS, inputs, targets, valid=inputs[1][:, :5])


def test_unfit_masks_are_said():
    inputs, targets = padded(4, 1, LENGTH)
    model, (words, mask) = pooled().double(), inputs.values()
    plain = model.forward
    model.forward = lambda words, kept, attention_mask: plain(words, kept)  # by place
    with pytest.warns(UserWarning, match="attention_mask: expected the positions of a layer, 12, got"):
        lai_torch.trace(model, LOSS, (words, mask, mask[:, :5]), targets[:, 0] % 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda mask: torch.where(mask == 0, -1e9, 0.0),
        lambda mask: mask[:, None, None],
        torch.ones_like,
    ],
)
def test_what_is_no_mask_of_positions(change):
    inputs, targets = padded(4, 1, LENGTH)
    mask = inputs["attention_mask"]
    given = {"words": inputs["input_ids"], "kept": mask, "attention_mask": change(mask)}
    traced = lai_torch.trace(pooled().double(), LOSS, given, targets[:, 0] % 3)
    assert all(layer.valid is None for layer in traced.layers)


def t5():
    """Return an encoder with a decoder, and its loss."""
    sizes = {"vocab_size": WORDS, "d_model": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    model = configured("T5ForConditionalGeneration", d_kv=8, d_ff=24, **sizes)

    def loss(outputs, targets):
        return functional.cross_entropy(outputs.logits.mT, targets, reduction="none").sum(1)

    return model.double().eval(), loss


def translated(n, seed, length, further, mask):
    """Draw pairs of samples, padded to two lengths; the decoder's mask is its own or that of its labels."""
    (source, _), (target, labels) = padded(n, seed, length), padded(n, seed + 50, further)
    inputs = {**source, "decoder_input_ids": functional.pad(target["input_ids"][:, :-1], (1, 0))}
    if mask == "decoder_attention_mask":
        inputs[mask] = target["attention_mask"]
    else:
        inputs[mask] = labels
    return inputs, labels


@pytest.mark.parametrize("mask", ["decoder_attention_mask", "labels"])
def test_encoder_and_decoder_masks(mask):
    found = []
    for lengths in ((LENGTH, LENGTH + 1), (FURTHER, FURTHER - 8)):
        torch.manual_seed(0)
        model, loss = t5()
        validation, batch = translated(5, 1, *lengths, mask), translated(8, 2, *lengths, mask)
        curator = lai_torch.Curator(model, loss, None, validation, estimator=ESTIMATORS["mean"])
        found.append([curator.score(*batch)[1].scores for _ in range(3)])
    for short, long in zip(*found, strict=True):
        torch.testing.assert_close(long, short, rtol=1e-9, atol=1e-12)


def test_masks_of_one_length_are_said():
    model, loss = t5()
    with pytest.warns(
        UserWarning, match="attention_mask: expected encoder and decoder to have other numbers"
    ):
        lai_torch.trace(model, loss, *translated(5, 1, LENGTH, LENGTH, "decoder_attention_mask"))
