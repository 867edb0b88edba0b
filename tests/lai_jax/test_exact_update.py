"""Curated steps by exact scores, against one gradient a sample, on models that no trace follows too."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

from tests.lai_jax.support import HALF, computed, dense, gradients, squares, stepped, vectors, weights

PARAMS = weights(w=(4, 5), b=(5,), o=(5, 3)) | {"steps": jnp.arange(2)}
VALIDATION, BATCH = vectors(7, seed=1), vectors(6)


@jax.custom_vjp
def doubled(values):
    return 2 * values


doubled.defvjp(lambda values: (2 * values, None), lambda _, ct: (5 * ct,))


def ruled(params, inputs):
    return jax.jit(doubled)(inputs @ params["w"]) @ params["o"]


@pytest.mark.parametrize("how", [{}, {"rows": 0.5}], ids=str)
@pytest.mark.parametrize("apply", [dense, ruled])
def test_exact_steps_follow_the_kept_gradient(apply, how):
    model = apply, PARAMS, squares
    of_batch = gradients(*model, BATCH)
    for chunk in (None, 3):
        given = computed(lai_jax.summarize, *model, *VALIDATION, estimator="exact", chunk=chunk)
        after, _, report = stepped(
            model, given, BATCH, tx=optax.sgd(1.0), estimator="exact", policy=HALF, **how
        )
        expected = of_batch @ gradients(*model, VALIDATION).sum(0)
        np.testing.assert_allclose(report.scores, expected, rtol=1e-9)
        assert int(given.side.samples) == 7
    moved = [(PARAMS[name] - after[name]).ravel() for name in "bow"]
    np.testing.assert_allclose(np.concatenate(moved), of_batch.T @ report.weights, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(after["steps"], PARAMS["steps"])
    np.testing.assert_allclose(report.losses, squares(apply(PARAMS, BATCH[0]), BATCH[1]), rtol=1e-12)


def test_nonfinite_samples_count_for_nothing():
    model, (inputs, targets) = (dense, PARAMS, squares), BATCH
    of_validation = gradients(*model, tuple(part[1:] for part in VALIDATION)).sum(0)
    expected = gradients(*model, BATCH) @ of_validation
    expected[2] = np.nan
    broken = VALIDATION[0].at[0].set(jnp.nan), VALIDATION[1]
    given = computed(lai_jax.summarize, *model, *broken, estimator="exact")
    assert int(given.side.samples) == 6
    batch = inputs.at[2, 1].set(jnp.inf).at[2, 2].set(jnp.nan), targets
    after, _, report = stepped(model, given, batch, estimator="exact")
    np.testing.assert_allclose(report.scores, expected, rtol=1e-9)
    assert not report.skipped
    assert float(report.weights[2]) == 0.0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
