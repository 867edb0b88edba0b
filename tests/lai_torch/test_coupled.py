"""Samples that see each other are refused by every estimator, and by name."""

import functools

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.support import LOSS
from tests.support.torch_modules import Part, held, holding

N = 6
ESTIMATORS = pytest.mark.parametrize("gradients", ["output", "all"])


def tower(*between):
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), *between, nn.Linear(7, 3)).double()


def batch():
    return torch.randn(N, 4, dtype=torch.float64), torch.arange(N) % 3


@holding(lambda: held(encoder=tower()))
def twice(own, left, right):
    """Apply one tower on two inputs."""
    return own.encoder(left), own.encoder(right)


def test_one_tower_used_twice_is_told_apart_from_coupled_samples():
    model, inputs = twice().double(), (batch()[0], batch()[0])

    def contrast(outputs, targets):
        left, right = outputs
        return functional.cross_entropy(left @ right.T, torch.arange(N), reduction="none")

    def distance(outputs, targets):
        return (outputs[0] - outputs[1]).square().sum(1)

    with pytest.raises(ValueError, match="samples are coupled"):
        lai_torch.trace(model, contrast, inputs, batch()[1])
    with pytest.raises(ValueError, match=r"2 uses of \['encoder.2'\] .* side by side"):
        lai_torch.trace(model, distance, inputs, batch()[1])
    assert lai_torch.selfcheck(model, distance, inputs, batch()[1]).relative_error < 1e-12


@ESTIMATORS
def test_samples_of_their_own_are_never_refused(gradients):
    functions = [torch.relu, functools.partial(torch.softmax, dim=1), lambda h: h - h.mean(1, keepdim=True)]
    for kind in (torch.float64, torch.float32, torch.bfloat16):
        for function in functions:
            inputs, targets = batch()
            model = tower(Part(lambda _, hidden, function=function: function(hidden))).to(kind)
            lai_torch.trace(model, LOSS, inputs.to(kind), targets, gradients=gradients)
