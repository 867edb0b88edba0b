"""The networks that the tests of the statements draw are what they promise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import GENERATORS
from tests.support.networks import ALIGNED, ASSUMING, Networks, Shape

SHAPES = st.sampled_from([Shape(2, 1, 3), Shape(2, 2, 2), Shape(2, 3, 4), Shape(1, 5, 3)])


@pytest.mark.parametrize("family", ASSUMING)
@given(GENERATORS, SHAPES)
def test_a_family_satisfies_what_it_promises(family, seed, shape):
    case = ASSUMING[family](np.random.default_rng(seed), shape)
    beta, slack = case.beta, 1e-12
    powers = case.rho[:, None, None] ** np.arange(shape.depth - 1, -1, -1)[None, :, None]
    for norms in (case.validation_norms, case.training_norms):
        assert (norms <= powers * norms[:, -1:] * (1 + 1e-9) + slack).all()
    lengths = case.validation_norms[..., :, None] * case.training_norms[..., None, :]
    rounding = 1e-12 * lengths[:, -1:]  # a gradient that cancels on its way down has any direction
    cosines = beta / np.where(lengths > rounding, lengths, np.inf)
    assert (cosines >= -slack).all()
    assert (cosines <= cosines[:, -1:] + 1e-9).all()
    assert family not in ALIGNED or (case.alpha >= -slack).all()
    assert (np.abs(case.alpha) <= case.activation_bound[:, None, None, None] ** 2 * (1 + 1e-9)).all()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_gradients_are_slopes_of_the_losses(loss, relu):
    rng = np.random.default_rng(3)
    weights, turn = rng.standard_normal((2, 3, 1, 3, 3))
    networks, inputs = Networks(tuple(weights), relu, loss), rng.standard_normal((1, 4, 3))
    targets = rng.standard_normal((1, 4, 3)) if loss == "squared" else np.array([[0, 2, 1, 2]])
    batch = networks.run(inputs, targets)
    for layer in range(3):
        step = 1e-6 * turn * (np.arange(3) == layer)[:, None, None, None]
        ends = (replace(networks, weights=tuple(weights + s)).losses(inputs, targets) for s in (step, -step))
        slopes = np.subtract(*ends) / 2e-6
        found = np.einsum("bno,boi,bni->bn", batch.gradients[layer], turn[layer], batch.activations[layer])
        np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-8)
