"""What the last layer's record, or a gradient that is asked for, does not tell: right, or refused by name."""

import copy
import functools

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch import support
from tests.lai_torch.coupling import EACH
from tests.lai_torch.support import LOSS, by_autograd, data
from tests.support.torch_modules import held, holding

OF_LAYERS = ("lai", "lli", "preconditioned_lai", "calibrated_lai")


@holding(
    lambda between=None, behind=None: held(
        body=nn.Linear(4, 6),
        head=nn.Linear(6, 3),
        block=nn.Sequential(nn.Linear(6, 6), nn.Tanh()),
        end=nn.Identity(),
        between=between,
        behind=behind,
    )
)
def make_net(own, inputs):
    """Apply two layers, with something between them, and something behind."""
    hidden = torch.tanh(own.body(inputs))
    hidden = own.block(hidden) if own.between is None else own.between(own, hidden)
    outputs = own.head(hidden)
    return own.end(outputs if own.behind is None else own.behind(own, outputs))


def net(between=None, behind=None):
    torch.manual_seed(0)
    return make_net(between, behind).double()


def curated(model, loss, estimator, **options):
    torch.manual_seed(1)
    return support.curated(model, data(5), loss, 0.5, estimator=estimator, **options)


def masked(gradient):
    return gradient * (torch.arange(gradient.shape[-1]) % 2)


def clipped(gradient, at=0.01):
    return gradient.clamp(-at, at)


HOOKS = {
    "masks a weight": (lambda m: m.head.weight.register_hook(masked)),
    "masks a bias": (lambda m: m.head.bias.register_hook(masked)),
    "clips": (lambda m: m.head.weight.register_hook(clipped)),
    "clips far away": (lambda m: m.head.weight.register_hook(functools.partial(clipped, at=50.0))),
    "clips a norm": (lambda m: m.head.weight.register_hook(lambda g: g / g.norm().clamp(min=1e-3))),
}
"""Hooks that change the gradient of the last layer's parameters."""


def last_scores(model, loss, validation, batch):
    """Return the inner products of the last layer's gradients, one reverse pass a sample."""
    twin = copy.deepcopy(model).requires_grad_(requires_grad=False)
    twin.head.requires_grad_(requires_grad=True)
    return by_autograd(twin, validation, batch, loss)


def hooking(hook):
    return lambda model: (hook(model), LOSS)[1]


def penalised(penalty):
    return lambda model: lambda outputs, targets: LOSS(outputs, targets) + penalty(model)


PENALTIES = {
    "a square": penalised(lambda m: m.head.weight.square().sum()),
    "a bias": penalised(lambda m: m.head.bias.abs().sum()),
    "of a sample": lambda m: lambda o, t: LOSS(o, t) + (t + 1.0) * m.head.weight.square().mean(),
    "the layer again": lambda m: lambda o, t: LOSS(o + m.head(m.head.weight.mean(0)), t),
}


def test_a_penalty_is_none_of_the_last_layer_where_others_or_only_training_read_it():
    torch.manual_seed(2)
    model, batch = net(), data(6)
    of_others = penalised(lambda m: m.body.weight.square().sum())(model)
    training = lai_torch.Kept(auxiliary=lambda outputs, targets: model.head.weight.square().sum())
    for loss, options in ((of_others, {}), (LOSS, {"backward": training})):
        curator = curated(model, loss, "lli", **options)
        expected = last_scores(model, loss, curator.validation, batch)
        torch.testing.assert_close(curator.step(*batch).scores, expected)


OTHERS = {
    "a closure": lambda head: lambda o, t: LOSS(head(o), t),
    "beside": lambda head: lambda o, t: LOSS(o, t) + functional.cross_entropy(head(o), t, reduction="none"),
}


MISUSES = {
    **{
        name: (r"a hook changes the gradient of 'head\.(weight|bias)'", ("lai", "lli"), hooking(hook))
        for name, hook in HOOKS.items()
    },
    **{
        f"{name} as a penalty": (r"the loss reads 'head\.|the loss depends on 'head", OF_LAYERS, penalty)
        for name, penalty in PENALTIES.items()
    },
    **{
        f"another head: {name}": (
            r"belongs to neither the model nor the loss|not registered by|reads 'head\.weight'",
            (*EACH, *(("whole", "selective") if name == "a closure" else ())),
            lambda model, make=make: make(nn.Linear(3, 3).double()),
        )
        for name, make in OTHERS.items()
    },
}
"""By the words of the refusal, who refuses, and what makes the mistake in a model and returns a loss."""


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", MISUSES)
def test_what_a_record_does_not_tell_is_refused_when_it_comes(name, later):
    words, takers, mistake = MISUSES[name]
    for taker in takers:
        model, loss = net(), [LOSS]
        options = {"backward": taker} if taker in {"whole", "selective"} else {}
        estimator = "lai" if options else taker
        curator = curated(model, lambda o, t, loss=loss: loss[0](o, t), estimator, **options)
        if later:
            curator.step(*data(6))
        loss[0] = mistake(model)
        with pytest.raises(ValueError, match=words):
            curator.step(*data(6))


@pytest.mark.parametrize("estimator", ["lai", "lli"])
def test_frozen_heads_and_those_of_a_loss_are_scored(estimator):
    head = nn.Linear(3, 3).double()

    @holding(lambda: held(head=head))
    def make_headed(own, outputs, targets):
        return LOSS(own.head(outputs), targets)

    assert curated(net(), make_headed(), estimator).step(*data(6)).scores.isfinite().all()
    head.requires_grad_(False)
    assert curated(net(), OTHERS["a closure"](head), estimator).step(*data(6)).scores.isfinite().all()
