"""Complex parameters count as two real ones each: in Ghost, in exact scores, and in a step."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

import lai_core as lai

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
    rows = []
    for index in range(len(inputs)):
        one = slice(index, index + 1)
        found = jax.grad(lambda p, one=one: loss(apply(p, inputs[one]), targets[one])[0])(PARAMS)
        flat = [leaf.conj().ravel() for leaf in jax.tree.leaves(found)]
        rows.append(jnp.concatenate([part for leaf in flat for part in (leaf.real, leaf.imag)]))
    return jnp.stack(rows)


def test_ghost_and_exact_scores_are_those_of_real_parts():
    wanted = gradients(*BATCH)
    trace = lai_jax.trace(apply, PARAMS, loss, *BATCH, gradients="all")
    np.testing.assert_allclose(lai.ghost_kernel(trace, trace), wanted @ wanted.T, rtol=1e-4)
    scores = lai_jax.exact_scores(apply, PARAMS, loss, BATCH, BATCH)
    np.testing.assert_allclose(scores, wanted @ wanted.sum(0), rtol=1e-4)
    assert lai_jax.selfcheck(apply, PARAMS, loss, *BATCH).relative_error < 1e-5
    assert lai_jax.coverage(apply, PARAMS, loss, *BATCH).share == 1.0


@pytest.mark.parametrize("estimator", ["lai", pytest.param("exact", marks=pytest.mark.slow)])
def test_a_step_goes_down(estimator):
    update = lai_jax.curated_update(apply, loss, optax.sgd(1e-3), estimator=estimator, policy=lai.reweight)
    side = lai_jax.summarize(apply, PARAMS, loss, *BATCH, estimator=estimator)
    after, _, report = update(PARAMS, optax.sgd(1e-3).init(PARAMS), side, *BATCH)
    moved = jax.tree.map(jnp.subtract, PARAMS, after)
    flat = jnp.concatenate(
        [p for leaf in jax.tree.leaves(moved) for p in (leaf.ravel().real, leaf.ravel().imag)]
    )
    np.testing.assert_allclose(flat, 1e-3 * report.weights @ gradients(*BATCH), rtol=1e-2, atol=1e-5)
    assert loss(apply(after, BATCH[0]), BATCH[1]) @ report.weights < report.losses @ report.weights


def test_real_parameters_on_complex_samples():
    params, batch = {"w": drawn(3, 2).real}, (drawn(N, 3), drawn(N, 2).real)

    def plain(params, inputs):
        return jnp.abs(inputs @ params["w"]) ** 2

    assert lai_jax.selfcheck(plain, params, loss, *batch).relative_error < 1e-5
