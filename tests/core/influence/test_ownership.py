"""Whose row is it: two backward passes tell, but for weights that a model would have to be made for.

The oracle is the Jacobian of all losses with respect to all rows, which the function never sees.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from lai_core.influence import ownership_residuals
from tests.support.draws import GENERATORS
from tests.support.refusals import Table, refusals

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
def test_what_is_left_is_zero_exactly_where_no_other_loss_reaches_the_row(seed):
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


@pytest.mark.equation("sample-ownership")
def test_distinct_weights_alone_do_not_suffice_a_counterexample():
    """Two losses hide each other at one ratio of their gradients; another weight of either shows both."""
    weights = np.array([1.0, 2.0, 3.0])
    hidden = np.array([[7.0, 7.0], [2.0, -4.0], [-1.0, 2.0]])
    assert residual_of_row_0(hidden, weights) == 0.0
    for other in (1, 2):
        moved = weights + 0.25 * np.eye(3)[other]
        assert residual_of_row_0(hidden, moved) == 0.25 * np.abs(hidden[other]).max()


@pytest.mark.equation("sample-ownership")
def test_equal_weights_hide_the_losses_that_have_them_a_counterexample():
    weights = np.array([1.0, 1.0, 2.0])
    assert residual_of_row_0(np.array([[1.0], [5.0], [0.0]]), weights) == 0.0
    assert residual_of_row_0(np.array([[1.0], [0.0], [5.0]]), weights) == 5.0


def residual_of_row_0(at_row_0, weights):
    """Give the function two backward passes whose first row has these gradients, one of each loss."""
    own = np.diag(np.arange(len(weights)) > 0)[..., None] * np.ones(at_row_0.shape[1])  # other rows: own
    whole = own + np.eye(1, len(weights))[0][None, :, None] * at_row_0[:, None, :]
    first, second = whole.sum(0), np.einsum("k,kid->id", weights, whole)
    found = ownership_residuals(first, second, weights)
    np.testing.assert_allclose(found[1:], 0.0, atol=1e-12)
    return found[0]


def refused(**change):
    good = {"gradient": np.ones((3, 2)), "weighted": np.ones((3, 2)), "weights": np.arange(3.0)}
    return partial(ownership_residuals, *(good | change).values())


REFUSED: Table = {
    "ValueError: weighted: expected the shape of gradient, (n, ...) = (3,": refused(weighted=np.ones((3, 1))),
    "ValueError: weights: expected shape (n=3,), got (2,)": refused(weights=np.ones(2)),
    "TypeError: gradient: expected a real floating dtype": refused(gradient=np.ones((3, 2), int)),
    "TypeError: weights: expected an array": refused(weights=[1.0, 2.0, 3.0]),
    "ValueError: gradient: expected every axis to have at least one": refused(gradient=np.ones((0, 2))),
}
test_bad_arguments_are_named = refusals(REFUSED)
