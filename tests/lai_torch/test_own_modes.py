"""Models with a `train()` or `eval()` of their own: called as a user would call them, or refused."""

import copy
import itertools

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.support import LOSS, curated, data, sgd


class Gained(nn.Module):
    """Two layers with gains between them, which eval mode keeps."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.gain, self.cache = nn.Parameter(torch.rand(6) + 0.5), None

    def kept(self):
        if self.training:
            return self.gain * 2
        if self.cache is None:
            self.cache = self.gain * 2
        return self.cache

    def forward(self, inputs):
        return self.head(torch.tanh(self.body(inputs) * self.kept()))


def plain_train(self, mode=True):
    return nn.Module.train(self, mode)


def gained(train=plain_train, **own):
    """Return a class of such modules with a `train()` of its own, and other methods."""
    return type("Own", (Gained,), {"train": train, **own})


def drops(self, mode=True):
    if mode:
        self.cache = None
    return nn.Module.train(self, mode)


class Buffered(Gained):
    """Keeps in a buffer, which entering eval mode writes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept_gain", torch.zeros(6))

    def train(self, mode=True):
        super().train(mode)
        if not mode:
            self.kept_gain.data.copy_(self.gain.detach() * 2)
        return self

    def kept(self):
        return self.gain * 2 if self.training else self.kept_gain


RIGHT = {
    "drops when training": gained(drops),
    "a buffer": Buffered,
}


class Merged(Gained):
    """Merges a product of low rank into a weight in eval mode: first one of zeros."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(6, 2))
        self.merged = False

    def train(self, mode=True):
        if mode == self.merged:
            self.body.weight.data += (-1.0 if mode else 1.0) * self.up @ self.down
            self.merged = not mode
        return super().train(mode)

    def forward(self, inputs):
        more = 0.0 if self.merged else inputs @ self.down.T @ self.up.T
        return self.head(torch.tanh(self.body(inputs) + more))


REFUSED = {"merged": Merged}


def made(make):
    torch.manual_seed(0)
    model = make().double()
    return model, sgd(model, 1.0)


def state(model):
    flags = [(module.training, list(module._backward_hooks)) for module in model.modules()]
    trains = [parameter.requires_grad for parameter in model.parameters()]
    return flags, trains, [torch.get_rng_state(), *map(torch.clone, model.state_dict().values())]


def is_same(one, other):
    return one[:2] == other[:2] and all(map(torch.equal, one[2], other[2]))


PAIRS = [*itertools.product(RIGHT, ("lai", "ghost", "exact", "midpoint"))]
PAIRS += [("a buffer", name) for name in ("lli", "preconditioned_lai", "calibrated_lai", "gate_lai")]


@pytest.mark.parametrize(("name", "estimator"), PAIRS)
def test_scores_are_those_of_the_model_as_it_is_now(name, estimator):
    torch.manual_seed(3)
    known, batch = data(5), data(6)
    model, optimizer = made(RIGHT[name])
    curator = lai_torch.Curator(model, LOSS, optimizer, known, estimator=estimator)
    untouched = state(model)
    for _ in range(2):
        before = state(model)
        scores = curator.score(*batch)[1].scores
        assert is_same(state(model), before)
        curator.step(*batch)
    assert state(model)[:2] == untouched[:2]
    scores = curator.score(*batch)[1].scores
    fresh, own = made(RIGHT[name])
    fresh.load_state_dict(model.state_dict())
    own.load_state_dict(optimizer.state_dict())
    second = lai_torch.Curator(fresh, LOSS, own, known, estimator=estimator)
    if estimator == "preconditioned_lai":
        second.load_state_dict(curator.state_dict() | {"side": None})
    torch.testing.assert_close(scores, second.score(*batch)[1].scores)


@pytest.mark.parametrize("estimator", ["lai", "exact"])
@pytest.mark.parametrize("name", REFUSED)
def test_modes_that_write_parameters_are_refused(name, estimator):
    torch.manual_seed(3)
    model, optimizer = made(REFUSED[name])
    curator, batch = lai_torch.Curator(model, LOSS, optimizer, data(5), estimator=estimator), data(6)
    before = state(model)
    with pytest.raises(ValueError, match=r"train\(\) and eval\(\) that leave parameters as they are, .*body"):
        curator.step(*batch)
    assert is_same(state(model), before)


def test_a_model_that_cannot_be_put_in_eval_mode_says_so():
    def stubborn(self, mode=True):
        if not mode:
            raise RuntimeError(0)
        return nn.Module.train(self, mode)

    model, optimizer = made(gained(stubborn))
    with pytest.raises(RuntimeError):
        lai_torch.Curator(model, LOSS, optimizer, data(5)).step(*data(6))
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("estimator", ["lai", "exact"])
@pytest.mark.parametrize("backward", ["kept", "whole"])
def test_cached_weights_are_trained_as_by_plain_torch(estimator, backward):
    backward = "kept" if estimator == "exact" else backward
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    nn.utils.parametrizations.weight_norm(model[0])
    twin, batches = copy.deepcopy(model), [data(8) for _ in range(3)]
    options = {"estimator": estimator, "backward": backward, "policy": lai.keep_all}
    curator, plain = curated(model, data(6), **options), sgd(twin)
    for inputs, targets in batches:
        with nn.utils.parametrize.cached():
            curator.step(inputs, targets)
        plain.zero_grad()
        LOSS(twin(inputs), targets).mean().backward()
        plain.step()
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
