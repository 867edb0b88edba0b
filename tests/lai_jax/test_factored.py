"""Models with many outputs: a summary in chunks stays factors while these are less than their sum."""

import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

import lai_core as lai
from tests.lai_jax.support import computed

OUTPUTS, WIDTHS = 1300, (9, 50)


def apply(params, inputs):
    return jnp.tanh(inputs @ params["first"]) @ params["last"]


def loss(outputs, targets):
    return ((outputs - targets[:, None]) ** 2).mean(-1)


def data(samples, seed):
    draws = np.random.default_rng(seed)
    return jnp.array(draws.normal(size=(samples, WIDTHS[0]))), jnp.array(draws.normal(size=samples))


@pytest.mark.parametrize(("samples", "chunk", "factored"), [(7, None, True), (7, 3, True), (70, 30, False)])
def test_chunks_stay_factors_or_are_summed(samples, chunk, factored):
    draws = np.random.default_rng(0)
    shapes = {"first": WIDTHS, "last": (WIDTHS[1], OUTPUTS)}
    params = {name: jnp.array(draws.normal(size=shape)) for name, shape in shapes.items()}
    validation, batch = data(samples, 1), data(4, 2)
    validation = validation[0].at[3, 0].set(jnp.nan), validation[1]
    side = computed(lai_jax.summarize, apply, params, loss, *validation, chunk=chunk).side
    assert side.factored == factored
    assert int(side.samples) == samples - 1
    finite = np.arange(samples) != 3
    sides = (validation[0][finite], validation[1][finite]), batch
    traces = [computed(lai_jax.trace, apply, params, loss, *side) for side in sides]
    expected = lai.lai_scores(*traces)
    np.testing.assert_allclose(lai.lai_scores(side, traces[1]), expected, rtol=1e-9, atol=1e-12)
