"""Choices of whole sets, against every set by enumeration; scores with less noise of the validation set."""

from itertools import combinations

import lai_torch
import pytest
import torch

import lai_core as lai
from experiments.methods import redundant, steadier
from experiments.methods.base import LOSS, METHODS, Run
from tests.experiments.test_methods import ROWS, task


def drawn(count, width, seed):
    return torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def silent(count):
    return torch.zeros(count)


def far(weights, gradients, goal):
    return float((weights.double() @ gradients - goal).norm())


def test_the_chosen_set_is_near_the_best_of_all_sets_and_nearer_than_the_best_samples():
    ratios = []
    for seed in range(20):
        gradients, goal = drawn(10, 3, seed), drawn(1, 3, 100 + seed)[0]
        toward = gradients @ goal
        found = redundant.nearest_set(toward, gradients @ gradients.T, 0.4, silent)
        assert int((found > 0).sum()) == 4
        sets = [torch.zeros(10).index_fill(0, torch.tensor(of), 0.25) for of in combinations(range(10), 4)]
        distances = torch.tensor([far(one, gradients, goal) for one in sets])
        alone = torch.zeros(10).index_fill(0, toward.topk(4).indices, 0.25)
        place = (distances < far(found, gradients, goal) - 1e-9).float().mean()
        ratios.append((float(place), far(found, gradients, goal) <= far(alone, gradients, goal) + 1e-9))
    assert sum(place for place, _ in ratios) / 20 < 0.1  # on average among the best tenth of 210 sets
    assert sum(better for _, better in ratios) >= 17


def test_what_two_candidates_say_alike_counts_once():
    gradients = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 1.9], [-1.0, 0.0]])
    toward = gradients @ torch.tensor([1.0, 1.0])
    found = redundant.nearest_set(toward, gradients @ gradients.T, 0.5, silent)
    assert found.tolist() == [0.5, 0.0, 0.5, 0.0]
    assert lai.keep_top(toward, 0.5).tolist() == [0.5, 0.5, 0.0, 0.0]


def test_without_products_between_candidates_a_set_is_its_best_samples():
    toward = drawn(9, 1, 0)[:, 0]
    found = redundant.nearest_set(toward, torch.zeros(9, 9), 1 / 3, silent)
    assert torch.equal(found, lai.keep_top(toward, 1 / 3).to(found))


def test_a_draw_takes_each_candidate_with_its_boltzmann_chance():
    toward, counts = torch.tensor([1.0, 0.0, -1.0]), torch.zeros(3)
    generator = torch.Generator().manual_seed(0)
    run = Run(task(), 0)
    run.generator = generator
    for _ in range(4000):
        counts += redundant.nearest_set(toward, torch.zeros(3, 3), 1 / 3, redundant.gumbel(run))
    expected = (toward / toward.std(correction=0)).softmax(0)
    assert (counts / 4000 - expected).abs().max() < 0.03  # four standard deviations


@pytest.mark.parametrize(
    ("name", "kernel", "gradients"),
    [("GREATS-like", lai.ghost_kernel, "all"), ("LAI as a set", lai.lai_kernel, "output")],
)
def test_the_products_are_those_of_the_networks_gradients(name, kernel, gradients):
    run = Run(task(), 0)
    held, batch = (
        lai_torch.trace(run.model, LOSS, *part, gradients=gradients)
        for part in (run.task.validation, run.batch(ROWS))
    )
    toward, gram = kernel(held, batch).mean(0), kernel(batch, batch)
    expected = redundant.nearest_set(toward, gram, 0.5, silent)
    torch.testing.assert_close(METHODS[name].start(Run(task(), 0))(ROWS), expected)


def test_four_summaries_of_a_network_at_rest_are_the_whole_sets():
    run = Run(task(), 0)
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.0)
    step = METHODS["LAI, four summaries"].start(run)
    first = [step(ROWS) for _ in range(4)]
    parts = run.task.validation, run.batch(ROWS)
    whole = lai.lai_scores(*(lai_torch.trace(run.model, LOSS, *part) for part in parts))
    torch.testing.assert_close(first[-1], lai.keep_positive(whole))
    assert torch.equal(step(ROWS), first[-1])  # the fifth forgets the first


@pytest.mark.parametrize(("away", "kept"), [(0.0, 8), (6.0, 4)])
def test_only_what_hurts_for_certain_is_dropped(away, kept):
    made = task()
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60) % 2
    held = torch.randn(60, 2, generator=generator) + away * labels[:, None] - away / 2
    made = type(made)(**{**vars(made), "validation": (held, labels if away else labels[torch.randperm(60)])})
    run = Run(made, 0)
    assert steadier.PARTS == 10
    assert int((METHODS["LAI, error bars"].start(run)(ROWS) > 0).sum()) == kept
