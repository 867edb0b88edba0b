"""Scores are in full precision unless bfloat16 is asked for; a model that computes in few digits is named."""

import copy
import functools
import itertools
import re

import lai_torch
import pytest
import torch
from accelerate import Accelerator
from lai_torch import LAI, LLI, CalibratedLAI, Ghost, PreconditionedLAI
from torch import nn

import lai_core as lai
from tests.lai_torch.support import LOSS, by_autograd
from tests.support.torch_modules import held, holding

LOW = torch.bfloat16
HALF = functools.partial(lai.keep_top, fraction=0.5)
ESTIMATORS = [LAI, Ghost, LLI, PreconditionedLAI, CalibratedLAI]


@holding(lambda model: held(model=model))
def make_own(own, inputs):
    """Apply a model that switches autocast on by itself, and returns float32."""
    with torch.autocast("cpu", LOW):
        outputs = own.model(inputs)
    return outputs.float()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8), nn.Linear(8, 4))


def batch(samples, seed):
    torch.manual_seed(seed)
    return torch.randn(samples, 6), torch.randint(4, (samples,))


def curator(model, estimator, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lai_torch.Curator(model, LOSS, optimizer, batch(9, 1), estimator=estimator, **options)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scores_are_those_of_a_model_that_computes_so_by_itself(kind):
    model = network()
    own = curator(make_own(copy.deepcopy(model)), kind())
    asked, full = curator(model, kind(autocast=LOW)), curator(copy.deepcopy(model), kind())
    for seed in (2, 3, 4):  # the first proves, the second goes by what it found, the third by a plan
        given = batch(12, seed)
        with pytest.warns(UserWarning, match="by itself") if seed == 2 else pytest.MonkeyPatch.context():
            expected = own.score(*given)[1]
        report, exact = asked.score(*given)[1], full.score(*given)[1]
        assert torch.equal(report.scores, expected.scores)
        assert torch.equal(report.losses, expected.losses)
        assert not torch.equal(report.scores, exact.scores)
        assert (report.scores - exact.scores).norm() < 0.05 * exact.scores.norm()


def test_what_is_kept_is_trained_on_in_the_parameters_own_type():
    model = network()
    start, given = copy.deepcopy(model), batch(12, 2)
    report = curator(model, LAI(autocast=LOW)).step(*given)
    losses = LOSS(start(given[0]), given[1])
    gradients = torch.autograd.grad((report.weights * losses).sum(), list(start.parameters()))
    for now, before, gradient in zip(model.parameters(), start.parameters(), gradients, strict=True):
        assert torch.allclose(now, before - 0.1 * gradient, atol=1e-7)
    assert "forward" not in vars(model)


@pytest.mark.parametrize("kind", [LAI, LLI, PreconditionedLAI, CalibratedLAI])
def test_a_selective_pass_scores_and_trains_in_it(kind):
    """It scores as `kept` does in that type, and trains as that does in it: plain autograd under autocast."""
    models = [network() for _ in range(3)]
    selective = curator(models[0], kind(autocast=LOW), backward="selective", policy=HALF)
    kept = curator(models[1], kind(autocast=LOW), backward=lai_torch.Kept(autocast=LOW), policy=HALF)
    plain = torch.optim.SGD(models[2].parameters(), lr=0.1)
    for seed in (2, 3, 4):
        given = batch(12, seed)
        report, other = selective.step(*given), kept.step(*given)
        assert (report.backward, other.backward) == ("selective", "kept")
        torch.testing.assert_close(report.scores, other.scores, rtol=1e-2, atol=1e-2)
        plain.zero_grad()
        with torch.autocast("cpu", LOW):
            outputs = models[2](given[0]).float()
        (LOSS(outputs, given[1]) * report.weights).sum().backward()
        plain.step()
        for found, expected in zip(models[0].parameters(), models[2].parameters(), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)
            assert found.dtype is torch.float32


EVERY = (
    "ghost",
    "lai",
    "lli",
    "preconditioned_lai",
    "calibrated_lai",
    "gate_lai",
    "exact",
    "midpoint",
    lai_torch.LAI(sketch=4),
)


def wide():
    widths = (32, 64, 48, 10)
    layers = [nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def many(n):
    return torch.randn(n, 32), torch.arange(n) % 10


@pytest.mark.parametrize("source", ["set", "batch+self"])
@pytest.mark.parametrize("estimator", EVERY, ids=str)
def test_a_curator_scores_under_autocast_as_outside(estimator, source):
    if source != "set" and estimator == "calibrated_lai":
        source = "set"  # it is fitted on one
    model, validation, training = wide(), many(20), many(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def scores():
        curator = lai_torch.Curator(
            model,
            LOSS,
            optimizer,
            validation if source == "set" else source,
            estimator=estimator,
            generator=torch.Generator().manual_seed(0),
        )
        return curator.score(*training)[1].scores

    expected = scores()
    with torch.autocast("cpu", LOW):
        got = scores()
    assert got.dtype == expected.dtype
    assert torch.equal(got, expected)


@pytest.mark.parametrize("estimator", ["ghost", "exact"])
def test_a_model_of_mixed_precision_is_named_and_scored_as_the_function_that_trains(estimator):
    plain, validation, training = wide(), many(20), many(16)
    model = Accelerator(mixed_precision="bf16", cpu=True).prepare(copy.deepcopy(plain))
    curator = lai_torch.Curator(model, LOSS, None, validation, estimator=estimator)
    with pytest.warns(UserWarning, match=re.escape("this one switches on autocast (bfloat16) by itself")):
        scores = curator.score(*training)[1].scores.double()
    own, other = (by_autograd(each, validation, training).double() for each in (model, plain))
    error, apart = (float((scores - each).abs().max() / each.abs().max()) for each in (own, other))
    assert error < 0.01  # the oracle's own products are in bfloat16
    assert error < 0.3 * apart


def test_a_forward_function_of_the_users_own_is_put_back():
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
