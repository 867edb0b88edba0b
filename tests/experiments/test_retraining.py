"""The attribution study: scores of a run against the library's own, retrainings, and what compares them."""

import lai_torch
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from experiments.methods.base import LOSS
from experiments.retraining import summed
from experiments.retraining.trained import (
    BEYOND,
    LABEL,
    ONE,
    ORACLE,
    OWN,
    SETTINGS,
    SEVERAL,
    WHOLE,
    datamodelling_scores,
    order,
    rank_correlation,
    side_by_side,
    subsets,
)

KINDS = ("SGD", "Adam")


def small(name, count=8, tested=3):
    """Return a setting and the first of its samples."""
    training, test = SETTINGS[name].data(0)
    return SETTINGS[name], tuple(of[:count] for of in training), tuple(of[:tested] for of in test)


def taken(setting, kind, training, model):
    """Train by torch's own optimizer, batch after batch; return the optimizer."""
    optimizer = setting.optimizer(kind, list(model.parameters()))
    for rows in torch.arange(len(training[1])).split(4)[:-1]:
        optimizer.zero_grad()
        LOSS(model(training[0][rows]), training[1][rows]).mean().backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize(("name", "kind"), list(zip(SETTINGS, (*KINDS[::-1], *KINDS), strict=False)))
def test_a_midpoint_is_that_of_the_exact_scores(name, kind):
    setting, training, test = small(name, 12)
    rows = torch.arange(12).view(3, 4)
    run = summed.train(setting, kind, 1, training, test, rows)
    model = setting.network(1)
    optimizer = taken(setting, kind, training, model)
    options = {"optimizer": optimizer} if kind == "Adam" else {"learning_rate": setting.rates[kind]}
    last = tuple(of[rows[-1]] for of in training)
    expected = lai_torch.exact_scores(model, LOSS, test, last, at="midpoint", **options)
    found = run.scores["midpoint of Adam" if kind == "Adam" else "midpoint"]
    torch.testing.assert_close(found[:, 8:].sum(0), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_a_sample_that_is_trained_on_twice_add_up(kind):
    setting, training, test = small("tabular")
    for of in training:
        of[3] = of[1]  # what a copy is given in its place
    twice, copied = (
        summed.train(setting, kind, 1, training, test, torch.tensor([[0, 1], [2, other]])).scores
        for other in (1, 3)
    )
    for name, scores in twice.items():
        torch.testing.assert_close(scores[:, 1], copied[name][:, 1] + copied[name][:, 3])
        assert not scores[:, 3:].any()
    assert ("midpoint of Adam" in twice) == (kind == "Adam")


@pytest.mark.parametrize(("name", "kind"), list(zip(SETTINGS, (*KINDS, *KINDS), strict=False)))
def test_networks_side_by_side_are_those_trained_one_by_one(name, kind):
    setting, training, test = small(name, 12)
    rows = torch.arange(12).view(3, 4)
    steps = torch.stack([rows, rows.flip(0)], 1)
    found = side_by_side(setting, kind, [1, 2], training, steps, torch.full(steps.shape, 0.25), test)
    for logits, seed, of in zip(found, (1, 2), (rows, rows.flip(0)), strict=True):
        run = summed.train(setting, kind, seed, training, test, of)
        torch.testing.assert_close(logits, run.model(test[0]), rtol=1e-3, atol=1e-4)


def test_an_epoch_has_each_member_once_and_a_subset_half_of_the_samples():
    members = subsets(20, 12, 0)
    assert members.sum(1).tolist() == [6] * 20
    assert 0 < members.float().mean(0).min() < members.float().mean(0).max() < 1
    steps = order(torch.arange(12)[members[0]], 3, 2, 0)
    assert steps.shape == (4, 3)
    for epoch in steps.view(2, 6):
        assert sorted(epoch.tolist()) == torch.arange(12)[members[0]].tolist()


def test_a_rank_correlation_is_spearmans_0_of_a_constant_and_partial_beyond_a_third():
    random = np.random.default_rng(0)
    one, other = (torch.tensor(random.integers(0, 5, (9, 3)).astype(float)) for _ in range(2))
    expected = np.mean([spearmanr(one[:, k], other[:, k]).statistic for k in range(3)])
    assert rank_correlation(one, other) == pytest.approx(expected)
    constant = one * torch.tensor([1.0, 1.0, 0.0])
    expected = sum(spearmanr(one[:, k], other[:, k]).statistic for k in range(2)) / 3
    assert rank_correlation(constant, other) == pytest.approx(expected)
    # beyond a third, as the textbook's partial correlation
    x, y, z = (torch.tensor(random.normal(size=(12, 1))) for _ in range(3))
    xy, xz, yz = (rank_correlation(*pair) for pair in ((x, y), (x, z), (y, z)))
    expected = (xy - xz * yz) / ((1 - xz**2) * (1 - yz**2)) ** 0.5
    assert rank_correlation(x, y, beyond=z) == pytest.approx(expected)
    assert rank_correlation(z.exp(), y, beyond=z) == 0.0


def test_scores_that_explain_every_retraining_score_1():
    generator = torch.Generator().manual_seed(0)
    truth, noise = (torch.randn(4, 20, generator=generator) for _ in range(2))
    label = (torch.arange(20) % 2 == torch.arange(4)[:, None] % 2).float()
    members = subsets(50, 20, 0)
    again = (members.float() @ truth.T).expand(4, -1, -1)
    kernels = {"truth": truth, "noise": noise, LABEL: label}
    found = datamodelling_scores(
        {k: torch.stack([v, v]) for k, v in kernels.items()}, members, again, again[0]
    )
    for name in ("truth", ORACLE):
        assert [found[name][key] for key in (ONE, SEVERAL, BEYOND, OWN)] == pytest.approx([1.0] * 4)
    assert found["truth"][WHOLE] > 0.5
    assert all(abs(found["noise"][key]) < 0.5 for key in (ONE, SEVERAL, BEYOND, OWN))
    assert found[LABEL][BEYOND] == 0.0
    # retrainings of noise agree with no others, and the run of one with itself
    again = torch.randn(6, 50, 4, generator=generator)
    found = datamodelling_scores({LABEL: label[None]}, members, again, again[0])[ORACLE]
    assert all(abs(found[key]) < 0.2 for key in (ONE, SEVERAL, BEYOND))
    assert found[OWN] > 0.3
