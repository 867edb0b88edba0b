"""Per-sample gradients under the field's names: norms, inner products, and whether they may be trusted."""

import sys

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

from tests.lai_jax.support import classified, computed, cross_entropy, drawn, gradients

N = 6


PARAMS = {"tied": drawn(4, 4, seed=1), "head": drawn(4, 3, seed=2)}


def apply(params, inputs):
    """Use one matrix twice, once turned round."""
    return jnp.tanh(inputs @ params["tied"]) @ params["tied"].T @ params["head"]


def test_products_and_norms_are_those_of_plain_autograd():
    first, second, given = classified(4), classified(N, seed=1), (apply, PARAMS, cross_entropy)
    left, right = (gradients(*given, batch) for batch in (first, second))
    found = computed(lai_jax.per_sample_inner_products, *given, first, second)
    np.testing.assert_allclose(found, left @ right.T, rtol=1e-12)
    norms = computed(lai_jax.per_sample_norms, *given, second)
    np.testing.assert_allclose(norms, np.linalg.norm(right, axis=1), rtol=1e-12)
    assert lai_jax.check_per_sample_gradients(*given, second).relative_error < 1e-12


def test_what_couples_samples_is_named():
    def centred(params, inputs):
        return apply(params, inputs - (inputs @ params["tied"]).mean(0))

    with pytest.raises(ValueError, match=r"reduce_sum \(test_per_sample\.py:\d+\) reduces over the samples"):
        lai_jax.check_per_sample_gradients(centred, PARAMS, cross_entropy, classified(N))


def test_numbers_that_disagree_are_named(monkeypatch):
    found = lai_jax.selfcheck(apply, PARAMS, cross_entropy, *classified(N))
    wrong = type(found)(found.relative_error, {"tied": 1e-6}, found.exact)
    monkeypatch.setattr(sys.modules["lai_jax.selfcheck"], "selfcheck", lambda *given: wrong)
    with pytest.raises(ValueError, match=r"relative errors of 1\.0e-06 for tied; please report"):
        lai_jax.check_per_sample_gradients(apply, PARAMS, cross_entropy, classified(N))


def test_selfcheck_says_how_scores_and_gradients_in_bfloat16_agree_with_float32():
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    inputs, targets = classified(N)

    def loss(outputs, targets):
        return cross_entropy(outputs.astype(jnp.float32), targets)

    found = lai_jax.selfcheck(apply, low, loss, inputs.astype(jnp.bfloat16), targets, float32="lai").float32
    assert all(0.999 < found[name] < 1.0 - 1e-7 for name in ("scores", "gradients"))
