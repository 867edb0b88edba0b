"""Whose row is it: two backward passes tell, but for weights that a model would have to be made for.

The oracle is the Jacobian of all losses with respect to all rows, which the function never sees.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from lai_core.influence import ownership_residuals
from tests.support.draws import GENERATORS

SAMPLES, WIDTH = 5, 3


def losses(rows, mixing):
    """Return one loss a sample, of its own row and of those that `mixing` lets in."""
    mixed = jnp.einsum("ki,itd->ktd", jnp.eye(SAMPLES) + mixing, rows)
    return jnp.sum(jnp.tanh(mixed) ** 2, axis=(1, 2))


gradients = jax.jit(jax.grad(lambda rows, mixing, weights: jnp.sum(weights * losses(rows, mixing))))
jacobian = jax.jit(jax.jacrev(losses))


def drawn(seed):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(SAMPLES, 2, WIDTH))
    mixing = generator.normal(size=(SAMPLES, SAMPLES)) * (generator.random((SAMPLES, SAMPLES)) < 0.15)
    return generator, rows, mixing - np.diag(np.diag(mixing))


@pytest.mark.equation("sample-ownership")
@settings(max_examples=15)
@given(seed=GENERATORS)
def test_residuals_vanish_exactly_for_own_rows(seed):
    _, rows, mixing = drawn(seed)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, SAMPLES)  # drawn ones tie, and hide what ties
    first, second = (np.asarray(gradients(rows, mixing, w)) for w in (np.ones(SAMPLES), weights))
    found = ownership_residuals(first, second, weights)
    whole = np.array(jacobian(rows, mixing)).reshape(SAMPLES, SAMPLES, -1)
    foreign = [np.delete(whole[:, i], i, axis=0) for i in range(SAMPLES)]
    gaps = [np.delete(weights, i) - weights[i] for i in range(SAMPLES)]
    expected = [np.abs(gap @ of).max() for gap, of in zip(gaps, foreign, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)
    assert [size > 1e-10 for size in found] == [np.any(np.abs(of) > 0) for of in foreign]
