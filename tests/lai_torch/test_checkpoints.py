"""Checkpointed models: what is scored is what trains; reentrant checkpoints are refused by name."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction, checkpoint

from tests.lai_torch.support import LOSS, batch, curated


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
def test_a_last_layer_in_chunks_is_refused_and_scored_whole_in_eval_mode(estimator):
    with pytest.raises(ValueError, match=r"3 uses of \['head'\] .* \(of a loss in chunks: in eval mode"):
        chunked_scores(estimator, 3)
    torch.testing.assert_close(chunked_scores(estimator, 3, True), chunked_scores(estimator, 1))
