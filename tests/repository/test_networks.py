"""The networks that other tests lean on: their gradients, and what each family promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import GENERATORS
from tests.support.networks import ALIGNED, ASSUMING, FAMILIES, Shape

SHAPES = st.sampled_from([Shape(2, 1, 3), Shape(2, 2, 2), Shape(2, 3, 4), Shape(1, 5, 3)])


@pytest.mark.parametrize("family", FAMILIES)
@given(GENERATORS, SHAPES)
def test_the_gradients_are_those_of_each_samples_loss(family, seed, shape):
    """Differences of the loss in one weight of each layer, against g a'."""
    rng = np.random.default_rng(seed)
    networks = FAMILIES[family](rng, shape).networks
    widths = (networks.weights[0].shape[-1], networks.weights[-1].shape[1])
    inputs = rng.standard_normal((shape.nets, 2, widths[0]))
    targets = rng.standard_normal((shape.nets, 2, widths[1]))
    if networks.loss == "softmax":
        targets = rng.integers(0, widths[1], (shape.nets, 2))
    batch = networks.run(inputs, targets)
    step = 1e-6
    for layer, weight in enumerate(networks.weights):
        row, column = (int(rng.integers(d)) for d in weight.shape[1:])
        moved = []
        for sign in (1, -1):
            changed = weight.copy()
            changed[:, row, column] += sign * step
            weights = (*networks.weights[:layer], changed, *networks.weights[layer + 1 :])
            moved.append(type(networks)(weights, networks.relu, networks.loss).losses(inputs, targets))
        expected = (moved[0] - moved[1]) / (2 * step)
        found = batch.gradients[layer][..., row] * batch.activations[layer][..., column]
        kinks = [np.abs(a).min() for a in networks.preactivations(inputs)[:-1]]
        if not networks.relu or min(kinks, default=1.0) > 1e-4:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("family", ASSUMING)
@given(GENERATORS, SHAPES)
def test_a_family_satisfies_what_it_promises(family, seed, shape):
    case = ASSUMING[family](np.random.default_rng(seed), shape)
    beta, slack = case.beta, 1e-12
    powers = case.rho[:, None, None] ** np.arange(shape.depth - 1, -1, -1)[None, :, None]
    for norms in (case.validation_norms, case.training_norms):
        assert (norms <= powers * norms[:, -1:] * (1 + 1e-9) + slack).all()
    lengths = case.validation_norms[..., :, None] * case.training_norms[..., None, :]
    cosines = beta / np.where(lengths > 0, lengths, 1)
    assert (cosines >= -slack).all()
    assert (cosines <= cosines[:, -1:] + 1e-9).all()
    assert family not in ALIGNED or (case.alpha >= -slack).all()
    assert (np.abs(case.alpha) <= case.activation_bound[:, None, None, None] ** 2 * (1 + 1e-9)).all()
