"""Every keyword of a weigher changes what it does."""

import inspect

import lai_torch
import pytest
import torch

from tests.lai_torch.support import HALF, LOSS, batch, network, plain

GIVEN = {
    "estimator": {"estimator": "lli"},
    "policy": {"policy": HALF},
    "warmup": {"warmup": 2},
    "refresh": {"refresh": 2},
    "validation_fraction": {"validation_fraction": 0.5},
    "generator": {"validation_fraction": 0.5, "generator": torch.Generator().manual_seed(5)},
}
"""Of each keyword, a value that is not the usual one, and what it needs beside it to mean something."""


def run(**options):
    """Return what becomes of four batches."""
    torch.manual_seed(0)
    model = network()
    weigher, found = lai_torch.Weigher(model, LOSS, batch(9, 4), **options), []
    for _ in range(4):
        inputs, targets = batch(6, 4)
        (weights,), report = weigher.weigh([(inputs, targets)])
        weigher.objective(LOSS(model(inputs), targets), weights).backward()
        found.append([report.age, report.scores, weights, [each.grad for each in model.parameters()]])
    return plain(found)


@pytest.mark.parametrize("name", GIVEN)
def test_a_keyword_changes_a_report(name):
    without = {key: value for key, value in GIVEN[name].items() if key != name}
    assert run(**GIVEN[name]) != run(**without)


def test_every_keyword_is_given():
    parameters = inspect.signature(lai_torch.Weigher).parameters.values()
    keywords = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert keywords == {*GIVEN, "process_group"}  # which several processes show, in test_processes.py


def test_old_names_warn_and_work():
    torch.manual_seed(0)
    model, losses = network(), torch.ones(2)
    with pytest.warns(DeprecationWarning, match="share= is called validation_fraction= now"):
        weigher = lai_torch.Weigher(model, LOSS, batch(9, 4), share=0.5, group=False)
    with pytest.warns(DeprecationWarning, match="share= is called fraction= now"):
        total = weigher.objective(losses, losses, auxiliary=torch.ones(()), share=0.5)
    (_, report), covered = weigher.score(*batch(6, 4)), lai_torch.coverage(model, LOSS, *batch(6, 4))
    with pytest.warns(DeprecationWarning, match="called kept_fraction now"):
        assert report.share == report.kept_fraction
    with pytest.warns(DeprecationWarning, match="called fraction now"):
        assert covered.share == covered.fraction
    with pytest.warns(DeprecationWarning, match="Kept is called KeptOptions now"):
        assert lai_torch.Kept is lai_torch.KeptOptions
    with pytest.warns(DeprecationWarning, match="share= is called fraction= now"):
        assert lai_torch.GroupFloor(share=0.5) == lai_torch.GroupFloor(0.5)
    assert total == 2.5
    with pytest.raises(TypeError, match="share"):
        lai_torch.Weigher(model, LOSS, batch(9, 4), share=0.5, validation_fraction=0.5)
