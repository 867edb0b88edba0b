"""TRAK against its definition, EKFAC against its curvature written out, and where it is no approximation."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from experiments.methods import attribution
from experiments.methods.attribution import (
    kronecker_kernel,
    kronecker_values,
    projected_kernel,
    projected_values,
    sample_gradients,
)
from experiments.methods.base import LOSS
from lai_core import influence
from tests.experiments.test_attribution import drawn, hessian

CLASSES = 3


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()


def gradients(model, function, batch):
    """One backward pass a sample, `(n, p)`."""
    rows = []
    for x, y in zip(*batch, strict=True):
        value = function(model(x[None])[0], y)
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, model.parameters())]))
    return torch.stack(rows)


def log_odds(logits, label):
    chance = logits.softmax(0)[label]
    return torch.log(chance / (1 - chance))


def test_trak_is_its_definition(network):
    own, held = drawn(40, 1), drawn(6, 2)
    count = sum(value.numel() for value in network.parameters())
    projection = torch.randn(count, 8, generator=torch.Generator().manual_seed(5)).double()
    features, toward = (gradients(network, log_odds, part) @ projection for part in (own, held))
    kernel = torch.linalg.inv(features.T @ features)
    wrong = torch.stack([1 - network(x[None])[0].softmax(0)[y] for x, y in zip(*own, strict=True)]).detach()
    expected = torch.stack([toward[z] @ kernel @ features.T * wrong for z in range(6)])
    found = projected_kernel(network, own, held, width=8, seed=5)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    found = projected_values(network, own, held, width=8, seed=5)
    torch.testing.assert_close(found, expected.sum(0), rtol=1e-7, atol=1e-9)


def test_trak_has_an_answer_for_fewer_samples_than_columns(network):
    found = projected_values(network, drawn(5, 1), drawn(6, 2), width=20, seed=5)
    assert found.isfinite().all()


def kronecker_curvature(model, batch):
    """A's and S's eigenbasis, `Q`, and `Q diag(Q'FQ) Q'`, F the network's own Fisher matrix, layer by layer.

    F is written out from one backward pass a sample and class; a layer's vector is its weights, rows first,
    and each row's bias behind it.
    """
    blocks = []
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in layers:
        fisher, left, right = 0.0, 0.0, 0.0
        for x in batch[0]:
            logits = model(x[None])[0]
            for label, chance in enumerate(logits.softmax(0).detach()):
                loss = LOSS(logits[None], torch.tensor([label]))[0]
                weight, bias = torch.autograd.grad(loss, (layer.weight, layer.bias), retain_graph=True)
                whole = torch.cat([weight, bias[:, None]], 1)  # g a', with a's last entry 1
                g, a = bias, whole[bias.abs().argmax()] / bias[bias.abs().argmax()]
                fisher = fisher + chance * torch.outer(whole.flatten(), whole.flatten()) / len(batch[0])
                left = left + chance * torch.outer(g, g) / len(batch[0])
                right = right + chance * torch.outer(a, a) / len(batch[0])
        q = torch.kron(*(torch.linalg.eigh(each)[1] for each in (left, right)))
        blocks.append((q, (q.T @ fisher @ q).diagonal()))
    return blocks


def by_layer(model, batch):
    """Each sample's gradient of each layer, in the order of `kronecker_curvature`."""
    flat, found, start = gradients(model, lambda o, y: LOSS(o[None], y[None])[0], batch), [], 0
    for layer in (layer for layer in model if isinstance(layer, nn.Linear)):
        out, width = layer.weight.shape
        weight = flat[:, start : start + out * width].view(-1, out, width)
        bias = flat[:, start + out * width : start + out * (width + 1)]
        found.append(torch.cat([weight, bias[:, :, None]], 2).flatten(1))
        start += out * (width + 1)
    return found


