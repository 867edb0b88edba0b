"""What a step costs whatever the model computes: each thing is looked up once."""

import lai_torch
import numpy as np
import pytest
import torch
from lai_torch._model import walk
from lai_torch._model.preserve import preserved
from torch import nn

from tests.lai_torch.support import HALF, LOSS, data

PASSES = ("kept", "selective", "whole")


def curated(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lai_torch.Curator(model, LOSS, optimizer, data(9), policy=HALF, refresh=10**9, **options)


def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()


CHANGES = {
    "a module": lambda model: setattr(model, "0", nn.Linear(4, 8).double()),
    "a parameter": lambda model: setattr(model[2], "weight", nn.Parameter(torch.randn(3, 8).double())),
    "a name": lambda model: model.register_module("3", model._modules.pop("2")),
    "a place": lambda model: model[0]._modules.update([model._modules.popitem()]),
    "one more": lambda model: model.append(nn.Linear(3, 3).double()),
    "a buffer": lambda model: model[1].register_buffer("more", torch.zeros(1)),
    "one less": lambda model: model[2].register_parameter("bias", None),
    "a class": lambda model: setattr(model[2].weight, "__class__", Other),
}


class Other(nn.Parameter):
    """Another class of parameters."""


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_within_a_model_is_seen(change):
    model, step = network(), walk.Step()
    with step:
        before = walk.held(model)
        assert walk.held(model) is before
    with step:
        assert walk.held(model) is before
    CHANGES[change](model)
    with step:
        found = walk.held(model)
    assert found is not before
    assert list(found.modules) == list(model.modules())
    assert found.parameters.keys() == dict(model.named_parameters()).keys()
    assert found.buffers.keys() == dict(model.named_buffers()).keys()
    assert all(one is other for one, other in zip(found.parameters.values(), model.parameters(), strict=True))


def test_what_a_model_holds_is_looked_at_anew_in_each_step():
    model = network()
    curator, batch = curated(model), data(6)
    for _ in range(3):
        curator.step(*batch)
    model[0] = nn.Linear(4, 8).double()
    model[2].weight = nn.Parameter(torch.randn(3, 8).double())
    curator.policy = HALF
    report = curator.step(*batch)
    fresh = curated(model)  # of the same values but for the step that was taken
    before = fresh.score(*batch)[1].scores
    again = curator.score(*batch)[1].scores
    assert report.scores is not None
    assert before.shape == again.shape
    # one summary is of the model before, so that only the batch's own side can be compared: by its losses
    torch.testing.assert_close(fresh.score(*batch)[1].losses, curator.score(*batch)[1].losses, rtol=0, atol=0)


class Drawing(nn.Module):
    """Draws from numpy's global stream as it runs."""

    def __init__(self, numbers):
        super().__init__()
        self.layer, self.numbers = nn.Linear(4, 3).double(), numbers

    def forward(self, inputs):
        for _ in range(self.numbers):
            np.random.standard_normal()  # noqa: NPY002
        return self.layer(inputs)


@pytest.mark.parametrize("waiting", [0, 1])
@pytest.mark.parametrize("numbers", [0, 1, 2, 3])
def test_numpys_stream_is_put_back_with_a_normal_number_that_waits_in_it(numbers, waiting):
    """Of two that are drawn at once one waits, and is taken without a draw."""
    model = Drawing(numbers)
    np.random.seed(0)  # noqa: NPY002
    for _ in range(waiting):
        np.random.standard_normal()  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    with preserved(model, LOSS):
        model(data(6)[0])
    after = np.random.get_state()  # noqa: NPY002
    assert before[2:] == after[2:]
    assert (before[1] == after[1]).all()
