"""Cached weights, gains that decay, sparse rows, checkpoints: trained as by plain torch, and scored."""

import copy
import functools

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import CheckpointFunction, checkpoint

import lai_core as lai
from tests.lai_torch.support import LOSS, batch, by_autograd, curated, data, labels
from tests.support.torch_modules import Part

WAYS = [("ghost", "kept"), ("exact", "kept"), ("lai", "kept"), ("lli", "kept"), ("lai", "whole")]
EVERYTHING = functools.partial(lai.keep_top, fraction=1.0)


class Doubled(nn.Module):
    def forward(self, matrix):
        return 2.0 * matrix.tanh()


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
}
CASES = [(name, *way) for name in MODELS for way in WAYS]
CASES += [("doubled", "lai", "selective")]


def steps_of(model, batches, optimizer):
    """Train by plain torch."""
    for inputs, targets in batches:
        optimizer.zero_grad()
        LOSS(model(inputs), targets).mean().backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize(("name", "estimator", "backward"), CASES)
def test_cached_weights_are_scored_and_trained(name, estimator, backward):
    model, validation, batches = MODELS[name](), data(6), [data(8) for _ in range(3)]
    twin = copy.deepcopy(model)
    expected = by_autograd(copy.deepcopy(model), validation, batches[0])
    options = {"estimator": estimator, "backward": backward, "policy": EVERYTHING}
    curator, scores = curated(model, validation, **options), []
    for each in batches:
        with parametrize.cached():
            scores.append(curator.step(*each).scores)
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


class Checkpointed(nn.Module):
    """Checkpoints a body whose first matrix is made of a parameter inside."""

    def __init__(self, how):
        super().__init__()
        self.first, self.body, self.head = nn.Linear(4, 4), nn.Linear(6, 4), nn.Linear(4, 3)
        self.scale, self.how = nn.Parameter(torch.ones(6, 4)), how
        self.double()

    def inside(self, hidden):
        return self.body(torch.relu(nn.functional.linear(hidden, self.scale * 2)))

    def forward(self, inputs):
        return self.head(self.how(self.inside, self.first(inputs)))


def plainly(function, hidden):
    return checkpoint(function, hidden, use_reentrant=False)


REENTRANT = {
    "by option": lambda f, x: checkpoint(f, x, use_reentrant=True),
    "the function by itself": lambda f, x: CheckpointFunction.apply(f, True, x),
}


SCORED = {
    "trace": lambda model: lai_torch.trace(model, LOSS, *batch(5, 4)),
    "trace of all": lambda model: lai_torch.trace(model, LOSS, *batch(5, 4), gradients="all"),
    "exact": lambda model: lai_torch.exact_scores(model, LOSS, batch(3, 4), batch(5, 4)),
    **{
        name: lambda model, name=name: curated(model, batch(4, 4), backward=name).step(*batch(6, 4))
        for name in ("kept", "whole", "selective")
    },
}


@pytest.mark.parametrize("scored", SCORED)
@pytest.mark.parametrize("kind", REENTRANT)
def test_reentrant_checkpoints_are_refused(kind, scored):
    model = Checkpointed(REENTRANT[kind])
    before = [one.detach().clone() for one in model.parameters()]
    with pytest.raises((ValueError, RuntimeError), match=r"use_reentrant=False"):
        SCORED[scored](model)
    assert all(map(torch.equal, before, model.parameters()))
    assert all(one.grad is None for one in model.parameters())


class Chunked(nn.Module):
    """A head whose loss is computed in checkpointed chunks of positions, or in eval mode on all at once."""

    def __init__(self, chunks, whole_in_eval=False):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 4).double(), nn.Linear(4, 3).double()
        self.chunks, self.whole_in_eval = chunks, whole_in_eval

    def forward(self, inputs, labels):
        hidden = torch.relu(self.body(inputs))
        chunks = 1 if self.whole_in_eval and not self.training else self.chunks
        parts = zip(hidden.chunk(chunks, 1), labels.chunk(chunks, 1), strict=True)
        return sum(plainly(lambda part: self.summed(*part), part) for part in parts)

    def summed(self, hidden, labels):
        logits = self.head(hidden)
        return nn.functional.cross_entropy(logits.mT, labels, reduction="none").sum(1)


def chunked_scores(estimator, *model):
    torch.manual_seed(1)
    sides = [(torch.randn(n, 6, 4).double(), torch.randint(3, (n, 6))) for n in (4, 8)]
    validation, training = ((side, side[1]) for side in sides)
    curator = curated(Chunked(*model), validation, lambda losses, _: losses, estimator=estimator)
    return curator.step(*training).scores


@pytest.mark.parametrize("estimator", ["ghost", "exact"])
def test_a_loss_in_chunks_is_scored_as_the_whole_one(estimator):
    torch.testing.assert_close(chunked_scores(estimator, 3), chunked_scores(estimator, 1))


@pytest.mark.parametrize("estimator", [lai_torch.LAI(positions="tokens", chunk=2), "lli"])
def test_a_last_layer_in_chunks_is_read_as_one(estimator):
    expected = chunked_scores(estimator, 1)
    for options in ((3,), (3, True)):
        torch.testing.assert_close(chunked_scores(estimator, *options), expected)
