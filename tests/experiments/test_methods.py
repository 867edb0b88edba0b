"""The ways to choose: what each keeps where that is known by hand, and that all of them train."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

from experiments import methods
from experiments.methods.base import METHODS, Run, Task, lowest, train
from experiments.studies import tasks

BATCH = 8


def network(seed):
    torch.manual_seed(seed)
    return nn.Linear(2, 2)


def task(wrong=0.25, samples=32, epochs=2):
    """Two clouds a line apart; the first samples have the other's label."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(samples) % 2
    inputs = torch.randn(samples, 2, generator=generator) + 6.0 * labels[:, None] - 3.0
    bad = (torch.arange(samples) < wrong * samples).float()
    given = torch.where(bad > 0, 1 - labels, labels)
    held = inputs[-BATCH:], labels[-BATCH:]
    return Task((inputs, given), held, held, bad, network, 0.05, BATCH, epochs)


def weights_of(name, rows, seed=0, share=0.25):
    run = Run(task(share), seed)
    run.model = network(1)
    with torch.no_grad():  # a network that knows the clouds, so that wrong labels have the highest losses
        run.model.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
        run.model.bias.zero_()
    run.optimizer = torch.optim.Adam(run.model.parameters(), lr=0.0)
    return METHODS[name].start(run)(rows), run


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_and_is_counted(name):
    outcome = train(name, task(), 0)
    assert len(outcome.test) == len(outcome.validation) == len(outcome.operations) == 2
    assert 0.0 < outcome.kept <= 1.0
    assert outcome.operations[0] < outcome.operations[1]
    again = train(name, task(), 0)
    assert again.test == outcome.test
    assert again.operations == outcome.operations


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_sees_and_costs_and_is_short(name):
    found = METHODS[name]
    assert found.sees
    assert found.costs
    assert len(inspect.getsource(found.start).splitlines()) <= 40


def test_plain_training_costs_one():
    outcome = train("plain", task(), 0)
    assert outcome.metrics()["cost"] == pytest.approx(1.0)
    assert outcome.metrics()["kept"] == 1.0
    assert outcome.metrics()["wrong of kept"] == 0.25


def test_the_oracle_keeps_no_wrong_label():
    assert train("right labels only", task(), 0).metrics()["wrong of kept"] == 0.0


ROWS = torch.arange(4, 12)
"""Four wrong labels, then four right ones."""


@pytest.mark.parametrize("name", ["small loss", "RHO-loss", "co-teaching"])
def test_low_losses_are_the_right_labels(name):
    weights, _ = weights_of(name, ROWS, share=0.25)
    if name == "small loss":
        assert weights.tolist() == [0.0] * 4 + [0.25] * 4
    assert float(weights.sum()) == pytest.approx(1.0)


def test_high_losses_are_the_wrong_labels():
    assert weights_of("high loss", ROWS)[0].tolist() == [0.25] * 4 + [0.0] * 4


def test_the_validations_losses_and_the_guide_leave_wrong_labels_out():
    for name in ("guide agrees", "loss below the validation's"):
        weights, _ = weights_of(name, ROWS)
        assert not weights[:4].any(), name
        assert float(weights.sum()) == pytest.approx(1.0)


def test_infobatch_is_unbiased():
    total = torch.zeros(8)
    for seed in range(400):
        total += weights_of("InfoBatch", ROWS, seed)[0]
    assert (total / 400 * 8 - 1.0).abs().max() < 0.2


def test_self_pacing_ends_with_everything():
    run = Run(task(), 0)
    step = METHODS["self-paced (SPL)"].start(run)
    assert int((step(ROWS) > 0).sum()) == 4
    run.progress = 0.8
    assert int((step(ROWS) > 0).sum()) == 8


def test_lowest_keeps_at_least_one():
    assert lowest(torch.tensor([3.0, 1.0, 2.0]), 0.1).tolist() == [0.0, 1.0, 0.0]


def test_an_image_invites_its_own_mistakes():
    options = {"noise": "instance", "share": 0.4, "held": 50, "epochs": 1}
    right = tasks.digits(0, **options | {"noise": "symmetric", "share": 0.0}).training[1].numpy()
    given = tasks.digits(0, **options)
    labels, wrong = given.training[1].numpy(), given.wrong.numpy().astype(bool)
    assert np.array_equal(labels != right, wrong)
    assert wrong.mean() == pytest.approx(0.4, abs=0.05)
    most = max((labels[(right == k) & wrong] == c).mean() for k in range(10) for c in range(10))
    assert most > 0.4  # of nine wrong classes, a random one would be taken one time in nine
    images = np.eye(3, dtype=np.float32)[[0, 1] * 500]  # two images of one class
    taken = tasks.mistaken(images, np.zeros(1000, int) + 2, 0.5, np.random.default_rng(0))
    assert abs((taken[::2] == 0).mean() - (taken[1::2] == 0).mean()) > 0.1


def test_validation_labels_are_wrong_where_they_shall_be():
    options = {"noise": "symmetric", "share": 0.4, "held": 200, "epochs": 1}
    right, given = tasks.digits(0, **options), tasks.digits(0, **options, held_wrong=0.4)
    assert (right.validation[1] != given.validation[1]).float().mean() == pytest.approx(0.4)
    assert torch.equal(right.training[1], given.training[1])


def test_digits_are_confused_as_their_map_says():
    right, given = (
        tasks.digits(0, noise=noise, share=share, held=50, epochs=1)
        for noise, share in (("symmetric", 0.0), ("asymmetric", 0.4))
    )
    truth, labels = right.training[1].numpy(), given.training[1].numpy()
    wrong = truth != labels
    assert wrong.mean() == pytest.approx(0.4, abs=1e-3)
    assert np.array_equal(labels[wrong], tasks.CONFUSED[truth[wrong]])
    assert len(given.validation[1]) == 50
    assert methods.METHODS is METHODS