def test_ekfac_is_influence_by_its_curvature_written_out(network):
    own, held = drawn(12, 1), drawn(5, 2)
    expected = 0.0
    for (q, values), training, validation in zip(
        kronecker_curvature(network, own), by_layer(network, own), by_layer(network, held), strict=True
    ):
        inverse = q @ torch.diag(1 / (values + 0.1 * values.mean())) @ q.T
        expected = expected + validation @ inverse @ training.T
    found = kronecker_kernel(network, own, held, damping=0.1)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    found = kronecker_values(network, own, held, damping=0.1)
    torch.testing.assert_close(found, expected.sum(0), rtol=1e-7, atol=1e-9)


def test_ekfac_is_the_gauss_newton_inverse_where_the_curvature_is_a_kronecker_product():
    model = nn.Linear(4, CLASSES).double()
    nn.init.zeros_(model.weight)  # every sample has the same chances, whose curvature is one factor
    nn.init.zeros_(model.bias)
    own, held = drawn(30, 1), drawn(5, 2)
    curvature = hessian(model, own) / 30
    damping = 0.1 * float(curvature.diagonal().mean())
    validation, training = (
        gradients(model, lambda o, y: LOSS(o[None], y[None])[0], part) for part in (held, own)
    )
    expected = influence.removal_influence(validation, training, curvature, damping=damping)
    found = kronecker_values(model, own, held, damping=0.1)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    nn.init.normal_(model.weight)  # the control: elsewhere it is an approximation
    assert not torch.allclose(kronecker_values(model, own, held, damping=0.1), expected, rtol=1e-2)


def test_without_a_curvature_worth_the_name_ekfac_is_the_inner_product(network):
    own, held = drawn(12, 1), drawn(5, 2)
    products = [v.sum(0) @ t.T for t, v in zip(by_layer(network, own), by_layer(network, held), strict=True)]
    spectra = [values.mean() for _, values in kronecker_curvature(network, own)]
    expected = sum(one / (1e9 * mean) for one, mean in zip(products, spectra, strict=True))
    found = kronecker_values(network, own, held, damping=1e9)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-6)


def test_the_curvature_of_positions_is_that_of_their_summed_gradient():
    generator = torch.Generator().manual_seed(0)
    g, a = torch.randn(3, 2, 4, 5, generator=generator), torch.randn(3, 4, 6, generator=generator)
    chance = torch.rand(3, 2, generator=generator)
    expected = torch.zeros(5, 6)
    for n, c in itertools.product(range(3), range(2)):
        expected += chance[n, c] * sum(torch.outer(g[n, c, t], a[n, t]) for t in range(4)).square() / 3
    torch.testing.assert_close(attribution._second_moment(g, a, chance), expected)
    one = g[:, :, :1], a[:, :1]  # the short cut for one position
    both = g * torch.tensor([1.0, 0.0, 0.0, 0.0])[:, None], a
    torch.testing.assert_close(
        attribution._second_moment(*one, chance), attribution._second_moment(*both, chance)
    )


def test_ekfac_of_convolutions_tends_to_the_inner_product():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2, padding=1), nn.Tanh(), nn.Flatten(),
        nn.Linear(18, CLASSES),
    ).double()  # fmt: skip
    own, held = drawn(12, 1), drawn(5, 2)
    chance = model(own[0]).softmax(1).detach()
    each = [sample_gradients(model, LOSS, part) for part in (held, own)]
    named = [(own[0], torch.full_like(own[1], label)) for label in range(CLASSES)]
    drawn_each = [sample_gradients(model, LOSS, part) for part in named]
    expected = 0.0
    for name in ("1", "4"):
        (validation, training), classes = (
            [torch.cat([g[f"{name}.{kind}"].flatten(1) for kind in ("weight", "bias")], 1) for g in of]
            for of in (each, drawn_each)
        )
        squares = sum(p @ g.square().mean(1) for p, g in zip(chance.T, classes, strict=True)) / len(own[1])
        expected = expected + validation @ training.T / (1e9 * squares)
    found = kronecker_kernel(model, own, held, damping=1e9)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
