"""The true worth of samples: against real steps, the definition by orders, and `lai_core.shapley`."""

import copy
import itertools

import numpy as np
import pytest
import torch
from experiments.studies.networks import GPT, convolutional, next_loss, perceptron
from torch import nn

from experiments.data import prose
from experiments.methods.base import LOSS
from experiments.studies import fidelity, figure_one
from experiments.studies.steps import Game, agreement, correlation
from lai_core import shapley

N = 4
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.2),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, betas=(0.8, 0.9)),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, betas=(0.8, 0.9), weight_decay=0.3),
}


def drawn(count, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 3, dtype=torch.float64, generator=generator)
    return inputs, torch.randint(2, (count,), generator=generator)


def played(kind, scale=1.0, max_norm=np.inf):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    optimizer = OPTIMIZERS[kind](model.parameters())
    for seed in (5, 6):
        optimizer.zero_grad()
        LOSS(model(drawn(8, seed)[0]), drawn(8, seed)[1]).mean().backward()
        optimizer.step()
    return Game(model, LOSS, drawn(9, 1), drawn(N, 2), optimizer, scale, max_norm)


@pytest.mark.parametrize("max_norm", [np.inf, 0.05])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_set_is_worth_what_the_real_step_on_it_does(kind, max_norm):
    game = played(kind, max_norm=max_norm)
    inputs, targets = drawn(N, 2)
    for members in ([1.0, 0.0, 1.0, 0.0], [0.0] * 4):
        weights = torch.tensor(members, dtype=torch.float64)
        model, optimizer = copy.deepcopy((game.model, game.optimizer))
        optimizer.zero_grad()
        (LOSS(model(inputs), targets) * weights).sum().div(N).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        with torch.no_grad():
            expected = float(LOSS(model(game.held[0]), game.held[1]).sum())
        assert game.loss_after(weights) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_values_are_means_over_all_orders(kind):
    game, found = played(kind), np.zeros(N)
    for order in itertools.permutations(range(N)):
        members = torch.zeros(N, dtype=torch.float64)
        for player in order:
            before = game.loss_after(members)
            members[player] = 1.0
            found[player] += (before - game.loss_after(members)) / 24
    np.testing.assert_allclose(game.exact(), found, rtol=1e-9, atol=1e-12)


def test_values_of_sgd_are_those_of_the_core():
    game = played("SGD")
    names = list(game.point)

    def loss(flat):
        parts = torch.tensor(flat).split([game.point[name].numel() for name in names])
        point = {name: part.view_as(game.point[name]) for name, part in zip(names, parts, strict=True)}
        outputs = torch.func.functional_call(game.model, point, (game.held[0],))
        return LOSS(outputs, game.held[1]).sum().numpy()

    gradients = torch.cat([game.gradients[name].flatten(1) for name in names], 1).numpy() / N
    start = torch.cat([game.point[name].flatten() for name in names]).numpy()
    expected = shapley.one_step_shapley(loss, start, gradients, learning_rate=0.2)
    np.testing.assert_allclose(game.exact(), expected, rtol=1e-9, atol=1e-12)


def test_a_permutation_and_its_reverse_come_near_the_exact_values():
    game = played("SGD", scale=0.1)
    exact = game.exact()
    pair = game.sampled(1, np.random.default_rng(0))[0]
    assert np.abs(pair - exact).max() < 0.02 * np.ptp(exact)


def test_agreement_is_one_with_itself_and_the_opposite_with_its_negative():
    truth = np.array([3.0, -1.0, 0.5, 2.0])
    assert agreement(truth, truth) == {"Pearson": 1.0, "Spearman": 1.0, "best half": 1.0, "regret": 0.0}
    worst = agreement(-truth, truth)
    assert worst["Pearson"] == pytest.approx(-1.0)
    assert (worst["best half"], worst["regret"]) == (0.0, 1.0)
    assert correlation(np.ones(3), truth[:3]) == 0.0


def test_networks_read_their_data():
    digits = torch.zeros(2, 64)
    assert perceptron(0)(digits).shape == convolutional(0)(digits).shape == (2, 10)
    model = GPT(9, 6, seed=0)
    ids = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))
    assert next_loss(model(ids), ids).shape == (2,)
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 9
    torch.testing.assert_close(model(ids)[:, :-1], model(changed)[:, :-1])  # none looks ahead


def test_the_flattened_ghost_is_the_product_of_flattened_gradients():
    import lai_core as lai

    rng = np.random.default_rng(0)
    a, g = (torch.from_numpy(rng.normal(size=(3, 2, width))) for width in (4, 5))
    found = figure_one.flattened_ghost(lai.Trace([lai.LayerTrace(a, g)]))
    expected = [sum(float((a[z] * a[j]).sum() * (g[z] * g[j]).sum()) for z in range(3)) for j in range(3)]
    np.testing.assert_allclose(found, expected)


def test_data_of_both_kinds_is_split():
    for name in fidelity.SETTINGS:
        training, held = fidelity.data(name, 0)
        assert len(training[1]) > 900
        assert len(held[1]) < len(training[1])
    assert fidelity.data("GPT", 0)[0][0].max() < len(prose.alphabet()) + 1
