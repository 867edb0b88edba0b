"""Inputs and targets of different numbers of samples are refused everywhere, before anything has changed."""

import copy

import lai_torch
import pytest
import torch
from torch import nn

from tests.lai_torch.support import LOSS, data, labels, sgd


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


@pytest.mark.parametrize("sizes", [(6, 5), (5, 6)])
@pytest.mark.parametrize("entry", ENTRIES)
def test_six_inputs_with_five_targets_are_refused_with_both_numbers(entry, sizes, tmp_path, monkeypatch):
    def shorter(outputs, targets):  # as zip() would
        shared = min(len(outputs), len(targets))
        return LOSS(outputs[:shared], targets[:shared])

    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
    before = copy.deepcopy(model.state_dict())
    inputs, targets = data(sizes[0])[0], labels(sizes[1])
    with pytest.raises(ValueError, match=f"got {sizes[0]} in inputs and {sizes[1]} in targets"):
        ENTRIES[entry](model, shorter, inputs, targets)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def by_keyword(inputs):
    return {"input": inputs}


@pytest.mark.parametrize("form", [by_keyword, lambda inputs: (inputs,)])
def test_inputs_of_every_form_are_counted(form):
    inputs, targets = data(6)
    with pytest.raises(ValueError, match="got 6 in inputs and 5 in targets"):
        curator_of(nn.Linear(4, 3).double(), LOSS).step(form(inputs), targets[:5])
