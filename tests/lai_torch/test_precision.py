"""Scores are in full precision unless bfloat16 is asked for; a model that computes in few digits is named."""

import copy

import lai_torch
import pytest
import torch
from lai_torch import LAI, LLI, CalibratedLAI, Ghost, PreconditionedLAI
from torch import nn

from tests.lai_torch.support import HALF, LOSS, in_bfloat16

LOW = torch.bfloat16
ESTIMATORS = [LAI, Ghost, LLI, PreconditionedLAI, CalibratedLAI]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8), nn.Linear(8, 4))


def batch(samples, seed):
    torch.manual_seed(seed)
    return torch.randn(samples, 6), torch.randint(4, (samples,))


def curator(model, estimator, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return lai_torch.Curator(model, LOSS, optimizer, batch(9, 1), estimator=estimator, **options)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scores_under_the_models_autocast(kind):
    model = network()
    own = curator(in_bfloat16(copy.deepcopy(model)), kind())
    asked, full = curator(model, kind(autocast=LOW)), curator(copy.deepcopy(model), kind())
    for seed in (2, 3, 4):  # the first proves, the second goes by what it found, the third by a plan
        given = batch(12, seed)
        expected = own.score(*given)[1]
        report, exact = asked.score(*given)[1], full.score(*given)[1]
        assert torch.equal(report.scores, expected.scores)
        assert torch.equal(report.losses, expected.losses)
        assert not torch.equal(report.scores, exact.scores)
        assert (report.scores - exact.scores).norm() < 0.05 * exact.scores.norm()


@pytest.mark.parametrize("kind", [LAI, LLI, PreconditionedLAI, CalibratedLAI])
def test_selective_passes_under_autocast(kind):
    """It scores as `kept` does in that type, and trains as that does in it: plain autograd under autocast."""
    model, options = network(), {"estimator": kind(autocast=LOW), "policy": HALF}
    selective = curator(model, backward="selective", **options)
    kept = curator(copy.deepcopy(model), backward=lai_torch.KeptOptions(autocast=LOW), **options)
    for seed in (2, 3, 4):
        inputs, targets = batch(12, seed)
        report, other = selective.step(inputs, targets), kept.step(inputs, targets)
        assert (report.backward, other.backward) == ("selective", "kept")
        torch.testing.assert_close(report.scores, other.scores, rtol=1e-2, atol=1e-2)
        with torch.autocast("cpu", LOW):
            outputs = model(inputs).float()
        losses = (LOSS(outputs, targets) * report.weights).sum()
        expected = torch.autograd.grad(losses, [*model.parameters()])
        for one, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(one.grad, gradient, rtol=0, atol=2e-2)
            assert one.grad.dtype is torch.float32


def test_a_loss_may_have_fewer_digits():
    """Gradients to a parameter in float32 agree to its own digits, whatever the model computes in."""
    inputs, targets = batch(6, 1)
    loss = nn.Module()
    loss.scale = nn.Parameter(torch.ones(4))
    loss.forward = lambda outputs, targets: LOSS(outputs * loss.scale, targets)
    trace = lai_torch.trace(network().double(), loss, inputs.double(), targets, gradients="all")
    assert trace.layers[0].samples() == 6


def test_own_forward_functions_are_restored():
    model = network()
    plain = model.forward
    model.forward = lambda inputs: 2.0 * plain(inputs)
    own, made = model.forward, curator(model, LAI(autocast=LOW))
    made.step(*batch(12, 2))
    assert vars(model)["forward"] is own
    model.forward = lambda inputs: plain(inputs)[:, :3]
    with pytest.raises(Exception, match="Target 3 is out of bounds"):
        made.step(*batch(12, 2))
    assert "forward" in vars(model)
    assert vars(model)["forward"] is not own
