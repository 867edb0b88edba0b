"""Micro-batches: every way of the backward pass adds its part; those of a trainer are weighed together."""

import copy

import lai_torch
import pytest
import torch
from lai_torch.integrations.rows import kept_rows

import lai_core as lai
from tests.lai_torch.support import LOSS, curated, data, network, sgd

PARTS = 3
WAYS = ("selective", "whole", "kept")
CHOOSES = {  # which of the micro-batches of a step keeps something
    "first": (True, False, False),
    "last": (False, False, True),
    "none": (False, False, False),
    "all": (True, True, True),
}


def steps_by_hand(model, batches, weights):
    """Take one plain step per `PARTS` batches, on weighted losses."""
    optimizer = sgd(model)
    for start in range(0, len(batches), PARTS):
        pairs = zip(batches[start : start + PARTS], weights[start : start + PARTS], strict=True)
        losses = (
            (torch.where(w > 0, LOSS(model(x.nan_to_num()), y), 0.0) * w).sum() / PARTS for (x, y), w in pairs
        )
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()


@pytest.mark.parametrize("name", CHOOSES)
@pytest.mark.parametrize("backward", WAYS)
def test_parts_that_keep_nothing(backward, name):
    keeps = iter(CHOOSES[name] * 2)

    def policy(scores):
        weights = lai.keep_top(scores, 0.5)
        return weights if next(keeps) else torch.zeros_like(weights)

    model, batches = network(), [data(6) for _ in range(6)]
    for inputs, _ in batches[::4]:
        inputs[2] = torch.nan
    twin = copy.deepcopy(model)
    curator = curated(model, data(20), policy=policy, backward=backward, accumulate=PARTS)
    reports = [curator.step(*batch) for batch in batches]
    assert [report.backward for report in reports] == [
        "kept" if backward == "whole" and at in {0, 4} else backward for at in range(6)
    ]
    assert [report.updated for report in reports] == [False, False, any(CHOOSES[name])] * 2
    assert [report.skipped for report in reports] == [not keep for keep in CHOOSES[name]] * 2
    assert [report.dropped for report in reports] == [1, 0, 0, 0, 1, 0]
    assert curator.skipped == 2 * CHOOSES[name].count(False)
    if name == "none":
        assert all(p.grad is None for p in model.parameters())
    else:
        steps_by_hand(twin, batches, [report.weights for report in reports])
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


def test_a_stand_in_has_no_nan():
    """Of a micro-batch of which nothing is kept one row runs, for wrappers' sake, and gives nothing."""
    model, (inputs, targets) = network(), data(4)
    inputs[0, 0] = torch.nan
    curator = lai_torch.Curator(model, LOSS, None, data(9))
    weights, report = curator.weigh([(inputs[:1], targets[:1])])
    assert (report.kept, report.skipped, curator.skipped) == (0, True, 1)
    (given, labels), own = kept_rows((inputs[:1], targets[:1]), weights[0])
    curator.objective(LOSS(model(given), labels), own).backward()
    assert not any(one.grad.any() for one in model.parameters())


@pytest.mark.parametrize(("alone", "warmup"), [(True, 0), (False, 0), (False, 1)])
def test_trainers_auxiliary_losses(alone, warmup):
    """One number for all rows, a mean over them, or one a sample; in two micro-batches, or in one step."""

    def penalty(outputs, targets):
        squares = outputs.square().sum(1)
        return squares.mean() if alone else squares * targets

    start, batch, validation = network(), data(8), data(9)
    stepped, model = copy.deepcopy(start), copy.deepcopy(start)
    training = lai_torch.KeptOptions(auxiliary=penalty)
    trained = curated(stepped, validation, backward=training, warmup=warmup).step(*batch)
    curator = lai_torch.Curator(model, LOSS, None, validation, warmup=warmup)
    parts = [tuple(side[rows] for side in batch) for rows in (slice(0, 3), slice(3, 8))]
    weights, report = curator.weigh(parts)
    assert warmup or trained.loss == pytest.approx(report.loss)
    for part, own in zip(parts, weights, strict=True):
        (inputs, targets), own = kept_rows(part, own)
        outputs, share = model(inputs), int((own > 0).sum()) / report.kept
        more = {"auxiliary": penalty(outputs, targets), "fraction": share}
        curator.objective(LOSS(outputs, targets), own, **more).backward()
    sgd(model).step()
    for found, expected in zip(model.parameters(), stepped.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
