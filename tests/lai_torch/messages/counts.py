"""Inputs and targets of different numbers of samples: refused everywhere, before anything has changed."""

import copy

import lai_torch
import torch
from torch import nn

from tests.lai_torch.support import LOSS, data, labels, sgd


def shorter(outputs, targets):
    """Compute a loss of as many samples as both have, as `zip` would."""
    shared = min(len(outputs), len(targets))
    return LOSS(outputs[:shared], targets[:shared])


def curator_of(model, loss, validation=None, **options):
    return lai_torch.Curator(model, loss, sgd(model), validation or data(7), **options)


ENTRIES = {
    "trace": lai_torch.trace,
    "gates": lai_torch.trace_gates,
    "coverage": lai_torch.coverage,
    "selfcheck": lai_torch.selfcheck,
    "routes": lai_torch.routes,
    "step": lambda model, loss, *batch: curator_of(model, loss).step(*batch),
    "warm-up": lambda model, loss, *batch: curator_of(model, loss, warmup=9).step(*batch),
    "score": lambda model, loss, *batch: curator_of(model, loss).score(*batch),
    "weigh": lambda model, loss, *batch: curator_of(model, loss).weigh([batch]),
    "validation": lambda model, loss, *batch: curator_of(model, loss, batch).step(*data(7)),
    "loader": lambda model, loss, *batch: curator_of(model, loss, [batch]).step(*data(7)),
    "exact": lambda model, loss, *batch: lai_torch.exact_scores(model, loss, data(7), batch),
    "exact validation": lambda model, loss, *batch: lai_torch.exact_scores(model, loss, batch, data(7)),
    "data set": lambda model, loss, *batch: lai_torch.score_dataset(model, loss, batch, data(7), "unwritten"),
    "data set's validation": lambda model, loss, *batch: lai_torch.score_dataset(
        model, loss, data(7), batch, "unwritten"
    ),
}


def called(entry, inputs, targets, form=lambda inputs: inputs):
    """Return a call of one function on a batch, which is to leave the model as it was."""

    def call():
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
        before = copy.deepcopy(model.state_dict())
        try:
            ENTRIES[entry](model, shorter, form(data(inputs)[0]), labels(targets))
        finally:
            torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)

    return call


FORMS = [lambda inputs: (inputs,), lambda inputs: {"input": inputs}]
MESSAGES = {
    f"ValueError: …got {inputs} in inputs and {targets} in targets": [
        *(called(entry, inputs, targets) for entry in ENTRIES),
        *(called("step", inputs, targets, form) for form in FORMS),
    ]
    for inputs, targets in ((6, 5), (5, 6))
}
