"""The static baselines: influence against the core's, what approximates it, votes by enumeration."""

import itertools
import math

import pytest
import torch
from torch import nn

from experiments.methods import attribution
from experiments.methods.attribution import (
    confident_class,
    curvature_product,
    last_layer,
    mean_of_inverses,
    neighbour_values,
    sample_gradients,
    series,
)
from experiments.methods.base import LOSS
from lai_core import influence

DAMPING = 0.05


def drawn(count, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, dtype=torch.float64, generator=generator)
    return inputs, torch.randint(3, (count,), generator=generator)


def flat(gradients):
    return torch.cat([each.flatten(1) for each in gradients.values()], 1)


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return nn.Linear(4, 3).double()


def hessian(model, batch):
    """Of the summed loss, from its definition."""
    names = list(dict(model.named_parameters()))
    shapes = [value.shape for value in model.parameters()]

    def loss(vector):
        parts = vector.split([shape.numel() for shape in shapes])
        point = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return LOSS(torch.func.functional_call(model, point, (batch[0],)), batch[1]).sum()

    return torch.func.jacrev(torch.func.grad(loss))(
        torch.cat([value.detach().flatten() for value in model.parameters()])
    )


def test_the_last_layers_influence_is_that_of_explicit_gradients_and_their_hessian(classifier):
    own, held = drawn(12, 1), drawn(5, 2)
    (validation, _), (training, found) = (last_layer(classifier, part) for part in (held, own))
    sides = [flat(sample_gradients(classifier, LOSS, part)) for part in (held, own)]
    expected = influence.removal_influence(*sides, hessian(classifier, own), damping=DAMPING)
    scores = influence.removal_influence(validation, training, found, damping=DAMPING)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-12)


def test_the_curvature_is_the_hessian_of_a_linear_classifier(classifier):
    own = drawn(12, 1)
    product = curvature_product(classifier, own)
    columns = torch.stack([product(one) for one in torch.eye(15, dtype=torch.float64)], 1)
    torch.testing.assert_close(columns, hessian(classifier, own) / 12, rtol=1e-9, atol=1e-12)


def test_lissa_converges_to_influence(classifier):
    own, held = drawn(12, 1), drawn(5, 2)
    validation, training = (flat(sample_gradients(classifier, LOSS, part)) for part in (held, own))
    expected = influence.removal_influence(
        validation, training, hessian(classifier, own), damping=12 * DAMPING
    )
    errors = []
    for steps in (3, 30, 300):
        solved = series(curvature_product(classifier, own), validation.sum(0), damping=DAMPING, steps=steps)
        errors.append(float((training @ solved / 12 - expected).abs().max() / expected.abs().max()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-6


def test_datainf_is_influence_of_one_sample_and_comes_near_it_as_the_damping_grows(classifier):
    own, held = drawn(12, 1), drawn(5, 2)
    validation, training = (flat(sample_gradients(classifier, LOSS, part)) for part in (held, own))

    def error(gradients, damping):
        fisher = gradients.T @ gradients
        expected = influence.removal_influence(
            validation, gradients, fisher, damping=damping * len(gradients)
        )
        found = mean_of_inverses(validation.sum(0), gradients, damping=damping) / len(gradients)
        return float((found - expected).abs().max() / expected.abs().max())

    assert error(training[:1], 0.1) < 1e-9
    errors = [error(training, damping) for damping in (1.0, 10.0, 100.0)]
    assert errors[0] > 10 * errors[1] > 400 * errors[2]  # as its square
    assert errors[2] < 2e-3


@pytest.mark.parametrize("nearest", [1, 2, 5])
def test_neighbours_values_are_shapleys(nearest):
    (inputs, labels), held = drawn(6, 1), drawn(3, 2)
    found = neighbour_values((inputs, labels), held, nearest=nearest)
    for z, (x, y) in enumerate(zip(*held, strict=True)):
        far = (inputs - x).norm(dim=1)

        def worth(members, far=far, y=y):
            chosen = sorted(members, key=lambda one: far[one])[:nearest]
            return sum(int(labels[one] == y) for one in chosen) / nearest

        expected = [0.0] * 6
        for order in itertools.permutations(range(6)):
            for place, one in enumerate(order):
                expected[one] += worth(order[: place + 1]) - worth(order[:place])
        torch.testing.assert_close(found[z], torch.tensor(expected, dtype=torch.double) / math.factorial(6))


def test_a_label_is_doubted_where_another_class_is_surer_than_usual():
    chance = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55], [0.5, 0.5]])
    labels = torch.tensor([0, 0, 1, 1, 0, 1])  # thresholds: 0.683 and 0.567
    assert confident_class(chance, labels).tolist() == [0, 0, 1, 1, 0, 1]
    labels = torch.tensor([0, 1, 1, 1, 0, 1])  # thresholds: 0.675 and 0.5
    assert confident_class(chance, labels).tolist() == [0, 0, 1, 1, 1, 1]


def test_a_linear_classifier_separates_what_can_be():
    inputs, _ = drawn(30, 3)
    labels = (inputs[:, 0] > 0).long()
    model = attribution.linear(inputs.float(), labels, 2)
    assert (model(inputs.float()).argmax(1) == labels).float().mean() > 0.95
