"""Each way to choose trains, counts what it pays, and ends where validation accuracy was highest."""

import pytest
import torch
from torch import nn

from experiments import demo
from experiments.methods.base import METHODS, Outcome, Task, train

BATCH = 8


def network(seed):
    torch.manual_seed(seed)
    return nn.Linear(2, 2)


def task():
    """Two clouds a line apart; the first quarter of the samples has the other's label."""
    labels = torch.arange(32) % 2
    inputs = torch.randn(32, 2, generator=torch.Generator().manual_seed(0)) + 6.0 * labels[:, None] - 3.0
    bad = (torch.arange(32) < 8).float()
    held = inputs[-BATCH:], labels[-BATCH:]
    return Task((inputs, torch.where(bad > 0, 1 - labels, labels)), held, held, bad, network, 0.05, BATCH, 2)


@pytest.mark.parametrize("name", METHODS)
def test_seeds_reproduce_training_and_counts(name):
    outcome, again = train(name, task(), 0), train(name, task(), 0)
    assert len(outcome.test) == len(outcome.validation) == len(outcome.operations) == 2
    assert outcome.operations[0] < outcome.operations[1]
    assert (again.test, again.operations) == (outcome.test, outcome.operations)
    found = outcome.metrics()
    assert 0.0 < found["kept"] <= 1.0
    if name == "plain":
        assert [found[key] for key in ("cost", "kept", "wrong of kept")] == pytest.approx([1.0, 1.0, 0.25])
    if name == "right labels only":
        assert found["wrong of kept"] == 0.0


def test_early_stopping_looks_at_validation_accuracy():
    last, middle = (
        Outcome(None, [0.5, 0.9, 0.7], held, [2.0, 4.0, 6.0], None, None, 10.0, 3.0)
        for held in ([0.1, 0.2, 0.3], [0.2, 0.3, 0.3])
    )
    assert (last.stopped, middle.stopped) == (0.7, 0.9)
    told = demo.accuracies([middle, last])
    assert [told["accuracy_mean"], told["early_stopped_mean"]] == pytest.approx([0.7, 0.8])
