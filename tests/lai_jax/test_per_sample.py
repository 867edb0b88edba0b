"""Per-sample gradients under the field's names: norms, inner products, and whether they may be trusted."""

import sys

import jax
import jax.numpy as jnp
import lai_jax
import pytest

from tests.lai_jax.oracle import drawn
from tests.lai_jax.support import classified, cross_entropy

N = 6


def parameters():
    return {"tied": drawn(4, 4, seed=1), "head": drawn(4, 3, seed=2)}


def apply(params, inputs):
    """Use one matrix twice, once turned round."""
    return jnp.tanh(inputs @ params["tied"]) @ params["tied"].T @ params["head"]


def gradients(params, batch):
    """Return each sample's gradient by plain autograd, one sample at a time."""

    def one(params, sample, target):
        return cross_entropy(apply(params, sample[None]), target[None])[0]

    rows = [jax.grad(one)(params, *pair) for pair in zip(*batch, strict=True)]
    return jnp.stack([jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(row)]) for row in rows])


def test_products_and_norms_are_those_of_plain_autograd():
    params, first, second = parameters(), classified(4), classified(N, seed=1)
    left, right = (gradients(params, batch) for batch in (first, second))
    found = lai_jax.per_sample_inner_products(apply, params, cross_entropy, first, second)
    assert jnp.allclose(found, left @ right.T, rtol=1e-12)
    norms = jax.jit(lambda params: lai_jax.per_sample_norms(apply, params, cross_entropy, second))(params)
    assert jnp.allclose(norms, jnp.linalg.norm(right, axis=1), rtol=1e-12)
    assert lai_jax.check_per_sample_gradients(apply, params, cross_entropy, second).relative_error < 1e-12


def test_what_couples_samples_is_named():
    def centred(params, inputs):
        return apply(params, inputs - (inputs @ params["tied"]).mean(0))

    with pytest.raises(ValueError, match=r"reduce_sum \(test_per_sample\.py:\d+\) reduces over the samples"):
        lai_jax.check_per_sample_gradients(centred, parameters(), cross_entropy, classified(N))


def test_numbers_that_disagree_are_named(monkeypatch):
    found = lai_jax.selfcheck(apply, parameters(), cross_entropy, *classified(N))
    wrong = type(found)(found.relative_error, {"tied": 1e-6}, found.exact)
    monkeypatch.setattr(sys.modules["lai_jax.selfcheck"], "selfcheck", lambda *given: wrong)
    with pytest.raises(ValueError, match=r"relative errors of 1\.0e-06 for tied; please report"):
        lai_jax.check_per_sample_gradients(apply, parameters(), cross_entropy, classified(N))


def test_selfcheck_says_how_scores_and_gradients_in_bfloat16_agree_with_float32():
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), parameters())
    inputs, targets = classified(N)

    def loss(outputs, targets):
        return cross_entropy(outputs.astype(jnp.float32), targets)

    found = lai_jax.selfcheck(apply, low, loss, inputs.astype(jnp.bfloat16), targets, float32="lai").float32
    assert all(0.999 < found[name] < 1.0 - 1e-7 for name in ("scores", "gradients"))
