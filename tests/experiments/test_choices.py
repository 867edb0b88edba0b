"""What each way to choose keeps where that is known, what it pays, and who is judged on which seeds."""

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from experiments import demo
from experiments.methods import redundant
from experiments.methods.base import LOSS, METHODS, Outcome, Run, Task, lowest, train
from experiments.mixtures import arms, sources
from experiments.mixtures.arms import Perceptrons
from experiments.studies import mixtures

BATCH, ROWS = 8, torch.arange(4, 12)
"""Of these rows four have wrong labels, then four right ones."""


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


def chosen(name, progress=0.0, sure=True):
    """Weigh `ROWS` by a network that knows the clouds, so that wrong labels have the highest losses."""
    run = Run(task(), 0)
    if sure:
        run.model = network(1)
        with torch.no_grad():
            run.model.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
            run.model.bias.zero_()
        run.optimizer = torch.optim.Adam(run.model.parameters(), lr=0.0)
    step, run.progress = METHODS[name](run), progress
    return step(ROWS)


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


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("small loss", 0.0, 0.25),
        ("RHO-loss", None, None),
    ],
)
def test_losses_separate_wrong_from_right_labels(name, wrong, right):
    weights = chosen(name)
    assert float(weights.sum()) == pytest.approx(1.0)
    assert wrong is None or weights[:4].tolist() == [wrong] * 4
    assert right is None or weights[4:].tolist() == [right] * 4


def test_self_pacing_completes():
    assert [int((chosen("self-paced (SPL)", progress=at) > 0).sum()) for at in (0.0, 0.8)] == [4, 8]
    assert lowest(torch.tensor([3.0, 1.0, 2.0]), 0.1).tolist() == [0.0, 1.0, 0.0]  # one at least


def test_redundant_candidates_count_once():
    gradients = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 1.9], [-1.0, 0.0]])
    toward = gradients @ torch.tensor([1.0, 1.0])
    for products, kept in (
        (gradients @ gradients.T, [0.5, 0.0, 0.5, 0.0]),
        (torch.zeros(4, 4), [0.5, 0.5, 0.0, 0.0]),
    ):
        assert redundant.nearest_set(toward, products, 0.5).tolist() == kept
    assert lai.keep_top(toward, 0.5).tolist() == [0.5, 0.5, 0.0, 0.0]
    for length, kept in ((0.3, [1.0, 0.0]), (0.15, [0.0, 1.0])):  # half of a candidate's own product counts
        products = torch.tensor([0.0, length]).diag()
        assert redundant.nearest_set(torch.tensor([1.0, 1.1]), products, 0.5).tolist() == kept


@pytest.mark.parametrize(
    ("name", "kernel", "gradients"),
    [("GREATS-like", lai.ghost_kernel, "all"), ("LAI as a set", lai.lai_kernel, "output")],
)
def test_gradient_products_match_the_network(name, kernel, gradients):
    run = Run(task(), 0)
    parts = run.task.validation, run.batch(ROWS)
    held, batch = (lai_torch.trace(run.model, LOSS, *part, gradients=gradients) for part in parts)
    expected = redundant.nearest_set(kernel(held, batch).mean(0), kernel(batch, batch), 0.5)
    torch.testing.assert_close(chosen(name, sure=False), expected)


def outcome(test, operations, validation=None, checks=0.0):
    return Outcome(None, test, validation or test, operations, None, None, 10.0, checks)


def test_early_stopping_pays_for_looking():
    found = outcome([0.5, 0.9, 0.7], [2.0, 4.0, 6.0], validation=[0.1, 0.2, 0.3], checks=3.0)
    assert found.stopped() == ([0.5, 0.9, 0.7], [0.3, 0.6, 0.9])  # it pays for looking
    kept = outcome([0.5, 0.9, 0.7], [2.0, 4.0, 6.0], validation=[0.2, 0.3, 0.2])
    assert kept.stopped()[0] == [0.5, 0.9, 0.9]
    told = demo.accuracies([kept, found])
    assert [told["accuracy_mean"], told["early_stopped_mean"]] == pytest.approx([0.7, 0.8])


