"""Complex parameters count as two real ones each: in Ghost, in exact scores, and in a step."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

import lai_core as lai
from tests.lai_jax.support import by_numpy, computed, kernel_error, stepped

N = 4


def drawn(*shape, seed=0):
    parts = np.random.default_rng([seed, *shape]).standard_normal((2, *shape))
    return jnp.asarray(parts[0] + 1j * parts[1])


PARAMS = {"w": drawn(3, 5), "b": drawn(5), "filter": drawn(3), "o": drawn(5, 2).real}
BATCH = drawn(N, 3).real, drawn(N, 2).real


def apply(params, inputs):
    """Filter the spectrum, go through a complex layer, and read off the modulus."""
    spectrum = jnp.fft.ifft(jnp.fft.fft(inputs) * params["filter"])
    hidden = spectrum @ params["w"] + params["b"]
    return jnp.abs(hidden) @ params["o"]


def loss(outputs, targets):
    return ((outputs - targets) ** 2).sum(-1)


def gradients(inputs, targets):
    """Return each sample's gradient in real numbers, by `jax.grad` of one sample, conjugated."""

    def single(params, one, target):
        return loss(apply(params, one[None]), target[None])[0]

    found = by_numpy(jax.vmap(jax.grad(single), (None, 0, 0)), PARAMS, inputs, targets)
    flat = [leaf.conj().reshape(N, -1) for leaf in jax.tree.leaves(found)]
    return np.concatenate([part for leaf in flat for part in (leaf.real, leaf.imag)], 1)


def test_ghost_and_exact_match_real_parts():
    wanted = gradients(*BATCH)
    trace = computed(lai_jax.trace, apply, PARAMS, loss, *BATCH, gradients="all")
    assert kernel_error(trace, wanted) < 1e-12
    scores = computed(lai_jax.exact_scores, apply, PARAMS, loss, BATCH, BATCH)
    np.testing.assert_allclose(scores, wanted @ wanted.sum(0), rtol=1e-11)
    assert lai_jax.selfcheck(apply, PARAMS, loss, *BATCH).relative_error < 1e-12
    assert lai_jax.coverage(apply, PARAMS, loss, *BATCH).fraction == 1.0


@pytest.mark.parametrize("estimator", ["lai", "exact"])
def test_a_step_goes_down(estimator):
    how = {"tx": optax.sgd(1e-3), "estimator": estimator, "policy": lai.reweight}
    after, _, report = stepped((apply, PARAMS, loss), BATCH, BATCH, **how)
    moved = [PARAMS[name] - after[name] for name in sorted(PARAMS)]
    flat = np.concatenate([part for leaf in moved for part in (leaf.ravel().real, leaf.ravel().imag)])
    np.testing.assert_allclose(flat, 1e-3 * report.weights @ gradients(*BATCH), rtol=1e-9, atol=1e-12)
    assert loss(apply(after, BATCH[0]), BATCH[1]) @ report.weights < report.losses @ report.weights


def test_real_parameters_on_complex_samples():
    def plain(params, inputs):
        return jnp.abs(inputs @ params["w"]) ** 2

    params, batch = {"w": drawn(3, 2).real}, (drawn(N, 3), drawn(N, 2).real)
    assert lai_jax.selfcheck(plain, params, loss, *batch).relative_error < 1e-12
