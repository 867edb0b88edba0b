"""Estimators of a sample's value against their definitions: influence, TRAK, Shapley values."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import lai_core as lai
from experiments.methods import attribution
from experiments.methods.base import LOSS, auc
from experiments.studies import figure_one
from experiments.studies.figure_one import Game, correlation
from lai_core import influence

CLASSES, DAMPING = 3, 0.05


def drawn(count, seed, width=4, classes=CLASSES):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, width, dtype=torch.float64, generator=generator)
    return inputs, torch.randint(classes, (count,), generator=generator)


OWN, HELD = drawn(12, 1), drawn(5, 2)


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return nn.Linear(4, CLASSES).double()


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()


def gradients(function, model, batch, parameters=None):
    """One backward pass a sample, `(n, p)`, of a function of its outputs and label."""
    rows = []
    for x, y in zip(*batch, strict=True):
        value = function(model(x[None])[0], y)
        found = torch.autograd.grad(value, parameters or list(model.parameters()))
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows)


def loss(outputs, label):
    return LOSS(outputs[None], label[None])[0]


def hessian(model, batch):
    """Of a linear classifier's summed loss, in all its parameters."""
    names, values = zip(*model.named_parameters(), strict=True)

    def summed(flat):
        parts = flat.split([value.numel() for value in values])
        point = {name: part.view_as(of) for name, part, of in zip(names, parts, values, strict=True)}
        return LOSS(torch.func.functional_call(model, point, (batch[0],)), batch[1]).sum()

    return torch.func.jacrev(torch.func.grad(summed))(
        torch.cat([value.detach().flatten() for value in values])
    )


def test_curvature_products_match_explicit_hessians(classifier):
    curvature = hessian(classifier, OWN)
    product = attribution.curvature_product(classifier, OWN)
    columns = torch.stack([product(one) for one in torch.eye(15, dtype=torch.float64)], 1)
    torch.testing.assert_close(columns, curvature / 12, rtol=1e-9, atol=1e-12)


def test_lissa_converges_to_influence(classifier):
    own, held = (gradients(loss, classifier, part) for part in (OWN, HELD))
    expected = influence.removal_influence(held, own, hessian(classifier, OWN), damping=12 * DAMPING)
    product, errors = attribution.curvature_product(classifier, OWN), []
    for steps in (3, 30, 300):
        solved = attribution.series(product, held.sum(0), damping=DAMPING, steps=steps)
        errors.append(float((own @ solved / 12 - expected).abs().max() / expected.abs().max()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-6


def test_datainf_is_exact_for_single_samples(classifier):
    own, held = (gradients(loss, classifier, part) for part in (OWN, HELD))

    def error(rows, damping):
        expected = influence.removal_influence(held, rows, rows.T @ rows, damping=damping * len(rows))
        found = attribution.mean_of_inverses(held.sum(0), rows, damping=damping) / len(rows)
        return float((found - expected).abs().max() / expected.abs().max())

    assert error(own[:1], 0.1) < 1e-9
    errors = [error(own, damping) for damping in (1.0, 10.0, 100.0)]
    assert errors[0] > 10 * errors[1] > 400 * errors[2]  # as its square
    assert errors[2] < 2e-3


@pytest.mark.parametrize("nearest", [1, 2, 5])
def test_neighbours_values_are_shapleys(nearest):
    (inputs, labels), held = drawn(5, 1), drawn(3, 2)
    found = attribution.neighbour_values((inputs, labels), held, nearest=nearest)
    for z, (x, y) in enumerate(zip(*held, strict=True)):
        far = (inputs - x).norm(dim=1)

        def worth(members, far=far, y=y):
            chosen = sorted(members, key=lambda one: far[one])[:nearest]
            return sum(int(labels[one] == y) for one in chosen) / nearest

        expected = torch.zeros(5, dtype=torch.double)
        for order in itertools.permutations(range(5)):
            for place, one in enumerate(order):
                expected[one] += (worth(order[: place + 1]) - worth(order[:place])) / 120
        torch.testing.assert_close(found[z], expected)


def test_labels_are_doubted_by_surer_classes():
    chance = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55], [0.5, 0.5]])
    # thresholds: 0.683 and 0.567; 0.675 and 0.5
    for labels, confident in (
        ([0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 1]),
        ([0, 1, 1, 1, 0, 1], [0, 0, 1, 1, 1, 1]),
    ):
        assert attribution.confident_class(chance, torch.tensor(labels)).tolist() == confident
    labels = (OWN[0][:, 0] > 0).long()
    fitted = attribution.linear(OWN[0].float(), labels, 2)(OWN[0].float())
    assert torch.equal(fitted.argmax(1), labels)
    signal, wrong = np.array([3.0, 1.0, 2.0, 2.0]), np.array([True, False, True, False])
    assert auc(signal, wrong) == (1 + 1 + 1 + 0.5) / 4  # the share of pairs in order


def log_odds(logits, label):
    chance = logits.softmax(0)[label]
    return torch.log(chance / (1 - chance))


def test_trak_is_its_definition(network):
    own, held = drawn(40, 1), drawn(6, 2)
    count = sum(value.numel() for value in network.parameters())
    projection = torch.randn(count, 8, generator=torch.Generator().manual_seed(5)).double()
    features, toward = (gradients(log_odds, network, part) @ projection for part in (own, held))
    wrong = 1 - network(own[0]).detach().softmax(1)[torch.arange(40), own[1]]
    expected = (toward @ torch.linalg.inv(features.T @ features) @ features.T * wrong).sum(0)
    found = attribution.projected_values(network, own, held, width=8, seed=5)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    few = attribution.projected_values(network, drawn(5, 1), held, width=20, seed=5)
    assert few.isfinite().all()  # fewer samples than columns


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


def test_antithetic_permutations_approach_exact_values():
    game = played("SGD")
    game.optimizer.param_groups[0]["lr"] = 0.02
    exact, pair = game.exact(), game.sampled(1, np.random.default_rng(0))[0]
    assert np.abs(pair - exact).max() < 0.02 * np.ptp(exact)


def test_correlation_spans_identity_and_negation():
    truth = np.array([3.0, -1.0, 0.5, 2.0])
    for sign in (1.0, -1.0):
        assert correlation(sign * truth, truth) == pytest.approx(sign)
    assert correlation(np.ones(3), truth[:3]) == 0.0


def test_flattened_ghost_multiplies_flattened_gradients():
    a, g = (torch.randn(3, 2, width, dtype=torch.double) for width in (4, 5))
    expected = [sum(float((a[z] * a[j]).sum() * (g[z] * g[j]).sum()) for z in range(3)) for j in range(3)]
    np.testing.assert_allclose(figure_one.flattened_ghost(lai.Trace([lai.LayerTrace(a, g)])), expected)