SEEDS, STEPS = (0, 1), 120
MIX = sources.task("2 sources", SEEDS, STEPS)
FULL = mixtures.EVERYWHERE | mixtures.FURTHER
PRODUCTS = 65 * 48 + 49 * 48 + 49 * 10
LLI, LAI = 49 * 10 / PRODUCTS, (65 + 49 + 49) * 10 / PRODUCTS
PLAIN, WITH = 3 * arms.BATCH, 3 * (arms.BATCH + arms.MIXED_IN)
FITTED = 150 * 16 * 3 + 2 * 64
TRIALS = 2 * (3 * (STEPS // 25) * arms.BATCH // 2 + sources.HELD)


@pytest.mark.parametrize(
    ("name", "once", "step", "period"),
    [
        ("uniform", 0, PLAIN, 0),
        ("validation mixed in", 0, WITH, 0),
        ("ODM", 0, PLAIN, 0),
        ("static filter + validation", FITTED, WITH, 0),
        ("LLI mixture", 0, PLAIN, sources.HELD + arms.PERIOD / 2 * LLI * arms.BATCH),
        ("LAI mixture + validation", 0, WITH, sources.HELD + arms.PERIOD / 2 * LAI * arms.BATCH),
        ("Ghost mixture + validation", 0, WITH, 3 * sources.HELD + arms.PERIOD / 4 * arms.BATCH),
        (mixtures.TRIED, 0, WITH, TRIALS),  # two in the steps that are taken here
    ],
)
def test_every_pass_is_paid_for(name, once, step, period):
    run = arms.Run(MIX, FULL[name])
    assert run.paid == once
    for _ in range(2 * arms.PERIOD):
        run.step()
    assert run.paid - once == pytest.approx(2 * (arms.PERIOD * step + period))


@pytest.mark.parametrize("name", FULL)
def test_arms_stop_when_budgets_are_spent(name):
    run = arms.Run(MIX, FULL[name]).train()
    assert 0 <= run.paid - run.budget < TRIALS + FITTED
    found = run.metrics()
    assert found["cost"] == [run.budget / (run.steps * PLAIN)] * 2
    assert run.policy.weights.sum(1).tolist() == pytest.approx([1.0, 1.0])
    if name in (mixtures.OURS, mixtures.FILTER):
        assert min(found["share of clean"]) > 0.5


@pytest.mark.parametrize("estimator", ["lai", "lli", "ghost"])
def test_parallel_networks_match_single_ones(estimator):
    batch, shares = (torch.randn(2, 8, 5), torch.randint(3, (2, 8))), torch.rand(2, 8)
    learners = Perceptrons(5, 3, SEEDS)
    sides = [learners.record((torch.randn(2, n, 5), torch.randint(3, (2, n)))) for n in (4, 6)]
    found, weights = (
        arms.scored(estimator, *sides),
        [each.clone().requires_grad_() for each in learners.weights],
    )
    hidden, ones = batch[0], torch.ones(2, 8, 1)
    for layer in weights:
        hidden = torch.cat([hidden if layer is weights[0] else hidden.relu(), ones], 2) @ layer
    each = nn.functional.cross_entropy(hidden.transpose(1, 2), batch[1], reduction="none")
    (each * shares).sum().backward()
    optimizer = torch.optim.Adam(weights, lr=0.01)
    optimizer.step()
    torch.testing.assert_close(learners.step(batch, shares, 0.01), each.detach())
    for own, other, gradient in zip(learners.weights, weights, learners.gradients, strict=True):
        torch.testing.assert_close(gradient, other.grad)
        torch.testing.assert_close(own, other.detach(), rtol=1e-4, atol=1e-5)
    for seed in SEEDS:
        traces = [lai.Trace([lai.LayerTrace(a[seed], g[seed]) for a, g in side]) for side in sides]
        torch.testing.assert_close(found[seed], getattr(lai, f"{estimator}_scores")(*traces))
