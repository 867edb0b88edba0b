"""Curated steps by exact scores, against one gradient a sample, on models that no trace follows too."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

from tests.lai_jax.oracle import drawn, gradients, squares
from tests.lai_jax.support import HALF
from tests.lai_jax.support import vectors as data

TX = optax.sgd(1.0)


def chain(params, inputs):
    return jnp.tanh(inputs @ params["w"] + params["b"]) @ params["o"]


@jax.custom_vjp
def doubled(values):
    return 2 * values


doubled.defvjp(lambda values: (2 * values, None), lambda _, ct: (5 * ct,))


def ruled(params, inputs):
    return jax.jit(doubled)(inputs @ params["w"]) @ params["o"]


def parameters():
    return {"w": drawn(4, 5), "b": drawn(5), "o": drawn(5, 3), "steps": jnp.arange(2)}


@pytest.mark.parametrize("how", [{}, {"rows": 0.5}], ids=str)
@pytest.mark.parametrize("apply", [chain, ruled])
def test_a_step_scores_by_exact_inner_products_and_follows_the_kept_gradient(apply, how):
    params, validation, batch = parameters(), data(7, seed=1), data(6)
    summarize = jax.jit(
        lambda params, chunk: lai_jax.summarize(
            apply, params, squares, *validation, estimator="exact", chunk=chunk
        ),
        static_argnums=1,
    )
    update = lai_jax.curated_update(apply, squares, TX, estimator="exact", policy=HALF, **how)
    of_validation = gradients(apply, params, squares, validation).sum(0)
    of_batch = gradients(apply, params, squares, batch)
    for chunk in (None, 3):
        given = summarize(params, chunk)
        after, _, report = update(params, TX.init(params), given, *batch)
        np.testing.assert_allclose(report.scores, of_batch @ of_validation, rtol=1e-9)
        assert int(given.side.samples) == 7
    moved = [
        (old - new).ravel()
        for old, new in zip(jax.tree.leaves(params), jax.tree.leaves(after), strict=True)
        if jnp.issubdtype(old.dtype, jnp.floating)
    ]
    np.testing.assert_allclose(jnp.concatenate(moved), of_batch.T @ report.weights, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(after["steps"], params["steps"])
    np.testing.assert_allclose(report.losses, squares(apply(params, batch[0]), batch[1]), rtol=1e-12)
    assert update._cache_size() == 1


def test_samples_that_are_not_finite_count_for_nothing_on_both_sides():
    params, validation, batch = parameters(), data(6, seed=1), data(5)
    of_validation = gradients(chain, params, squares, tuple(part[1:] for part in validation)).sum(0)
    of_batch = gradients(chain, params, squares, batch)
    broken = validation[0].at[0].set(jnp.nan), validation[1]
    given = lai_jax.summarize(chain, params, squares, *broken, estimator="exact")
    assert int(given.side.samples) == 5
    inputs = batch[0].at[2, 1].set(jnp.inf)
    update = lai_jax.curated_update(chain, squares, TX, estimator="exact")
    after, _, report = update(params, TX.init(params), given, inputs.at[2, 2].set(jnp.nan), batch[1])
    expected = np.array(of_batch @ of_validation)
    expected[2] = np.nan
    np.testing.assert_allclose(report.scores, expected, rtol=1e-9)
    assert not report.skipped
    assert float(report.weights[2]) == 0.0
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(after))


def test_an_infinite_loss_with_a_finite_gradient_has_no_score():
    def barred(outputs, targets):
        return squares(outputs, targets) + jnp.where(targets > 9.0, jnp.inf, 0.0)

    params, (inputs, targets) = parameters(), data(5)
    given = lai_jax.summarize(chain, params, barred, inputs, targets, estimator="exact")
    update = lai_jax.curated_update(chain, barred, TX, estimator="exact")
    report = update(params, TX.init(params), given, inputs, targets.at[1].set(10.0))[2]
    np.testing.assert_array_equal(jnp.isnan(report.scores), jnp.arange(5) == 1)
    assert float(report.weights[1]) == 0.0


def solving(params, inputs):
    """Solve a system in the parameters for every sample, whose products are no layer for LAI."""
    matrix = jnp.eye(3) * 9 + params["w"][:3]
    return jax.scipy.linalg.solve(matrix, (inputs @ params["w"]).T).T


def test_what_lai_cannot_read_is_scored():
    params, validation, batch = {"w": drawn(4, 3)}, data(4, seed=1), data(5)
    with pytest.raises(ValueError, match="use estimator 'ghost' or 'exact'"):
        lai_jax.summarize(solving, params, squares, *validation)
    given = lai_jax.summarize(solving, params, squares, *validation, estimator="exact")
    report = lai_jax.curated_update(solving, squares, TX, estimator="exact")(
        params, TX.init(params), given, *batch
    )[2]
    of_validation, of_batch = (gradients(solving, params, squares, side) for side in (validation, batch))
    np.testing.assert_allclose(report.scores, of_batch @ of_validation.sum(0), rtol=1e-9)
