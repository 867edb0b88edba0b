"""What earlier batches taught of a model holds for later ones only as far as the model is the same."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.coupling import CLASSES, WIDTH, Net, batch
from tests.lai_torch.support import LOSS, curated, data


def linear(outputs=WIDTH):
    return nn.Linear(WIDTH, outputs).double()


FLAGGED = {
    "another layer": lambda net, h, flag: (net.third if flag else net.second)(h),
    "a parameter for a buffer": lambda net, h, flag: functional.linear(
        h, net.second.weight if flag else net.table[:WIDTH]
    ),
    "a parameter in a list": lambda net, h, flag: (
        h @ torch.stack([net.table[:WIDTH], net.second.weight if flag else net.table[:WIDTH]])[1]
    ),
    "detached": lambda net, h, flag: h @ (net.second.weight.detach() if flag else net.second.weight),
    "no offset": lambda net, h, flag: functional.linear(
        h, net.third.weight, None if flag else net.third.bias
    ),
    "a scale": lambda net, h, flag: net.second(h * (1.0 + flag)),
    "an axis": lambda net, h, flag: h - h.reshape(len(h), 2, 2).mean(1 + flag).repeat(1, 2),
    "another function": lambda net, h, flag: h.tanh() if flag else net.third(h),
    "another depth": lambda net, h, flag: net.third(net.third(h).tanh()) if flag else net.third(h),
}
"""Places that go one way or another by a flag, and couple no samples either way."""


def flagged(*names):
    places = [
        lambda net, h, x, at=at, name=name: torch.tanh(FLAGGED[name](net, h, net.flags[at]))
        for at, name in enumerate(names)
    ]
    return Net(*places).eval()


def replaced(name, value):
    return lambda net: setattr(net.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], value())


COUPLED = "a centred gradient"
CHANGES = {
    **{f"flag: {name}": lambda net: net.flags.__setitem__(0, 1) for name in FLAGGED},
    "a hook": lambda net: net.second.register_forward_hook(lambda *args: 2.0 * args[2]),
    "a shared layer": lambda net: setattr(net, "third", net.first),
    "a shared matrix": lambda net: setattr(net.second, "weight", net.first.weight),
    "a layer": replaced("third", linear),
    "a head": replaced("head", lambda: linear(CLASSES)),
    "a parameter": replaced("third.weight", lambda: nn.Parameter(torch.randn(WIDTH, WIDTH).double())),
    "no bias": replaced("third.bias", lambda: None),
    "one layer more": replaced("head", lambda: nn.Sequential(linear(), nn.Tanh(), linear(CLASSES))),
    "a buffer": replaced("table", lambda: torch.ones(6, WIDTH).double()),
    "frozen": lambda net: net.first.requires_grad_(requires_grad=False),
    "thawed": lambda net: net.third.requires_grad_(requires_grad=True),
    "a halved gradient": lambda net: net.first.weight.register_hook(lambda gradient: gradient * 0.5),
    COUPLED: lambda net: net.second.register_full_backward_hook(
        lambda module, given, got: (given[0] - given[0].mean(0),)
    ),
}


def changing(change):
    net = flagged(change.removeprefix("flag: ")) if change.startswith("flag") else flagged("no offset")
    net.third.requires_grad_(change != "thawed")
    return net


def check_fresh(curator, model, given, loss=LOSS, **options):
    """Compare scores with those of a curator that has seen no batch; both may refuse."""
    fresh = curated(model, curator.validation, loss, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = fresh.score(*given)[1].scores
        except ValueError:
            with pytest.raises(ValueError):  # noqa: PT011 # by whatever words
                curator.score(*given)
            return False
        torch.testing.assert_close(curator.score(*given)[1].scores, expected, rtol=1e-9, atol=1e-12)
    return True


@pytest.mark.parametrize("estimator", ["lai", "ghost", "exact"])
@pytest.mark.parametrize("change", CHANGES)
def test_scores_follow_a_changed_model(change, estimator):
    net = changing(change)
    curator = curated(net, batch(9), estimator=estimator)
    for step in range(3):
        curator.score(*batch(step))
    CHANGES[change](net)
    for step in range(3, 6):
        assert check_fresh(curator, net, batch(step), estimator=estimator) == (change != COUPLED)


@pytest.mark.parametrize("backward", ["kept", "whole", "selective"])
@pytest.mark.parametrize("change", ["a shared layer", "no bias", "flag: another depth"])
def test_updates_follow_a_changed_model(change, backward):
    net = changing(change)
    curator = curated(net, batch(9), lr=0.0, backward=backward)
    for step in range(4):
        if step == 2:
            CHANGES[change](net)
        inputs, targets = batch(step)
        weights = curator.step(inputs, targets).weights
        parameters = [one for one in net.parameters() if one.requires_grad]
        loss = (weights * LOSS(net(inputs), targets)).sum()
        expected = torch.autograd.grad(loss, parameters, allow_unused=True)
        for one, gradient in zip(parameters, expected, strict=True):
            if gradient is not None:
                torch.testing.assert_close(one.grad, gradient, rtol=1e-9, atol=1e-12)


class Cached(nn.Module):
    """Keeps a gain for eval mode: in an attribute, in a buffer, or in the weights, which is refused."""

    def __init__(self, where):
        super().__init__()
        self.body, self.head, self.where, self.cache = nn.Linear(4, 6), nn.Linear(6, 3), where, None
        self.gain = nn.Parameter(torch.rand(6) + 0.5)
        self.register_buffer("kept", torch.zeros(6))
        self.double()

    def train(self, mode=True):
        if mode:
            self.cache = None
        elif self.where == "buffer":
            self.kept.data.copy_(self.gain.detach() * 2)
        elif self.where == "weights" and self.training:
            self.body.weight.data *= 2.0
        return super().train(mode)

    def forward(self, inputs):
        if self.cache is None and not self.training:
            self.cache = self.gain * 2
        gains = {"attribute": self.cache, "buffer": self.kept}
        gain = self.gain * 2 if self.training else gains.get(self.where, self.gain)
        return self.head(torch.tanh(self.body(inputs) * gain))


@pytest.mark.parametrize("estimator", ["lai", "ghost", "exact", "midpoint"])
@pytest.mark.parametrize("where", ["attribute", "buffer"])
def test_models_with_modes_of_their_own(where, estimator):
    model, given = Cached(where), data(6)
    curator = curated(model, data(5), estimator=estimator)
    for _ in range(2):
        before = copy.deepcopy(model.state_dict())
        assert check_fresh(curator, model, given, estimator=estimator)
        torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
        curator.step(*given)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("estimator", ["lai", "exact"])
def test_modes_that_write_parameters_are_refused(estimator):
    model = Cached("weights")
    curator, before = curated(model, data(5), estimator=estimator), copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"train\(\) and eval\(\) that leave parameters as they are, .*body"):
        curator.step(*data(6))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
