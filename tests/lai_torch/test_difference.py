"""Exact scores from two forward passes: as good as stated, on parameters as before, or refused."""

import re

import lai_torch
import pytest
import torch
from torch import nn

from tests.lai_torch.support import LOSS, data

METHOD = "difference"


def network(kind=torch.float32, *layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), *layers, nn.Linear(8, 3)).to(kind)


def sides(kind):
    return [(inputs.to(kind), targets) for inputs, targets in (data(9), data(6))]


def one_by_one(model, validation, training, kind=torch.float64):
    """Return inner products of gradients that are taken sample by sample, in double precision."""
    model = model.to(torch.float64)
    (inputs, targets), batch = validation, training

    def gradient(rows, labels):
        return torch.autograd.grad(LOSS(model(rows.double()), labels).sum(), list(model.parameters()))

    whole = gradient(inputs, targets)
    found = []
    for row, label in zip(*batch, strict=True):
        own = gradient(row[None], label[None])
        found.append(sum(float((a * b).sum()) for a, b in zip(own, whole, strict=True)))
    return torch.tensor(found, dtype=kind)


@pytest.mark.parametrize(("kind", "digits"), [(torch.float32, 1e-3), (torch.float64, 1e-8)])
def test_the_error_is_what_is_stated(kind, digits):
    model, (validation, training) = network(kind), sides(kind)
    before = [one.detach().clone() for one in model.parameters()]
    stream = torch.get_rng_state()
    found = lai_torch.exact_scores(model, LOSS, validation, training, method=METHOD, explain=True)
    assert all(map(torch.equal, before, model.parameters()))
    assert torch.equal(stream, torch.get_rng_state())
    expected = one_by_one(model, validation, training)
    scale = expected.square().mean().sqrt()
    error = float((found.scores.double() - expected).abs().max() / scale)
    stated = float(re.search(r"steps differ by (\S+) of the scores", found.reason).group(1))
    assert error <= 4 * stated < digits
    assert found.method == METHOD
    assert found.residual <= 4 * stated


def test_noise_is_the_same_on_both_sides():
    """Dropout draws its mask from a stream that is put back: the function is one."""
    model, (validation, training) = network(torch.float64, nn.Dropout(0.5)).train(), sides(torch.float64)
    torch.manual_seed(3)
    found = lai_torch.exact_scores(model, LOSS, validation, training, method=METHOD)
    torch.manual_seed(3)
    expected = lai_torch.exact_scores(model, LOSS, validation, training)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


class Steps(nn.Module):
    """Has a derivative in reverse mode alone: forward is a staircase."""

    def forward(self, inputs):
        return inputs + ((64 * inputs).round() / 64 - inputs).detach()


class Counts(nn.Module):
    """Computes something else at each call."""

    calls = 0

    def forward(self, inputs):
        self.calls += 1
        return inputs * (1.0 + 0.1 * self.calls)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Steps(), "difference: (neighbouring steps differ by|off by)"),
        (Counts(), "expected the same losses of the same batch"),
        (nn.BatchNorm1d(8), "expected every sample's loss and gradient to be its own"),
    ],
)
def test_what_makes_it_wrong_is_refused(layer, message):
    model = network(torch.float64, layer).train()
    with pytest.raises(ValueError, match=message):
        lai_torch.exact_scores(model, LOSS, *sides(torch.float64), method=METHOD)


def test_a_curator_pays_two_forward_passes_a_step():
    validation, training = sides(torch.float64)
    model = network(torch.float64)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    reports = []
    for estimator in (lai_torch.Exact(method=METHOD), lai_torch.Exact()):
        curator = lai_torch.Curator(model, LOSS, None, validation, estimator=estimator)
        reports.append([curator.score(*training)[1] for _ in range(2)][1])
        if estimator.method is not None:
            curator._scoring.summaries.refresh = 10**9
            calls.clear()
            reports[0] = curator.score(*training)[1]
            assert calls == [False, False]
    assert [report.method for report in reports] == [METHOD, "forward"]
    torch.testing.assert_close(reports[0].scores, reports[1].scores, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(reports[0].losses, reports[1].losses, rtol=1e-6, atol=1e-9)


def test_a_method_that_is_none_is_named():
    with pytest.raises(ValueError, match=r"method: expected one of .*'difference', got 'differences'; did"):
        lai_torch.Exact(method="differences")
