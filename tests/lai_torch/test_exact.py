"""Exact scores against per-sample gradients and differenced optimizers."""

import copy
import itertools

import lai_torch
import pytest
import torch
from lai_torch._exact import directional
from lai_torch._exact.optimizer_step import measure_step
from torch import nn

from tests.lai_torch import support
from tests.lai_torch.support import LOSS, by_autograd, data
from tests.support.torch_functions import Custom
from tests.support.torch_modules import Part, held, holding

N = 5


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3)).double()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", [KeyError, NotImplementedError, RuntimeError])
def test_a_models_own_errors_come_up(error, late):
    """On the training batch alone; a custom function without forward mode may stand before."""

    def failing(own, inputs):
        hidden = Custom.apply(own.body(inputs), 2.0) if late else own.body(inputs)
        return hidden if len(inputs) != N else fail(hidden)

    def fail(hidden):
        if error is RuntimeError:
            return hidden @ hidden
        raise error("the model's own")

    message = "mat1 and mat2 shapes cannot be multiplied" if error is RuntimeError else "the model's own"
    with pytest.raises(error, match=message) as raised:
        lai_torch.exact_scores(Part(failing, body=nn.Linear(4, 3).double()), LOSS, data(7), data(N))
    assert "fail" in [entry.name for entry in raised.traceback]
    assert raised.value.__context__ is None


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "ascent": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.95), eps=1e-3),
    "adam_l2": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.3, eps=1e-3),
    "adam_ascent": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.3, eps=1e-3, maximize=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.3, eps=1e-3),
    "adamw_decoupled": lambda p: torch.optim.Adam(
        p, lr=0.1, weight_decay=0.3, eps=1e-3, decoupled_weight_decay=True
    ),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, eps=1e-3),
    "groups": lambda p: torch.optim.SGD(
        [{"params": list(p)[:2], "lr": 0.05, "momentum": 0.5}, {"params": list(p)[2:]}], lr=0.1
    ),
    "some": lambda p: torch.optim.Adam(list(p)[2:], lr=0.1, eps=1e-3),
}


def loss_after_a_step(model, optimizer, validation, training, weights, max_norm):
    """Return the validation loss after the real optimizer's step on weighted samples, on copies."""
    twin_model, twin_optimizer = copy.deepcopy((model, optimizer))
    twin_optimizer.zero_grad()
    (LOSS(twin_model(training[0]), training[1]) * weights).sum().backward()
    if max_norm is not None:
        nn.utils.clip_grad_norm_(
            [p for group in twin_optimizer.param_groups for p in group["params"]], max_norm
        )
    twin_optimizer.step()
    with torch.no_grad():
        return LOSS(twin_model(validation[0]), validation[1]).sum()


@holding(
    lambda: held(filter=nn.Parameter(torch.randn(3, dtype=torch.complex128)), head=nn.Linear(4, 3).double())
)
def spectral(own, inputs):
    """Apply a filter of complex parameters before a head."""
    return own.head(torch.fft.irfft(torch.fft.rfft(inputs) * own.filter, n=4))


CASES = [(network, name, *rest) for name in OPTIMIZERS for rest in itertools.product((0, 2), ("mean", "sum"))]
CASES.append(pytest.param(spectral, "amsgrad", 1, "mean", marks=pytest.mark.quick))


