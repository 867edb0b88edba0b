"""Language models' losses by means over positions: no gradient is formed at every position and class."""

import copy
import functools

import lai_torch
import pytest
import torch
from lai_torch._graph import averaging
from torch import nn
from torch.nn import functional

import lai_core
from tests.lai_torch.support import HALF, curated
from tests.support.torch_modules import held, holding

LENGTH, CLASSES = 5, 7
WEIGHT = torch.rand(CLASSES, dtype=torch.float64)


def per_sample(losses, targets):
    return losses.view(len(targets), -1).mean(1)


def flat(outputs, targets, **options):
    losses = functools.partial(functional.cross_entropy, reduction="none", **options)
    return losses(outputs.flatten(0, 1), targets.flatten())


def hooked(outputs, targets):
    logarithms = outputs.log_softmax(-1)
    if logarithms.requires_grad:
        logarithms.register_hook(lambda gradient: gradient / 2)
    return -logarithms.gather(2, targets.unsqueeze(-1)).squeeze(-1)


FORMS = {
    "flat": flat,
    "following": lambda o, t: flat(o, functional.pad(t[:, 1:], (0, 1), value=-100)),  # which is ignored
    "sliced": lambda o, t: flat(o[:, :-1].contiguous(), t[:, 1:]),
    "transposed": lambda o, t: functional.cross_entropy(o.transpose(1, 2), t, reduction="none"),
    "weighted": lambda o, t: flat(o, t, weight=WEIGHT, ignore_index=2),
    "gathered": lambda o, t: -(o.log_softmax(-1).gather(2, t.unsqueeze(-1)).squeeze(-1) ** 3),
    "smoothed": lambda o, t: flat(o, t, label_smoothing=0.1),
    "with a normaliser": lambda o, t: flat(o, t) + 0.1 * o.logsumexp(-1).flatten() ** 2,
    "scaled": lambda o, t: flat(o / 2.0, t),
    "positions before samples": lambda o, t: flat(o.transpose(0, 1), t.t()).view(LENGTH, -1).t(),
    "twice": lambda o, t: flat(o, t) + flat(o, t.flip(1)),
    "hooked": hooked,
}


@holding(lambda: held(table=nn.Embedding(CLASSES, 6), body=nn.Linear(6, 8), head=nn.Linear(8, CLASSES)))
def make_model(own, input_ids, attention_mask=None):
    hidden = torch.tanh(own.body(own.table(input_ids)))
    if attention_mask is not None:
        hidden = hidden * attention_mask.unsqueeze(-1)
    return own.head(hidden)


def batch(n, *, padded=False):
    ids = torch.randint(CLASSES, (n, LENGTH))
    inputs = {"input_ids": ids}
    if padded:
        inputs["attention_mask"] = (
            torch.arange(LENGTH) < torch.randint(LENGTH, (n, 1))
        ).long()  # some have none
    return inputs, ids


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch):
    monkeypatch.setattr(averaging, "FEWEST", 0)


def mean_of(form):
    return lambda outputs, targets: per_sample(FORMS[form](outputs, targets), targets)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_scores_by_means(form, padded):
    model, loss = make_model().double(), mean_of(form)
    validation, *batches = (batch(n, padded=padded) for n in (4, 6, 6, 6))
    curator = curated(model, validation, loss, estimator=lai_torch.LAI(positions="mean"), policy=HALF)
    for training in batches:  # proved, planned, by the plan
        sides = [lai_torch.trace(model, loss, *side) for side in (validation, training)]  # of all positions
        expected = lai_core.lai_scores(*sides, positions="mean")
        torch.testing.assert_close(curator.step(*training).scores, expected)


SELECTIVE = ("flat", "transposed", "sliced", "positions before samples", "twice", "hooked")


@pytest.mark.parametrize(("form", "padded"), [("flat", True), *((form, False) for form in SELECTIVE)])
def test_selective_steps_by_means(form, padded):
    loss = mean_of(form)
    validation, models = batch(4, padded=padded), [make_model().double()]
    models.append(copy.deepcopy(models[0]))
    options = {"estimator": lai_torch.LAI(positions="mean"), "policy": HALF, "refresh": 100}
    kept, selective = (
        curated(model, validation, loss, backward=backward, **options)
        for model, backward in zip(models, ("kept", "selective"), strict=True)
    )
    for _ in range(4):  # what drops a sample first is compared with every sample's
        training = batch(6, padded=padded)
        expected = kept.step(*training)
        found = selective.step(*training)
        torch.testing.assert_close(found.scores, expected.scores)
        assert 0 < found.kept < 6
        for one, other in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(one, other)
