"""Gradient accumulation: every way of the backward pass adds its part, and steps with the last."""

import copy
import functools

import lai_torch
import pytest
import torch
from accelerate import Accelerator
from torch import nn

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import LOSS, sgd

N, PARTS = 6, 3
WAYS = ("selective", "whole", "kept")


def network():
    layers = nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)
    return nn.Sequential(*layers).double()


def data(n=N):
    return support.batch(n, 4)


def curated(model, validation, backward, policy, **options):
    return support.curated(model, validation, policy=policy, backward=backward, accumulate=PARTS, **options)


def steps_by_hand(model, batches, weights):
    """Take one plain step of SGD with momentum per `PARTS` batches, on weighted losses."""
    optimizer = sgd(model)
    for start in range(0, len(batches), PARTS):
        pairs = zip(batches[start : start + PARTS], weights[start : start + PARTS], strict=True)
        losses = (
            (torch.where(w > 0, LOSS(model(x.nan_to_num()), y), 0.0) * w).sum() / PARTS for (x, y), w in pairs
        )
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()


@pytest.mark.parametrize("backward", WAYS)
def test_parts_add_up_to_the_step_on_all_of_them(backward):
    model, validation = network(), data(20)
    twin, batches = copy.deepcopy(model), [data() for _ in range(2 * PARTS)]
    policy = functools.partial(lai.keep_top, fraction=0.5)
    curator = curated(model, validation, backward, policy)
    reports = [curator.step(*batch) for batch in batches]
    assert [report.updated for report in reports] == [False, False, True] * 2
    assert {report.backward for report in reports} == {backward}
    steps_by_hand(twin, batches, [report.weights for report in reports])
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


def spoiled():
    inputs, targets = data()
    inputs[2] = torch.nan
    return inputs, targets


CHOOSES = {  # which of the micro-batches of a step keeps something
    "first": (True, False, False),
    "last": (False, False, True),
    "none": (False, False, False),
    "all": (True, True, True),
}


@pytest.mark.parametrize("name", CHOOSES)
@pytest.mark.parametrize("backward", WAYS)
def test_parts_that_drop_everything_or_hold_nan_are_left_out(backward, name):
    keeps = iter(CHOOSES[name] * 2)

    def policy(scores):
        weights = lai.keep_top(scores, 0.5)
        return weights if next(keeps) else torch.zeros_like(weights)

    model, validation = network(), data(20)
    twin, batches = copy.deepcopy(model), [spoiled(), data(), data(), data(), spoiled(), data()]
    curator = curated(model, validation, backward, policy)
    reports = [curator.step(*batch) for batch in batches]
    assert [report.updated for report in reports] == [False, False, any(CHOOSES[name])] * 2
    assert [report.skipped for report in reports] == [not keep for keep in CHOOSES[name]] * 2
    assert [report.dropped for report in reports] == [1, 0, 0, 0, 1, 0]
    assert curator.skipped == 2 * CHOOSES[name].count(False)
    if name == "none":
        assert all(p.grad is None for p in model.parameters())
    else:
        steps_by_hand(twin, batches, [report.weights for report in reports])
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


@pytest.mark.parametrize("backward", WAYS)
def test_a_gradient_that_is_not_finite_spoils_no_parameter(backward):
    model, validation = network(), data(20)
    before = copy.deepcopy(model.state_dict())
    curator = curated(model, validation, backward, lambda scores: torch.full_like(scores, 1e308))
    reports = [curator.step(*data()) for _ in range(PARTS)]
    assert [report.updated for report in reports] == [False] * PARTS
    assert reports[-1].skipped
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())


def test_auto_mixes_its_ways_within_a_step():
    model, validation = network(), data(20)
    twin, batches = copy.deepcopy(model), [data() for _ in range(PARTS)]
    curator = curated(model, validation, "auto", functools.partial(lai.keep_top, fraction=0.8))
    reports = [curator.step(*batch) for batch in batches]
    assert [report.backward for report in reports] == ["kept", "whole", "whole"]
    steps_by_hand(twin, batches, [report.weights for report in reports])
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


def test_an_optimizer_that_accelerate_has_switched_off_is_named():
    """It would neither step nor clear gradients at every batch, and the curator would count steps."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, validation = network(), data(20)
    prepared, optimizer = accelerator.prepare(model, sgd(model))
    curator = lai_torch.Curator(prepared, LOSS, optimizer, validation)
    before = copy.deepcopy(model.state_dict())
    message = (
        r"inside accelerator\.accumulate\(\), where it does not at every batch; .* Curator\(accumulate=\)"
    )
    with accelerator.accumulate(prepared), pytest.raises(ValueError, match=message):
        curator.step(*data())
    assert curator.steps == 0
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
