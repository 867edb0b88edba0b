"""The gradients that the tests of the statements write out by hand are those of the losses."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.networks import Networks


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