@pytest.mark.parametrize("at", ["start", "midpoint"])
@pytest.mark.parametrize("max_norm", [None, 0.05, 100.0])
@pytest.mark.parametrize(("make", "name", "steps", "reduction"), CASES)
def test_the_optimizers_own_step_is_differentiated(make, name, steps, reduction, max_norm, at):
    """Compared with central differences of the step, sample by sample, per unit of learning rate."""
    model, validation, training = make(), data(7), data(N)
    optimizer = OPTIMIZERS[name]([*model.parameters()])
    for _ in range(steps):
        optimizer.zero_grad()
        LOSS(model(data(9)[0]), torch.randint(3, (9,))).mean().backward()
        optimizer.step()
    if name == "adam" and steps:  # rows that were never seen: both moments zero, and no gradient now
        model[0].weight.data[:, 0] = 0.0
        for side in (validation, training):
            side[0][:, 0] = 0.0
        for key in ("exp_avg", "exp_avg_sq"):
            optimizer.state[model[0].weight][key][:, 0] = 0.0
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    options = {"optimizer": optimizer, "reduction": reduction, "max_norm": max_norm, "at": at}
    found = lai_torch.exact_scores(model, LOSS, validation, training, **options)
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)
    weight, h = (1 / N if reduction == "mean" else 1.0) * (0.5 if at == "midpoint" else 1.0), 1e-6
    for j in range(N):
        shift = h * (torch.arange(N) == j).double()
        up, down = (
            loss_after_a_step(model, optimizer, validation, training, weight + sign * shift, max_norm)
            for sign in (1, -1)
        )
        assert float(found[j]) == pytest.approx(float(-(up - down) / (2 * h) / 0.1), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_curators_take_an_optimizers_midpoint(name):
    model, validation, training = network(), data(7), data(N)
    optimizer = OPTIMIZERS[name]([*model.parameters()])
    LOSS(model(validation[0]), validation[1]).mean().backward()
    optimizer.step()
    expected = lai_torch.exact_scores(model, LOSS, validation, training, at="midpoint", optimizer=optimizer)
    assert_midpoints(lai_torch.Midpoint(of="optimizer"), model, optimizer, validation, training, optimizer)
    # SGD's steps at the optimizer's rates
    rates = [{"params": group["params"], "lr": group["lr"]} for group in optimizer.param_groups]
    plain = torch.optim.SGD(rates)
    assert_midpoints(lai_torch.Midpoint(), model, optimizer, validation, training, plain, None)
    if name == "sgd":  # the step of a rate alone, whose Shapley values tests of the core have
        found = lai_torch.exact_scores(model, LOSS, validation, training, at="midpoint", learning_rate=0.1)
        torch.testing.assert_close(found, expected)


def assert_midpoints(estimator, model, optimizer, validation, training, stepping, *clipped):
    """Compare a curator's scores with those of a step; a curator clips what its own optimizer steps on."""
    for max_norm in (None, 0.05):
        options = {"at": "midpoint", "optimizer": stepping, "max_norm": (*clipped, max_norm)[0]}
        expected = lai_torch.exact_scores(model, LOSS, validation, training, **options)
        given = model, LOSS, optimizer, validation
        curator = lai_torch.Curator(*given, estimator=estimator, max_norm=max_norm)
        torch.testing.assert_close(curator.score(*training)[1].scores, expected)


@holding(lambda: held(body=nn.Linear(4, 4), near=nn.Linear(4, 3), far=nn.Linear(4, 3)))
def two_heads(own, inputs):
    """One head for a batch, another for one far away."""
    return (own.far if inputs[0, 0] > 50 else own.near)(own.body(inputs))


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw"])
def test_optimizers_leave_unused_parameters(name):
    """Those of the other head, whose `.grad` is None: neither moments nor decay move them."""
    model, training = two_heads().double(), data(N)
    validation, optimizer = (training[0] + 100.0, training[1]), OPTIMIZERS[name]([*model.parameters()])
    for _ in range(2):
        optimizer.zero_grad()
        (LOSS(model(training[0]), training[1]) + LOSS(model(validation[0]), training[1])).mean().backward()
        optimizer.step()
    optimizer.zero_grad()
    found = lai_torch.exact_scores(model, LOSS, validation, training, optimizer=optimizer)
    for j in range(N):
        shift = 1e-6 * (torch.arange(N) == j).double()
        up, down = (
            loss_after_a_step(model, optimizer, validation, training, 1 / N + sign * shift, None)
            for sign in (1, -1)
        )
        assert float(found[j]) == pytest.approx(float(-(up - down) / 2e-6 / 0.1), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_measured_step_lengths(name):
    model = network()
    optimizer = OPTIMIZERS[name]([*model.parameters()])
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    for scale in (1.0, 1.0, 50.0, 0.1):
        LOSS(model(data(N)[0] * scale), data(N)[1]).mean().backward()
        before, length = [one.detach().clone() for one in model.parameters()], measure_step(optimizer)
        optimizer.step()
        optimizer.zero_grad()
        moved = [after - one for after, one in zip(model.parameters(), before, strict=True)]
        assert length == pytest.approx(float(torch.nn.utils.get_total_norm(moved)), rel=1e-10)


def test_tensors_of_inference_mode_are_scored():
    model = support.network()
    with torch.inference_mode():
        sides = data(9), data(6)
        found = lai_torch.exact_scores(model, LOSS, *sides)
    sides = [tuple(tensor.clone() for tensor in side) for side in sides]
    torch.testing.assert_close(found, by_autograd(model, *sides))


def test_infinite_samples_spoil_no_other():
    def rooted(outputs, targets):
        return LOSS(outputs, targets) + outputs.square().sum(1).sqrt() * 0.1

    model, validation, (inputs, targets) = support.network(), data(9), data(6)
    model[2].bias.data.zero_()
    model[0].bias.data.zero_()
    inputs[1] = torch.nan
    inputs[4] = 0.0  # the root of nothing has a finite value, and no slope
    found = lai_torch.exact_scores(model, rooted, validation, (inputs, targets), explain=True)
    expected = by_autograd(model, validation, (inputs, targets), rooted)
    assert torch.isnan(found.scores).tolist() == [j in {1, 4} for j in range(6)]
    torch.testing.assert_close(found.scores, expected, equal_nan=True)


@pytest.mark.parametrize("wrong", ["scale", "one sample", "order", "nothing"])
def test_wrong_ways_are_not_taken(wrong, monkeypatch):
    def broken(function, direction, batch):
        scores, losses = directional.forward(function, direction, batch)
        if wrong == "one sample":
            return torch.where(torch.arange(len(scores)) == 2, scores * (1 + 1e-8), scores), losses
        changed = {"scale": scores * (1 + 1e-8), "order": scores.roll(1), "nothing": torch.zeros_like(scores)}
        return changed[wrong], losses

    model, validation, training = support.network(), data(9), data(6)
    monkeypatch.setitem(directional.METHODS, "forward", broken)
    found = lai_torch.exact_scores(model, LOSS, validation, training, explain=True)
    torch.testing.assert_close(found.scores, by_autograd(model, validation, training))
    assert found.method == "double backward"
    assert found.reason.startswith("forward: off by ")
