"""What a walk over a model remembers is dropped where the model changed."""

import pytest
import torch
from lai_torch._model import walk
from torch import nn


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
