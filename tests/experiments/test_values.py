"""What a set of samples is worth in a step: the loss after a real step on it."""

import copy

import pytest
import torch
from torch import nn

from experiments.methods.base import LOSS
from experiments.studies.figure_one import Game


def drawn(count, seed, width, classes):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, width, dtype=torch.float64, generator=generator)
    return inputs, torch.randint(classes, (count,), generator=generator)


N = 4
BATCH = drawn(N, 2, 3, 2)
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.2),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, betas=(0.8, 0.9)),
}


def played(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    optimizer = OPTIMIZERS[kind](model.parameters())
    for seed in (5, 6):
        optimizer.zero_grad()
        LOSS(model(drawn(8, seed, 3, 2)[0]), drawn(8, seed, 3, 2)[1]).mean().backward()
        optimizer.step()
    return Game(model, LOSS, drawn(9, 1, 3, 2), BATCH, optimizer)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_set_values_match_real_steps(kind):
    game = played(kind)
    for members in ([1.0, 0.0, 1.0, 0.0], [0.0] * 4):
        weights = torch.tensor(members, dtype=torch.float64)
        model, optimizer = copy.deepcopy((game.model, game.optimizer))
        optimizer.zero_grad()
        (LOSS(model(BATCH[0]), BATCH[1]) * weights).sum().div(N).backward()
        optimizer.step()
        expected = float(LOSS(model(game.held[0]), game.held[1]).detach().sum())
        assert game.loss_after(weights) == pytest.approx(expected, rel=1e-10)
