"""What policies see beside scores, clipped updates."""

import functools

import lai_torch
import pytest
import torch

import lai_core as lai
from tests.lai_torch.support import LOSS, curated, data, network


def test_policies_see_what_they_name():
    asked = {}

    def policy(scores, losses, groups, *, step=7):
        asked.update(losses=losses, groups=groups, step=step)
        return lai.keep_positive(scores)

    curator = curated(network(), data(9), policy=policy)
    for step in range(2):
        report = curator.step(*data(6), groups=torch.arange(6) % 2)
        assert torch.equal(asked["losses"], report.losses)
        assert asked["groups"].tolist() == [0, 1] * 3
        assert asked["step"] == step
    curator.score(*data(4))
    assert asked["groups"] is None


def emptied(scores, losses, groups, validation_losses):
    """Keep what helps, and write all that it sees, unseen by autograd's counters."""
    kept = lai.keep_positive(scores)
    for each in (scores, losses, groups, validation_losses):
        each.data.fill_(0)
    return kept


@pytest.mark.parametrize(
    ("policy", "backward"),
    [(emptied, "kept"), (emptied, "whole"), (emptied, "auto"), (lai_torch.GroupFloor(0.1, emptied), "kept")],
)
def test_policies_may_write_arguments(policy, backward):
    model, known, given, groups = network(), data(9), data(6), torch.arange(6) % 2
    before = [each.clone() for each in (*known, *given, groups)]
    expected = curated(model, known).score(*given)[1]
    curator = curated(model, known, policy=policy, backward=backward, refresh=9)
    for _ in range(2):
        report = curator.score(*given, groups=groups)[1]
        torch.testing.assert_close((report.scores, report.losses), (expected.scores, expected.losses))
        assert all(map(torch.equal, (*known, *given, groups), before))
    curator.step(*given, groups=groups)
    assert all(map(torch.equal, (*known, *given, groups), before))


def test_keep_below_loss():
    model, known, given = network(), data(9), data(12)
    curator = curated(model, known, policy=lai_torch.KeepBelowLoss(0.5))
    for _ in range(3):
        plain = curated(model, known).score(*given)[1]
        with torch.no_grad():
            highest = LOSS(model(known[0]), known[1]).sort().values[4]  # the median of nine
        weights = curator.step(*given).weights
        assert torch.equal(weights > 0, (plain.scores > 0) & (plain.losses <= highest))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_policies_in_half_precision(kind):
    """A quantile of losses in the model's type, and weights in it, of which the report's loss is no sum."""
    scores, losses = torch.ones(3, dtype=kind), torch.tensor([0.1, 2.0, 0.2], dtype=kind)
    weights = lai_torch.KeepBelowLoss(0.5)(scores, losses, torch.tensor([0.1, 0.5, 0.9], dtype=kind))
    assert weights.tolist() == [0.5, 0.0, 0.5]
    curator = curated(network(), data(9), policy=lambda scores: torch.full_like(scores, 999, dtype=kind))
    report = curator.step(*data(80))
    assert report.loss == pytest.approx(float((report.weights.double() * report.losses).sum()), rel=1e-6)


def test_a_schedules_steps_alone_score():
    policy = lai_torch.Scheduled(functools.partial(lai.keep_top, fraction=0.5), lambda step: step % 3 == 0)
    curator = curated(network(), data(9), policy=policy, refresh=2, warmup=1)
    reports = [curator.step(*data(6)) for _ in range(10)]
    assert [report.step for report in reports if report.scores is not None] == [3, 6, 9]
    assert [reports[step].age for step in (3, 6, 9)] == [0, 1, 0]
    assert [report.kept for report in reports] == [6, 6, 6, 3, 6, 6, 3, 6, 6, 3]


@pytest.mark.parametrize("backward", ["kept", "whole", "selective"])
def test_updates_are_clipped(backward):
    model, known, given = network(), data(9), data(8)

    def trained_on(*batches, **options):
        curator = curated(model, known, lr=0.0, backward=backward, **options)
        for batch in batches:
            curator.step(*batch)
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    plain = trained_on(given)
    norm = float(plain.norm())
    for max_norm in (0.25 * norm, 4 * norm):
        scale = min(1.0, max_norm / (norm + 1e-6))
        torch.testing.assert_close(trained_on(given, max_norm=max_norm), plain * scale, rtol=1e-12, atol=0)
    halves = [tuple(side[:4] for side in given), tuple(side[4:] for side in given)]
    clipped = trained_on(*halves, max_norm=0.25 * norm, accumulate=2)  # once, when both are there
    assert float(clipped.norm()) == pytest.approx(0.25 * norm, rel=1e-4)
