"""Checkpointed models: whatever the kind of checkpoint, what is scored is what trains."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction, checkpoint

import lai_core as lai
from tests.lai_torch.support import LOSS, batch, curated


class Checkpointed(nn.Module):
    """Checkpoints a body whose first matrix is made of a parameter inside; counts how often the body runs."""

    def __init__(self, how, first=True):
        super().__init__()
        self.first = nn.Linear(4, 4) if first else nn.Identity()
        self.scale, self.body, self.head = nn.Parameter(torch.ones(6, 4)), nn.Linear(6, 4), nn.Linear(4, 3)
        self.how, self.runs = how, 0
        self.double()

    def inside(self, hidden):
        self.runs += 1
        return self.body(torch.relu(nn.functional.linear(hidden, self.scale * 2)))

    def forward(self, inputs):
        return self.head(self.how(self.inside, self.first(inputs)))


HOW = {
    "reentrant": lambda f, x: checkpoint(f, x, use_reentrant=True),
    "not reentrant": lambda f, x: checkpoint(f, x, use_reentrant=False),
}


def gradients(model, inputs, targets):
    """Return each sample's gradient, by the backward pass of training."""
    found = []
    for sample in range(len(targets)):
        model.zero_grad()
        LOSS(model(inputs[sample : sample + 1]), targets[sample : sample + 1]).sum().backward()
        rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        found.append(torch.cat([row.flatten() for row in rows]))
    model.zero_grad()
    return torch.stack(found)


@pytest.mark.parametrize("first", [True, False], ids=["", "of what wants no gradient"])
@pytest.mark.parametrize("kind", HOW)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_what_is_scored_is_what_trains(kind, first):
    model = Checkpointed(HOW[kind], first)
    training, validation = batch(5, 4), batch(3, 4)
    sides = gradients(model, *training), gradients(model, *validation)
    traces = [lai_torch.trace(model, LOSS, *side, gradients="all") for side in (validation, training)]
    torch.testing.assert_close(lai.ghost_kernel(*traces), sides[1] @ sides[0].T)
    found = lai_torch.exact_scores(model, LOSS, validation, training)
    torch.testing.assert_close(found, sides[0] @ sides[1].sum(0))


@pytest.mark.parametrize("kind", HOW)
def test_a_record_is_not_taken_apart_by_what_runs_again(kind):
    model = Checkpointed(HOW[kind])
    lai_torch.trace(model, LOSS, *batch(5, 4), gradients="all")
    assert model.runs < 10  # once for each pass that a proof takes, never once for each sample


@pytest.mark.parametrize("backward", ["kept", "whole"])
@pytest.mark.parametrize("kind", HOW)
def test_a_step_trains_as_without_checkpoints(kind, backward):
    torch.manual_seed(0)
    model = Checkpointed(HOW[kind])
    plain = Checkpointed(lambda f, x: f(x))
    plain.load_state_dict(model.state_dict())
    training, validation = batch(6, 4), batch(4, 4)
    for one in (model, plain):
        curated(one, validation, backward=backward).step(*training)
    for found, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, expected)


def test_the_reentrant_function_by_itself_is_named():
    model = Checkpointed(lambda f, x: CheckpointFunction.apply(f, True, x))
    with pytest.raises(ValueError, match=r"reentrant.*use_reentrant=False"):
        lai_torch.trace(model, LOSS, *batch(5, 4), gradients="all")
    with pytest.raises(ValueError, match=r"reentrant.*use_reentrant=False"):
        lai_torch.exact_scores(model, LOSS, batch(3, 4), batch(5, 4))
