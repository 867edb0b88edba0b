"""Cached weights, gains that decay, optimizers of sparse rows: trained as by plain torch, and scored."""

import copy
import functools

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import lai_core as lai
from tests.lai_torch.exact_support import by_autograd
from tests.lai_torch.support import LOSS, curated, data, labels
from tests.support.torch_modules import Part

WAYS = [("ghost", "kept"), ("exact", "kept"), ("lai", "kept"), ("lli", "kept"), ("lai", "whole")]
EVERYTHING = functools.partial(lai.keep_top, fraction=1.0)


class Doubled(nn.Module):
    def forward(self, matrix):
        return 2.0 * matrix.tanh()


def decaying(own, inputs):
    """Scale by a frozen gain that decays with each forward pass, without switching gradients off."""
    hidden = torch.relu(own.body(inputs))
    own.gain.mul_(0.9).add_(0.2)
    return own.head(hidden * own.gain)


def decays():
    gain = nn.Parameter(torch.ones(8), requires_grad=False)
    return Part(decaying, body=nn.Linear(4, 8), head=nn.Linear(8, 3), gain=gain).double()


def parametrized(register):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    register(model[0])
    register(model[2])
    return model


MODELS = {
    "doubled": lambda: parametrized(
        lambda layer: parametrize.register_parametrization(layer, "weight", Doubled())
    ),
    "normed": lambda: parametrized(parametrizations.weight_norm),
    "decaying": decays,
}
CASES = [(name, *way) for name in MODELS for way in WAYS]
CASES += [(name, "lai", "selective") for name in ("doubled", "decaying")]


def steps_of(model, batches, optimizer):
    """Train by plain torch."""
    for inputs, targets in batches:
        optimizer.zero_grad()
        LOSS(model(inputs), targets).mean().backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize(("name", "estimator", "backward"), CASES)
def test_cached_weights_and_written_gains_are_scored_and_trained(name, estimator, backward):
    model, validation, batches = MODELS[name](), data(6), [data(8) for _ in range(3)]
    twin, once = copy.deepcopy(model), copy.deepcopy(model)
    if name == "decaying":  # as it is in a first pass, however many run
        once.gain.fill_(1.1)
        once.computes = lambda own, inputs: own.head(own.body(inputs).relu() * own.gain)
    expected = by_autograd(once, validation, batches[0])
    options = {"estimator": estimator, "backward": backward, "policy": EVERYTHING}
    curator, scores = curated(model, validation, **options), []
    for batch in batches:
        with parametrize.cached():
            scores.append(curator.step(*batch).scores)
    plain = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    torch.testing.assert_close(model.state_dict(), steps_of(twin, batches, plain))
    if estimator in {"ghost", "exact"}:
        torch.testing.assert_close(scores[0], expected)


@pytest.mark.filterwarnings("ignore:Sparse invariant")
@pytest.mark.parametrize("options", [{}, {"max_norm": 0.01}])
@pytest.mark.parametrize("estimator", ["ghost", "exact", "lai"])
def test_sparse_rows_are_trained_as_dense_ones(estimator, options):
    found, batches = [], [(torch.randint(11, (8, 5)), labels(8)) for _ in range(4)]
    for sparse in (True, False):
        torch.manual_seed(1)
        table, head = nn.Embedding(11, 6, sparse=sparse), nn.Linear(6, 3)
        model = Part(lambda own, x: own.head(own.table(x).mean(1).tanh()), table=table, head=head).double()
        optimizer = torch.optim.Adagrad(model.parameters())
        given = {"estimator": estimator, "policy": EVERYTHING, **options}
        curator = lai_torch.Curator(model, LOSS, optimizer, batches[0], **given)
        found.append([curator.step(*batch).scores for batch in batches[1:]] + list(model.parameters()))
    torch.testing.assert_close(*found)
