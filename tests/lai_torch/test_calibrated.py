"""Calibrated LAI in the loop: layer weights fitted to Ghost, against explicit gradients in numpy."""

import functools

import lai_torch
import numpy as np
import pytest
import torch
from torch import nn

from tests.lai_torch import support
from tests.lai_torch.support import LOSS, data

curated = functools.partial(support.curated, lr=0.5, estimator="calibrated_lai")


def network():
    return nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)
    )


def explicit(model, inputs, targets):
    """Each layer's extended inputs and output gradients, read off one weight gradient per sample."""
    layers = [module for module in model if isinstance(module, nn.Linear)]
    rows = []
    for sample in range(len(targets)):
        value = LOSS(model(inputs[sample : sample + 1]), targets[sample : sample + 1]).sum()
        found = torch.autograd.grad(value, [p for layer in layers for p in (layer.weight, layer.bias)])
        matrices, outputs = ([part.numpy() for part in found[start::2]] for start in (0, 1))
        pairs = zip(matrices, outputs, strict=True)
        rows.append([(np.append(g @ matrix / (g @ g), 1.0), g) for matrix, g in pairs])
    return [[np.stack(part) for part in zip(*layer, strict=True)] for layer in zip(*rows, strict=True)]


def slopes(kernels):
    """Fit, through zero, the slope of each second kernel on the first over all pairs of different samples."""
    found = []
    for lai_part, ghost in kernels:
        off = ~np.eye(len(lai_part), dtype=bool)
        found.append((ghost[off] @ lai_part[off]) / (lai_part[off] @ lai_part[off]))
    return np.array(found)


def oracle_weights(layers):
    last = layers[-1][1] @ layers[-1][1].T
    return slopes([((a @ a.T) * last, (a @ a.T) * (g @ g.T)) for a, g in layers])


def test_scores_are_lai_with_weights_fitted_on_a_batch_of_the_validation_set():
    model, validation, batch = network().double(), data(20), data(7)
    _, report = curated(model, validation).score(*batch)
    rows = [0, 2, 5, 8, 11, 14, 17]  # a batch's worth of the twenty, at equal distances
    weights = oracle_weights(explicit(model, validation[0][rows], validation[1][rows]))
    sides = explicit(model, *validation), explicit(model, *batch)
    kernels = [w * a @ b.T for w, (a, _), (b, _) in zip(weights, *sides, strict=True)]
    expected = (sum(kernels) * (sides[0][-1][1] @ sides[1][-1][1].T)).sum(0)
    np.testing.assert_allclose(report.layer_weights.numpy(), weights, rtol=1e-10)
    np.testing.assert_allclose(report.scores.numpy(), expected, rtol=1e-10)
    assert weights[-1] == pytest.approx(1.0)
    assert (np.abs(weights[:-1] - 1.0) > 0.1).all()
    plain = lai_torch.Curator(model, LOSS, None, validation).score(*batch)[1]
    assert plain.layer_weights is None
    assert not torch.allclose(report.scores, plain.scores)


def test_weights_are_fitted_again_at_each_refresh_and_only_then():
    model, batch = network().double(), data(9)
    curator = curated(model, data(12), refresh=2)
    first, second, third = (curator.step(*batch).layer_weights for _ in range(3))
    assert torch.equal(first, second)
    assert not torch.allclose(second, third)


def test_a_batch_of_one_is_calibrated_on_two():
    model, validation = network().double(), data(12)
    _, report = curated(model, validation).score(*data(1))
    expected = oracle_weights(explicit(model, validation[0][[0, 6]], validation[1][[0, 6]]))
    np.testing.assert_allclose(report.layer_weights.numpy(), expected, rtol=1e-10)


def test_samples_that_are_not_finite_are_not_calibrated_on():
    model, validation, batch = network().double(), data(3), data(7)
    _, expected = curated(model, tuple(part[1:] for part in validation)).score(*batch)
    validation[0][0] = torch.nan
    _, report = curated(model, validation).score(*batch)
    torch.testing.assert_close(report.layer_weights, expected.layer_weights)
    torch.testing.assert_close(report.scores, expected.scores)
    validation[0][1] = torch.nan
    with pytest.raises(ValueError, match="at least two samples with a finite loss among the 3 it is"):
        curated(model, validation).score(*batch)


