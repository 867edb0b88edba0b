"""The study of mixtures: what each arm pays, whose scores it reads, and what it calls better."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import lai_core as lai
from experiments.advice_sources import counts
from experiments.harness import record as records
from experiments.harness.statistics import summary
from experiments.mixtures import sources
from experiments.mixtures.arms import BATCH, MIXED_IN, PERIOD, Arm, Run, scored
from experiments.mixtures.learners import Perceptrons, errors, losses
from experiments.mixtures.policies import horizons
from experiments.studies import mixed_text, mixtures

ROOT = Path(__file__).parents[2]
SEEDS, STEPS = (0, 1), 120
FULL = mixtures.EVERYWHERE | mixtures.FURTHER


@pytest.fixture(scope="module")
def task():
    return sources.task("2 sources", SEEDS, STEPS)


def paid(task, name):
    """Return what an arm's steps should cost, in forward passes of one sample, by the rules of the page."""
    run = Run(task, FULL[name])
    start = run.paid
    for _ in range(2 * PERIOD):
        run.step()
    return start, run.paid, run


HELD = sources.HELD
PRODUCTS = 65 * 48 + 49 * 48 + 49 * 10
LLI, LAI = 49 * 10 / PRODUCTS, (65 + 49 + 49) * 10 / PRODUCTS
PLAIN, WITH = 3 * BATCH, 3 * (BATCH + MIXED_IN)
FITTED = 150 * 16 * 3 + 2 * 64
TRIALS = 2 * (3 * (STEPS // 25) * BATCH // 2 + HELD)


@pytest.mark.parametrize(
    ("name", "once", "step", "period"),
    [
        ("uniform", 0, PLAIN, 0),
        ("validation mixed in", 0, WITH, 0),
        ("ODM", 0, PLAIN, 0),
        ("static filter + validation", FITTED, WITH, 0),
        ("LLI mixture", 0, PLAIN, HELD + PERIOD / 2 * LLI * BATCH),
        ("LLI mixture + validation", 0, WITH, HELD + PERIOD / 2 * LLI * BATCH),
        ("LAI mixture + validation", 0, WITH, HELD + PERIOD / 2 * LAI * BATCH),
        ("Ghost mixture + validation", 0, WITH, 3 * HELD + PERIOD / 4 * BATCH),
        (mixtures.TRIED, 0, WITH, TRIALS),  # two in the steps that are taken here
    ],
)
def test_every_pass_is_paid_for(task, name, once, step, period):
    start, total, _ = paid(task, name)
    assert start == once
    assert total - start == pytest.approx(2 * (PERIOD * step + period))


def test_samples_that_are_dropped_save_their_backward_pass(task, monkeypatch):
    monkeypatch.setattr(lai, "keep_positive", lambda scores: torch.full_like(scores, 1 / len(scores)))
    _, kept, _ = paid(task, mixtures.SAMPLES)
    assert kept == pytest.approx(2 * PERIOD * (WITH + HELD + LAI * BATCH))
    monkeypatch.setattr(lai, "keep_positive", lambda scores: torch.zeros_like(scores))
    _, none, run = paid(task, mixtures.SAMPLES)
    assert kept - none == pytest.approx(2 * PERIOD * 2 * BATCH)
    assert run.policy.weights.tolist() == [[0.5, 0.5]] * 2


@pytest.mark.parametrize("name", FULL)
def test_an_arm_stops_when_its_budget_is_spent(task, name):
    run = Run(task, FULL[name]).train()
    assert 0 <= run.paid - run.budget < TRIALS + FITTED
    found = run.metrics()
    assert found["cost"] == [run.budget / (run.steps * PLAIN)] * 2
    assert run.policy.weights.sum(1).tolist() == pytest.approx([1.0, 1.0])


def test_shares_move_to_the_clean_source():
    task = sources.task("2 sources", SEEDS, 300)
    for name in (mixtures.OURS, mixtures.FILTER, mixtures.TRIED):
        clean = Run(task, FULL[name]).train().metrics()["share of clean"]
        assert min(clean) > 0.6, name


@pytest.mark.parametrize("setting", sources.SETTINGS)
def test_every_setting_draws_each_source_from_its_own_rows(setting):
    task = sources.task(setting, SEEDS)
    assert len(task.inputs) == len(task.test[0][0]) == 2
    assert task.inputs.shape[1] == sum(task.sizes)
    assert all(len(known) == len(task.sizes) for known in task.known)
    assert not torch.equal(task.inputs[0], task.inputs[1])
    last = torch.full((2, 500), len(task.sizes) - 1)
    drawn, _ = task.draw(last, torch.Generator().manual_seed(0))
    first = sum(task.sizes[:-1])
    for seed in range(2):
        rows = {row.numpy().tobytes() for row in task.inputs[seed, first:]}
        assert all(row.numpy().tobytes() in rows for row in drawn[seed])


def test_perceptrons_step_as_adam_does_and_record_their_gradients():
    batch = (torch.randn(2, 8, 5), torch.randint(3, (2, 8)))
    learners = Perceptrons(5, 3, SEEDS)
    weights = [each.clone().requires_grad_() for each in learners.weights]
    hidden = batch[0]
    for layer in weights:
        hidden = torch.cat([hidden.relu() if layer is not weights[0] else hidden, torch.ones(2, 8, 1)], 2)
        hidden = hidden @ layer
    each = torch.nn.functional.cross_entropy(hidden.transpose(1, 2), batch[1], reduction="none")
    shares = torch.rand(2, 8)
    (each * shares).sum().backward()
    optimizer = torch.optim.Adam(weights, lr=0.01)
    optimizer.step()
    torch.testing.assert_close(learners.step(batch, shares, 0.01), each.detach())
    for own, other, gradient in zip(learners.weights, weights, learners.gradients, strict=True):
        torch.testing.assert_close(gradient, other.grad)
        torch.testing.assert_close(own, other.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("estimator", ["lai", "lli", "ghost"])
def test_scores_of_all_seeds_at_once_are_those_of_each(estimator):
    learners = Perceptrons(5, 3, SEEDS)
    sides = [learners.record((torch.randn(2, n, 5), torch.randint(3, (2, n)))) for n in (4, 6)]
    found = scored(estimator, *sides)
    for seed in range(2):
        traces = [
            lai.Trace([lai.LayerTrace(given[seed], out[seed]) for given, out in side]) for side in sides
        ]
        expected = getattr(lai, f"{estimator}_scores")(*traces)
        torch.testing.assert_close(found[seed], expected)


@pytest.fixture(scope="module")
def reading():
    task = mixed_text.task(SEEDS, 3)
    learners = task.learners()
    batch = task.draw(torch.randint(6, (2, 8)), torch.Generator().manual_seed(0))
    for _ in range(2):
        learners.step(batch, torch.full((2, 8), 1 / 8), 0.003)
    return task, learners, batch


def test_a_gpts_record_gives_the_gradient_of_its_last_layer(reading):
    _, learners, batch = reading
    ((given, out),) = learners.record(batch)
    found = torch.einsum("qntd,qntv->qvd", given, out)
    learners.step(batch, torch.ones(2, 8), 0.0)
    torch.testing.assert_close(found, learners.parameters["head.weight"].grad, rtol=1e-3, atol=1e-5)


def test_one_step_and_trials_are_measured_from_the_same_network(task):
    found = horizons(Run(task, FULL[mixtures.MIXED]))
    assert list(found) == [
        f"{what} of {name}" for what in ("one step's score", "fall after a trial") for name in task.names
    ]
    for what in ("one step's score", "fall after a trial"):
        clean, bad = (np.array(found[f"{what} of {name}"]) for name in task.names)
        assert (clean > 0).all()
        np.testing.assert_allclose(clean + bad, 0.0, atol=1e-5)


def test_the_loss_of_a_sample_is_its_mean_over_positions():
    logits, targets = torch.randn(2, 3, 4, 5), torch.randint(5, (2, 3, 4))
    flat = torch.nn.functional.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none")
    torch.testing.assert_close(losses(logits, targets), flat.view(2, 3, 4).mean(2))
    logits.requires_grad_()
    losses(logits, targets).sum().backward()
    torch.testing.assert_close(errors(logits.detach(), targets), logits.grad)


def test_a_cosine_ends_at_a_rate_of_zero(task, monkeypatch):
    rates = []
    step = Perceptrons.step

    def told(self, batch, weights, rate):
        rates.append(rate)
        return step(self, batch, weights, rate)

    monkeypatch.setattr(Perceptrons, "step", told)
    Run(task, Arm(FULL["uniform"].shares, decayed=True)).train()
    assert rates[0] == task.rate
    assert rates[-1] == pytest.approx(task.rate * (0.5 + 0.5 * math.cos(math.pi * (1 - 1 / STEPS))))


def test_more_is_better_but_for_losses_and_an_interval_may_be_wider():
    values = {"bad sources: accuracy": (0.8, 0.9), "text, 30 to validate: test loss": (2.0, 2.3)}
    methods = {
        name: {
            metric: summary([of[at] + noise for noise in (0.0, 0.01, 0.03, 0.08)])
            for metric, of in values.items()
        }
        for at, name in enumerate((mixtures.MIXED, mixtures.OURS))
    }
    methods[mixtures.NULL] = methods[mixtures.MIXED]
    for setting, verdict, found in (("bad sources", "holds", 0.1), ("text, 30 to validate", "refuted", -0.3)):
        claim = mixtures.above(methods, setting, mixtures.OURS, mixtures.MIXED)
        assert claim["verdict"] == verdict
        assert claim["found"] == pytest.approx(found)
    assert mixtures.above(methods, "drift", mixtures.OURS, mixtures.MIXED) is None
    noisy = {
        name: {"bad sources: accuracy": summary([0.5 + each * at for each in (0.01, 0.02, 0.03, 0.05)])}
        for at, name in enumerate((mixtures.MIXED, mixtures.OURS))
    }
    verdicts = [
        mixtures.above(noisy, "bad sources", mixtures.OURS, mixtures.MIXED, level)["verdict"]
        for level in (0.95, 0.995)
    ]
    assert verdicts == ["holds", "undecided"]
    assert np.isfinite(claim["interval"]).all()


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/index.md"])
def test_pages_say_what_the_record_says(page):
    methods = records.committed()["mixtures"]["methods"]
    up, level, down = counts(methods, mixtures.OURS, mixtures.MIXED)
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert (
        f"above that batch alone in {up} of {up + level + down} settings, level in {level}, below in {down}"
        in text
    )
