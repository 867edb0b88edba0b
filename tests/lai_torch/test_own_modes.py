"""Models with a `train()` or `eval()` of their own: called as a user would call them, or refused."""

import itertools
import types

import lai_torch
import pytest
import torch
from torch import nn

from tests.lai_torch.support import LOSS, data, sgd
from tests.support.torch_modules import held, holding

ESTIMATORS = ("lai", "lli", "ghost", "exact", "midpoint", "preconditioned_lai", "calibrated_lai", "gate_lai")


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


class DropsWhenTraining(Gained):
    def train(self, mode=True):
        if mode:
            self.cache = None
        return super().train(mode)


class DropsWhenEvaluating(Gained):
    def eval(self):
        self.cache = None
        return super().eval()


class WithoutArguments(Gained):
    def train(self):
        self.cache = None
        return super().train()

    def eval(self):
        for module in self.modules():
            module.training = False
        return self


class Table(Gained):
    """Keeps in a dictionary, as LeViT does."""

    def __init__(self):
        super().__init__()
        self.cache = {}

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if mode and self.cache:
            self.cache = {}

    def kept(self):
        if self.training:
            return self.gain * 2
        return self.cache.setdefault("gain", self.gain * 2)


class Detached(DropsWhenTraining):
    def kept(self):
        return super().kept() if self.training else super().kept().detach()


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


@holding(
    lambda: held(parts=nn.ModuleList([nn.Sequential(Table()), nn.ModuleDict({"one": DropsWhenTraining()})]))
)
def make_within(own, inputs):
    """Apply modules with modes of their own, in a list, in a model without."""
    return own.parts[1]["one"](torch.cat([own.parts[0](inputs), inputs[:, :1]], 1))


class Around(nn.Sequential):
    """Has modes of its own, and a plain part in which a module has some too."""

    def __init__(self):
        super().__init__(nn.Sequential(nn.Sequential(Buffered())))

    def train(self, mode=True):
        return super().train(mode)


class OfAChild(nn.Module):
    """Drops what a child keeps."""

    def __init__(self):
        super().__init__()
        self.child = Gained()
        self.child.kept = lambda: self.child.gain * 2 if self.child.training else self._found()

    def _found(self):
        if self.child.cache is None:
            self.child.cache = self.child.body.bias.detach() * 2
        return self.child.cache

    def train(self, mode=True):
        self.child.cache = None
        return super().train(mode)

    def forward(self, inputs):
        return self.child(inputs)


def by_attribute():
    model = Gained()

    def train(self, mode=True):
        self.cache = None
        return nn.Module.train(self, mode)

    model.train = types.MethodType(train, model)
    return model


class Resampled(Gained):
    """Draws its noise when training begins, and freezes a layer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("noise", torch.randn(6))

    def train(self, mode=True):
        super().train(mode)
        if mode:
            self.noise.copy_(torch.randn(6))
        self.body.requires_grad_(not mode)
        return self

    def kept(self):
        return self.gain + (self.noise if self.training else 0.0)


class KeepsAMode(Gained):
    """Holds a normalisation in eval mode, whatever comes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def kept(self):
        return self.norm(self.gain.expand(2, -1))[0] + 1.0


RIGHT = {
    "drops when training": DropsWhenTraining,
    "drops when evaluating": DropsWhenEvaluating,
    "without arguments": WithoutArguments,
    "a table": Table,
    "detached": Detached,
    "a buffer": Buffered,
    "within others": make_within,
    "around": Around,
    "of a child": OfAChild,
    "by an attribute": by_attribute,
    "resampled": Resampled,
    "keeps a mode": KeepsAMode,
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


class Exchanged(Gained):
    """Evaluates with other weights."""

    def __init__(self):
        super().__init__()
        self.other = [torch.randn(6, 4, dtype=torch.float64)]

    def train(self, mode=True):
        if mode != self.training:
            self.body.weight.data, self.other[0] = self.other[0], self.body.weight.data
        return super().train(mode)


class Replaced(Gained):
    """Evaluates with another layer."""

    def __init__(self):
        super().__init__()
        self.layers = [self.body, nn.Linear(4, 6).double()]

    def train(self, mode=True):
        self.body = self.layers[0 if mode else 1]
        return super().train(mode)


REFUSED = {"merged": Merged, "exchanged": Exchanged, "replaced": Replaced}


def made(make):
    torch.manual_seed(0)
    model = make().double()
    return model, sgd(model, 1.0)


def state(model):
    flags = [(module.training, list(module._backward_hooks)) for module in model.modules()]
    trains = [parameter.requires_grad for parameter in model.parameters()]
    return flags, trains, torch.get_rng_state(), [one.clone() for one in model.state_dict().values()]


def is_same(one, other):
    return one[:2] == other[:2] and torch.equal(one[2], other[2]) and all(map(torch.equal, one[3], other[3]))


NO_CHAINS = {("within others", "gate_lai"), ("keeps a mode", "gate_lai")}
PAIRS = [pair for pair in itertools.product(RIGHT, ESTIMATORS) if pair not in NO_CHAINS]


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
        moments = {name: part for name, part in curator.state_dict().items() if name != "summary"}
        second.load_state_dict(moments | {"summary": second.state_dict()["summary"]})
    torch.testing.assert_close(scores, second.score(*batch)[1].scores)


class Plainly(Gained):
    def kept(self):
        return self.body.bias.detach() * 2


def test_what_is_kept_is_dropped_where_parameters_are_moved_for_a_while():
    torch.manual_seed(3)
    known, batch = data(5), data(6)
    found = []
    for make in (OfAChild, Plainly):
        model = made(make)[0].eval()
        model(known[0])
        options = {"at": "midpoint", "learning_rate": 5.0}
        found.append(lai_torch.exact_scores(model, LOSS, known, batch, **options))
    torch.testing.assert_close(*found)


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
    class Stubborn(Gained):
        def train(self, mode=True):
            if not mode:
                raise RuntimeError(0)
            return super().train(mode)

    model, optimizer = made(Stubborn)
    with pytest.raises(RuntimeError):
        lai_torch.Curator(model, LOSS, optimizer, data(5)).step(*data(6))
    assert all(module.training for module in model.modules())
