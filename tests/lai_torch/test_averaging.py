"""Language models' losses by means over positions: no gradient is formed at every position and class."""

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


def flat(outputs, targets, **options):
    losses = functools.partial(functional.cross_entropy, reduction="none", **options)
    return losses(outputs.flatten(0, 1), targets.flatten())


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


CASES = [(form, padded, "kept") for form in FORMS for padded in (False, True)]
CASES += [("flat", True, "selective")]
CASES += [
    (form, False, "selective")
    for form in ("flat", "transposed", "sliced", "positions before samples", "twice")
]


@pytest.mark.parametrize(("form", "padded", "backward"), CASES)
def test_steps_by_means(form, padded, backward):
    """Scores are those of all positions, and steps plain ones."""

    def loss(outputs, targets):
        return FORMS[form](outputs, targets).view(len(targets), -1).mean(1)

    model = make_model().double()
    validation = batch(4, padded=padded)
    options = {"estimator": lai_torch.LAI(positions="mean"), "policy": HALF}
    curator = curated(model, validation, loss, lr=0.0, backward=backward, **options)
    for _ in range(4):  # proved, planned, by the plan; selective, the first that drops is compared with all
        training = batch(6, padded=padded)
        sides = [lai_torch.trace(model, loss, *side) for side in (validation, training)]
        report = curator.step(*training)
        torch.testing.assert_close(report.scores, lai_core.lai_scores(*sides, positions="mean"))
        assert 0 < report.kept < 6
        losses = (loss(model(**training[0]), training[1]) * report.weights).sum()
        gradients = torch.autograd.grad(losses, [*model.parameters()])
        torch.testing.assert_close([one.grad for one in model.parameters()], [*gradients])
