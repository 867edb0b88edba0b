"""The networks that other tests lean on: their gradients, and what each family promises."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.draws import GENERATORS
from tests.support.networks import ALIGNED, ASSUMING, FAMILIES, Shape

SHAPES = st.sampled_from([Shape(2, 1, 3), Shape(2, 2, 2), Shape(2, 3, 4), Shape(1, 5, 3)])


@pytest.mark.parametrize("family", FAMILIES)
@given(GENERATORS, SHAPES)
def test_the_gradients_are_those_of_each_samples_loss(family, seed, shape):
    """One step of each layer's weights along a random direction moves the losses by the gradients' share."""
    rng = np.random.default_rng(seed)
    networks = FAMILIES[family](rng, shape).networks
    inputs, targets = (
        rng.standard_normal((shape.nets, 2, width))
        for width in (networks.weights[0].shape[-1], networks.weights[-1].shape[1])
    )
    if networks.loss == "softmax":
        targets = rng.integers(0, targets.shape[-1], (shape.nets, 2))
    batch, step = networks.run(inputs, targets), 1e-6
    kinks = [np.abs(a).min() for a in networks.preactivations(inputs)[:-1]]
    assume(not networks.relu or min(kinks, default=1.0) > 1e-4)
    directions = [rng.standard_normal(weight.shape) for weight in networks.weights]
    before, after = (
        type(networks)(
            tuple(w + sign * step * d for w, d in zip(networks.weights, directions, strict=True)),
            networks.relu,
            networks.loss,
        ).losses(inputs, targets)
        for sign in (-1, 1)
    )
    expected = sum(
        np.einsum("nbo,noi,nbi->nb", g, d, a)
        for g, d, a in zip(batch.gradients, directions, batch.activations, strict=False)
    )
    found = (after - before) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * (1 + np.abs(expected).max()))


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
