"""Samples that see each other are refused by every estimator, and by name."""

import functools

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.support import LOSS

N = 6
ESTIMATORS = pytest.mark.parametrize("gradients", ["output", "all"])


def tower(*between):
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), *between, nn.Linear(7, 3)).double()


def batch():
    return torch.randn(N, 4, dtype=torch.float64), torch.arange(N) % 3


class Between(nn.Module):
    """Some function of the whole batch's hidden layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, hidden):
        return self.function(hidden)


def centred(outputs, targets):
    return functional.cross_entropy(outputs - outputs.mean(0), targets, reduction="none")


def centred_without_gradient(outputs, targets):
    return functional.cross_entropy(outputs - outputs.mean(0).detach(), targets, reduction="none")


def supervised_contrast(outputs, targets):
    unit = functional.normalize(outputs, dim=1)
    alike = unit @ unit.T
    same = (targets[:, None] == targets[None, :]).to(alike)
    return alike.logsumexp(1) - (alike * same).sum(1) / same.sum(1)


def stacked_pairs(outputs, targets):
    """Contrast halves: sample i and sample i + n/2 are two views of one thing."""
    first, second = functional.normalize(outputs, dim=1).chunk(2)
    rows = functional.cross_entropy(first @ second.T, torch.arange(N // 2), reduction="none")
    return torch.cat([rows, rows])


def ranking(outputs, targets):
    return functional.softplus(outputs.roll(1, 0)[:, 0] - outputs[:, 0])


LOSSES = [centred, centred_without_gradient, supervised_contrast, stacked_pairs, ranking]


@ESTIMATORS
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_of_the_whole_batch_is_refused(loss, gradients):
    with pytest.raises(ValueError, match=r"samples are coupled|goes into the losses of others"):
        lai_torch.trace(tower(), loss, *batch(), gradients=gradients)


def attention(hidden):
    return torch.softmax(hidden @ hidden.T, 1) @ hidden


def neighbours(hidden):
    """Convolve over a graph whose nodes are the samples."""
    return 0.5 * (hidden + hidden.roll(1, 0))


def mean_out(hidden):
    return hidden - hidden.mean(0)


def mean_out_without_gradient(hidden):
    return hidden - hidden.mean(0).detach()


MODELS = [attention, neighbours, mean_out, mean_out_without_gradient]


@ESTIMATORS
@pytest.mark.parametrize("function", MODELS)
def test_a_model_whose_samples_see_each_other_is_refused(function, gradients):
    with pytest.raises(ValueError, match=r"samples are coupled|goes into the losses of others"):
        lai_torch.trace(tower(Between(function)), LOSS, *batch(), gradients=gradients)


@pytest.mark.parametrize("estimator", ["lai", "lli", "ghost", "preconditioned_lai"])
def test_a_curator_refuses_coupled_samples_whatever_the_estimator(estimator):
    model = tower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curator = lai_torch.Curator(model, centred, optimizer, batch(), estimator=estimator)
    with pytest.raises(ValueError, match=r"samples are coupled|goes into the losses of others"):
        curator.step(*batch())


def test_where_samples_are_coupled_is_said():
    with pytest.raises(ValueError, match=r"samples are coupled \(before '3'\)"):
        lai_torch.trace(tower(Between(mean_out)), LOSS, *batch())
    with pytest.raises(ValueError, match=r"samples are coupled \(behind the last layer, in the loss"):
        lai_torch.trace(tower(), centred, *batch())


class Twice(nn.Module):
    """One tower on two inputs."""

    def __init__(self):
        super().__init__()
        self.encoder = tower()

    def forward(self, left, right):
        return self.encoder(left), self.encoder(right)


def test_one_tower_used_twice_is_told_apart_from_coupled_samples():
    model, inputs = Twice().double(), (batch()[0], batch()[0])

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
            model = tower(Between(function)).to(kind)
            lai_torch.trace(model, LOSS, inputs.to(kind), targets, gradients=gradients)
