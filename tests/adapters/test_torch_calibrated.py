"""Calibrated LAI in the loop: layer weights fitted to Ghost, against explicit gradients in numpy."""

import io

import lai_torch
import numpy as np
import pytest
import torch
from torch import nn

import lai_core as lai

LOSS = nn.CrossEntropyLoss(reduction="none")


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def network():
    return nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)
    )


def data(n):
    inputs = torch.randn(n, 4, dtype=torch.float64)
    return inputs, inputs[:, :3].argmax(1)


def curated(model, validation, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    return lai_torch.Curator(model, LOSS, optimizer, validation, estimator="calibrated_lai", **options)


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


def oracle_weights(layers):
    """Fit, through zero, the slope of Ghost's term on LAI's over all pairs of different samples."""
    last, weights = layers[-1][1], []
    for a, g in layers:
        pairs = [(i, j) for i in range(len(a)) for j in range(len(a)) if i != j]
        ghost = np.array([(a[i] @ a[j]) * (g[i] @ g[j]) for i, j in pairs])
        ours = np.array([(a[i] @ a[j]) * (last[i] @ last[j]) for i, j in pairs])
        weights.append((ghost @ ours) / (ours @ ours))
    return np.array(weights)


def test_scores_are_lai_with_weights_fitted_on_a_batch_of_the_validation_set():
    model, validation, batch = network().double(), data(20), data(7)
    _, report = curated(model, validation).score(*batch)
    rows = [0, 2, 5, 8, 11, 14, 17]  # a batch's worth of the twenty, at equal distances
    weights = oracle_weights(explicit(model, validation[0][rows], validation[1][rows]))
    theirs, ours = explicit(model, *validation), explicit(model, *batch)
    kernels = [w * a @ b.T for w, (a, _), (b, _) in zip(weights, theirs, ours, strict=True)]
    expected = (sum(kernels) * (theirs[-1][1] @ ours[-1][1].T)).sum(0)
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


def test_layers_without_one_pair_of_similarities_are_refused_by_name():
    shared = nn.Linear(4, 4)
    convolution = nn.Sequential(nn.Conv1d(1, 3, 2), nn.Flatten(), nn.Linear(9, 3))
    positions = nn.Sequential(nn.Linear(1, 2), nn.Flatten(), nn.Linear(8, 3))
    frozen = network()
    frozen[0].requires_grad_(requires_grad=False)
    cases = [
        (nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(4, 3)), (-1, 4), "shares its matrix"),
        (convolution, (-1, 1, 4), r"'0'.* is not dense"),
        (positions, (-1, 4, 1), r"'0'.* has positions"),
        (frozen, (-1, 4), "layer '0' has a frozen or computed weight"),
    ]
    for model, shape, reason in cases:
        inputs, targets = data(6)
        batch = inputs.reshape(shape), targets
        with pytest.raises(ValueError, match=rf"'calibrated_lai' expects.*{reason}.*use estimator='lai'"):
            curated(model.double(), batch).score(*batch)


def test_what_holds_no_validation_samples_is_refused():
    model = network().double()
    summary = lai.summarize(lai_torch.trace(model, LOSS, *data(6)), "lai")
    for validation in ("batch", "batch+self", summary):
        with pytest.raises(ValueError, match=r"'calibrated_lai' is calibrated on validation samples; pass"):
            curated(model, validation)


def test_an_interrupted_run_resumes_bit_for_bit():
    def parts():
        torch.manual_seed(7)
        model, validation, batches = network().double(), data(20), [data(6) for _ in range(5)]
        generator = torch.Generator().manual_seed(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        options = {"refresh": 3, "share": 0.5, "generator": generator, "estimator": "calibrated_lai"}
        return [model, optimizer, lai_torch.Curator(model, LOSS, optimizer, validation, **options)], batches

    (whole, _, curator), batches = parts()
    expected = [curator.step(*batch) for batch in batches]
    owners, _ = parts()
    for batch in batches[:2]:
        owners[2].step(*batch)
    file = io.BytesIO()
    torch.save([owner.state_dict() for owner in owners], file)
    file.seek(0)
    resumed, _ = parts()
    for owner, state in zip(resumed, torch.load(file, weights_only=True), strict=True):
        owner.load_state_dict(state)
    for batch, report in zip(batches[2:], expected[2:], strict=True):
        found = resumed[2].step(*batch)
        assert torch.equal(found.scores, report.scores)
        assert torch.equal(found.layer_weights, report.layer_weights)
    for mine, theirs in zip(resumed[0].parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, theirs)