def per_sample(model, loss, batch, parameters):
    """Return the inner products of each sample's gradients of `parameters`, one backward pass each."""
    rows = []
    for sample in range(len(batch[1])):
        value = loss(model(batch[0][sample : sample + 1]), batch[1][sample : sample + 1]).sum()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)]).numpy())
    return np.stack(rows) @ np.stack(rows).T


def spread(outputs, targets):
    """One loss a sample, over all positions."""
    return nn.functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none").sum(1)


@pytest.mark.filterwarnings("ignore:positions. exact pairs of tokens")
@pytest.mark.parametrize("positions", ["tokens", "mean", "flatten"])
def test_a_layers_weight_is_the_slope_of_ghosts_part_on_lais_at_positions(positions):
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    inputs, targets = torch.randn(6, 7, 3, dtype=torch.float64), torch.randint(4, (6, 7))
    hidden = model[1](model[0](inputs)).detach()
    logits = model[2](hidden).detach().requires_grad_()
    (g,) = (part.numpy() for part in torch.autograd.grad(spread(logits, targets).sum(), logits))
    kernels = []
    for layer, a in ((model[0], inputs.numpy()), (model[2], hidden.numpy())):
        if positions == "tokens":
            lai_part = np.einsum(
                "ztjs,ztjs->zj", np.einsum("zti,jsi->ztjs", a, a) + 1, np.einsum("zti,jsi->ztjs", g, g)
            )
        elif positions == "mean":
            lai_part = (a.mean(1) @ a.mean(1).T + 1) * (g.mean(1) @ g.mean(1).T)
        else:
            flat = [one.reshape(6, -1) for one in (a, g)]
            lai_part = (flat[0] @ flat[0].T + 7) * (flat[1] @ flat[1].T)
        kernels.append((lai_part, per_sample(model, spread, (inputs, targets), list(layer.parameters()))))
    curator = lai_torch.Curator(
        model, spread, None, (inputs, targets), estimator=lai_torch.CalibratedLAI(positions=positions)
    )
    _, report = curator.score(inputs, targets)
    np.testing.assert_allclose(report.layer_weights.numpy(), slopes(kernels), rtol=1e-9)
    weighted = sum(w * lai_part for w, (lai_part, _) in zip(slopes(kernels), kernels, strict=True))
    np.testing.assert_allclose(report.scores.numpy(), weighted.sum(0), rtol=1e-9)
    assert report.positions == positions


def test_convolutions_are_calibrated_on_their_exact_part():
    model = nn.Sequential(nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 3)).double()
    inputs, targets = data(6)
    batch = inputs.reshape(-1, 1, 4), targets
    hidden = model[:3](batch[0]).detach()
    logits = model[3](hidden).detach().requires_grad_()
    (g,) = (part.numpy() for part in torch.autograd.grad(LOSS(logits, targets).sum(), logits))
    beta = g @ g.T
    maps = inputs.numpy().reshape(6, 1, 4).mean(2)  # what LAI's mean reads of the convolution's input
    kernels = [
        ((maps @ maps.T + 1) * beta, per_sample(model, LOSS, batch, list(model[0].parameters()))),
        (
            (hidden.numpy() @ hidden.numpy().T + 1) * beta,
            per_sample(model, LOSS, batch, list(model[3].parameters())),
        ),
    ]
    _, report = curated(model, batch).score(*batch)
    np.testing.assert_allclose(report.layer_weights.numpy(), slopes(kernels), rtol=1e-9)
    assert report.positions == "mean"


def test_a_frozen_layer_has_no_part_in_ghost_and_no_weight():
    model, batch = network().double(), data(6)
    _, everything = curated(model, batch).score(*batch)
    model[0].requires_grad_(requires_grad=False)
    _, report = curated(model, batch).score(*batch)
    assert report.layer_weights[0] == 0.0
    torch.testing.assert_close(report.layer_weights[1:], everything.layer_weights[1:])


def test_a_shared_matrix_is_calibrated_use_by_use():
    shared = nn.Linear(4, 4)
    model, batch = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(4, 3)).double(), data(6)
    apart = nn.Sequential(*[nn.Linear(4, 4) if one is shared else one for one in model]).double()
    apart.load_state_dict(
        {f"{i}.{k}": v for i in (0, 2) for k, v in shared.state_dict().items()}
        | {f"4.{k}": v for k, v in model[4].state_dict().items()}
    )
    found, expected = (curated(one, batch).score(*batch)[1].layer_weights for one in (model, apart))
    torch.testing.assert_close(found, expected)
