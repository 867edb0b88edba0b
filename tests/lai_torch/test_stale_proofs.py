"""What one batch proved holds for later ones only as far as they make the same calls."""

import copy
import random
import warnings

import lai_torch
import pytest
import torch
from lai_torch._curation.scorers.tracer import Tracer
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.support import LOSS
from tests.lai_torch.test_plan import Unplanned

WIDTH, CLASSES, SAMPLES = 4, 3, 5
DOUBLE = torch.float64


class Net(nn.Module):
    """SampleAxes between two layers, each with a way to go for every value of its flag."""

    def __init__(self, *places):
        super().__init__()
        self.places, self.flags = places, [0] * len(places)
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH, dtype=DOUBLE) for _ in range(3))
        self.head = nn.Linear(WIDTH, CLASSES, dtype=DOUBLE)
        self.register_buffer("constant", torch.randn(WIDTH, WIDTH, dtype=DOUBLE))
        self.gate = nn.Parameter(torch.zeros((), dtype=DOUBLE))
        self.factor = 0.0

    def forward(self, inputs):
        hidden = torch.tanh(self.first(inputs))
        for place, flag in zip(self.places, self.flags, strict=True):
            hidden = torch.tanh(place(self, hidden, flag))
        return self.head(hidden)


def normalised(net, hidden, flag):
    ones, zeros = hidden.new_ones(WIDTH), hidden.new_zeros(WIDTH)
    return functional.batch_norm(hidden, zeros, ones, training=bool(flag))


UNCOUPLED = {
    "another layer": lambda net, h, flag: (net.third if flag else net.second)(h),
    "a parameter for a buffer": lambda net, h, flag: functional.linear(
        h, net.second.weight if flag else net.constant
    ),
    "a parameter on the right": lambda net, h, flag: torch.matmul(
        h, net.third.weight if flag else net.constant
    ),
    "a parameter in a list": lambda net, h, flag: torch.matmul(
        h, torch.stack([net.constant, net.second.weight if flag else net.constant])[1]
    ),
    "detached": lambda net, h, flag: h @ (net.second.weight.detach() if flag else net.second.weight),
    "another offset": lambda net, h, flag: functional.linear(
        h, net.second.weight, (net.third if flag else net.second).bias
    ),
    "a scale": lambda net, h, flag: net.second(h * (1.0 + flag)),
    "an axis": lambda net, h, flag: h - h.reshape(SAMPLES, 2, 2).mean(1 + flag).repeat(1, 2),
}
COUPLED = {
    "an axis": lambda net, h, flag: h - h.mean(1 - flag, keepdim=True),
    "a flag": normalised,
    "a call": lambda net, h, flag: h - h.mean(0) if flag else h,
    "a factor": lambda net, h, flag: h - flag * 0.5 * h.mean(0),
    "a cumulated sum": lambda net, h, flag: h + torch.cumsum(h, 1 - flag),
}


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, WIDTH, generator=generator, dtype=DOUBLE)
    return inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator)


def told(tracer, step):
    """Return the losses and the kernel that a trace gives, or that it was refused."""
    try:
        trace, losses = tracer(batch(step), None)
    except ValueError:
        return ()
    kernel = lai.ghost_kernel if tracer.every_layer else lai.lai_kernel
    return losses, kernel(trace, trace)


@pytest.mark.parametrize("every_layer", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_changes_between_steps_a_trace_is_that_of_a_full_recording(seed, every_layer):
    rng = random.Random(seed)  # no secret
    names = rng.sample(sorted(UNCOUPLED), 2)
    torch.manual_seed(seed)
    net = Net(*(UNCOUPLED[name] for name in names)).eval()
    planned, full = (Tracer(copy.deepcopy(net), LOSS, every_layer=every_layer) for _ in range(2))
    full._plans = Unplanned()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(9):
            if step > 2 and rng.random() < 0.6:
                net.flags[rng.randrange(2)] ^= 1
            planned.model.flags, full.model.flags = net.flags, net.flags
            found, expected = told(planned, step), told(full, step)
            assert all(map(torch.equal, found, expected)), names
            fresh = told(Tracer(net, LOSS, every_layer=every_layer), step)
            assert len(found) == len(expected) == len(fresh), names
            for one, other in zip(found, fresh, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def coupling(name, where):
    """Return a net, a loss and a flag in a list: set to 1, it couples samples in a way and at a place."""
    torch.manual_seed(0)
    flag, place = [0], COUPLED[name]
    net = Net(lambda net, hidden, _: place(net, hidden, flag[0] if where == "model" else 0)).eval()
    if where == "hook":
        net.second.register_forward_hook(lambda *args: place(net, args[2], flag[0]))
        net.places = (UNCOUPLED["another layer"],)

    def loss(outputs, targets):
        if where == "loss" and outputs.shape[1] == CLASSES:
            outputs = torch.cat([outputs, outputs[:, :1]], 1)
            return LOSS(place(net, outputs, flag[0]), targets)
        return LOSS(outputs, targets)

    return net, loss, flag


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli"])
@pytest.mark.parametrize("where", ["model", "loss", "hook"])
@pytest.mark.parametrize("name", COUPLED)
def test_what_begins_to_couple_samples_is_refused_when_it_does(name, where, estimator):
    net, loss, flag = coupling(name, where)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    curator = lai_torch.Curator(net, loss, optimizer, batch(9), estimator=estimator, refresh=100)
    for step in range(3):
        curator.score(*batch(step))
    flag[0] = 1
    with pytest.raises(ValueError, match=r"couple|statistics of the batch"):
        curator.score(*batch(3))


@pytest.mark.parametrize("estimator", ["lai", "lli", "ghost"])
def test_a_gate_that_is_zero_does_not_hide_what_it_will_couple(estimator):
    torch.manual_seed(0)
    net = Net(lambda net, hidden, _: hidden + net.gate * hidden.mean(0)).eval()
    with pytest.raises(ValueError, match="couple"):
        Tracer(net, LOSS, every_layer=estimator == "ghost", head_alone=estimator == "lli")(batch(0))
    assert not bool(net.gate.any())
    assert net.gate._version == 0


def hooked(net):
    net.second.register_forward_hook(lambda *args: 2.0 * args[2])


def sharing(net):
    net.second = net.first


@pytest.mark.parametrize("change", [hooked, sharing])
@pytest.mark.parametrize("backward", ["kept", "whole", "selective"])
def test_an_update_is_that_of_the_model_as_it_is_now(change, backward):
    torch.manual_seed(0)
    net = Net(UNCOUPLED["another layer"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    curator = lai_torch.Curator(net, LOSS, optimizer, batch(9), backward=backward)
    for step in range(4):
        if step == 2:
            change(net)
        names, before = zip(*net.named_parameters(), strict=True)
        before = [parameter.detach().clone() for parameter in before]
        inputs, targets = batch(step)
        again = copy.deepcopy(net)
        weights = curator.step(inputs, targets).weights
        loss = (weights * LOSS(again(inputs), targets)).sum()
        gradients = torch.autograd.grad(loss, list(again.parameters()), allow_unused=True)
        after = dict(net.named_parameters())
        for name, start, gradient in zip(names, before, gradients, strict=True):
            expected = start if gradient is None else start - 0.1 * gradient
            torch.testing.assert_close(after[name].detach(), expected, rtol=1e-9, atol=1e-12)
